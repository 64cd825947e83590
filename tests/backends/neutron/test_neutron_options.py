"""Options of the compile specification and of delegation, and the arguments that take them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from neutron_cases import IMAGE, Attention, Fn, act, conv
from neutron_programs import (
    INPUT,
    Net,
    backends,
    lowered,
    partitioner,
    quantized,
    reasons,
    steps_off,
)
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from edgewise.backends.neutron import (
    CustomDelegationOptions,
    NeutronPartitioner,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.targets import TARGETS
from support import export

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("aten::add", 1),
        ("aten.add", 1),
        ("aten.add.Tensor", 1),
        ("aten_add_tensor", 0),
        ("add", 1),  # the node's name
        ("ad", 0),
        ("aten.convolution.default", 2),
    ],
)
def test_operators_not_to_delegate(name: str, left: int) -> None:
    program = quantized(Net(), INPUT)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = lowered(program, partitioner(operators_not_to_delegate=[name]))
    told = [str(w.message) for w in seen if "operators_not_to_delegate" in str(w.message)]
    named = [n for n in made.delegation_report().refused if "does not name" in str(n.refusals)]
    main = ("aten.add.Tensor", "aten.convolution.default")
    assert len([n for n in named if n.operator in main]) == left, reasons(made)
    assert bool(told) == (left == 0)
    assert not told or f"got {name};" in told[0]


def test_no_op_partitions() -> None:
    program = quantized(nn.Flatten(), INPUT)
    made = lowered(program)
    assert backends(made) == []
    assert "allow_no_op_partitions=True" in reasons(made)
    made = lowered(program, partitioner(CustomDelegationOptions(allow_no_op_partitions=True)))
    assert backends(made) == ["NeutronBackend"]
    assert steps_off(program, made, INPUT) == 0


# --- names of today, and the specification's ------------------------------------------


@dataclass
class PeersOptions:
    """Shaped as ExecuTorch's CustomDelegationOptions."""

    allow_no_op_partitions: bool = True


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ((), False),
        ((CustomDelegationOptions(True),), True),  # the specification's second argument
        (("imxrt700", CustomDelegationOptions(True)), True),  # today's second and third
        ((TARGETS["imxrt700"], PeersOptions(), {"weight": torch.ones(1)}), True),
        ((None, PeersOptions(False), None, [torch.ops.aten.gelu.default]), False),
    ],
)
def test_arguments(given: tuple[Any, ...], allowed: bool) -> None:
    assert partitioner(*given).rules.options.allow_no_op_partitions is allowed


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (("imx95",), ValueError, "target of compile_spec, 'imxrt700'; got 'imx95'"),
        ((None, "no"), TypeError, "CustomDelegationOptions; got str"),
    ],
)
def test_wrong_arguments(given: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        partitioner(*given)


def test_preserved_operators() -> None:
    gelu = torch.ops.aten.gelu.default
    asked: list[torch.fx.Node] = []
    options = {"preserve_ops": [gelu], "check_op_support": lambda n: bool(asked.append(n)) or True}
    spec = generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="reference")
    kept, check = NeutronPartitioner(spec, **options).ops_to_not_decompose(export(Net(), (INPUT,)))
    assert gelu in kept
    assert torch.ops.aten.linear.default in kept
    graph = torch.fx.Graph()
    nodes = [graph.call_function(t) for t in (gelu, torch.ops.aten.linear.default)]
    assert check is not None
    assert all(check(n) for n in nodes)
    assert asked == nodes[:1]


# --- what can be decided only when the program runs ------------------------------------

BATCH = CustomDelegationOptions(allow_dynamic_batch=True)


class Padded(nn.Module):
    """Rows that are filled up to sixteen."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(F.pad(x, (0, 0, 0, 16 - x.shape[0])))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Net, (4, 3, 16, 16)),
        (lambda: Attention(), (4, 8, 32)),
        (lambda: act(nn.Linear(8, 8), Fn(lambda x: torch.cat([x, x], 1))), (4, 8)),
        (lambda: act(nn.Conv2d(8, 8, 3), Fn(torch.erf), nn.Conv2d(8, 8, 1)), (4, 8, 5, 5)),
        (lambda: act(Fn(lambda x: x.reshape(-1, 4).sigmoid().reshape(x.shape))), (4, 8)),
    ],
)
def test_dynamic_batch(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Off: nothing of it is delegated, and what to do is said. On: every size runs."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    program = quantized(make(), x, dynamic_shapes=({0: Dim("batch", min=1, max=6)},))
    off = lowered(program)
    assert backends(off) == []
    assert re.search(r"static shapes; got .*\[s.*allow_dynamic_batch=True", reasons(off))
    on = lowered(program, partitioner(BATCH))
    assert set(backends(on)) == {"NeutronBackend"}
    assert "made for the largest batch" in reasons(on)
    for rows in (1, 4, 6):
        assert steps_off(program, on, torch.randn(rows, *shape[1:])) <= 3


@pytest.mark.parametrize(
    ("function", "shape", "sizes", "message"),
    [
        (lambda x: torch.softmax(x, 0), (8, 16), {0: Dim("n", max=8)}, "along the batch"),
        (lambda x: torch.cat([x, x]).tanh(), (8, 16), {0: Dim("n", max=8)}, "along the batch"),
        (lambda x: x.mean(0), (8, 16), {0: Dim("n", max=8)}, "whose result is of all rows"),
        (lambda x: x[:2].tanh(), (8, 16), {0: Dim("n", min=2, max=8)}, "result is of all rows"),
        (torch.tanh, (8, 16), {0: Dim("n")}, "without an upper bound"),
        (torch.tanh, (8, 16), {1: Dim("n", max=16)}, r"\[8, s\d+\]; try torch.export.Dim"),
        (lambda x: x.t().tanh(), (8, 16), {0: Dim("n", max=8)}, r"\[16, s\d+\]"),
    ],
)
def test_dynamic_batch_refused(
    function: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, ...],
    sizes: dict[int, Any],
    message: str,
) -> None:
    program = quantized(act(Fn(function)), torch.randn(shape), dynamic_shapes=(sizes,))
    made = lowered(program, partitioner(BATCH))
    assert re.search(f"rows of a bounded batch that stay apart; got .*{message}", reasons(made))
    assert steps_off(program, made, torch.randn(shape)) <= 1


def test_padding_that_depends_on_a_size() -> None:
    """It runs before the NPU; what follows has a static size."""
    x = torch.randn(5, 8)
    program = quantized(Padded(), x, dynamic_shapes=({0: Dim("rows", min=2, max=15)},))
    made = lowered(program)
    assert backends(made) == ["NeutronBackend"]
    assert "aten.constant_pad_nd.default: static shapes" in reasons(made)
    for rows in (2, 5, 15):
        assert steps_off(program, made, torch.randn(rows, 8)) <= 1


SIX = (1, 6, 9, 8)
CAT = CustomDelegationOptions(force_delegate_cat=True)
PADDED = CustomDelegationOptions(allow_padded_channels=True)


def joined(dim: int) -> nn.Module:
    return Fn(lambda x: torch.cat([x, x], dim))


@pytest.mark.parametrize(
    ("make", "shape", "flavor", "options", "delegated"),
    [
        (lambda: conv(8, 8, 3), IMAGE, "SDK_25_06", None, True),
        (lambda: conv(8, 6, 3), IMAGE, "SDK_25_06", None, False),
        (lambda: conv(8, 6, 3), IMAGE, "SDK_25_06", CAT, False),
        (lambda: conv(8, 6, 3), IMAGE, "SDK_25_06", PADDED, True),
        (lambda: conv(3, 8, 3), (1, 3, 9, 7), "SDK_25_06", None, False),
        (lambda: conv(8, 6, 3), IMAGE, "eiq_neutron_sdk", None, True),
        (lambda: conv(8, 6, 3), IMAGE, "reference", None, True),
        (lambda: conv(16, 24, 3, groups=2), (1, 16, 9, 7), "SDK_25_06", None, False),
        (lambda: conv(16, 16, 3, groups=2), (1, 16, 9, 7), "SDK_25_06", None, True),
        (lambda: Fn(lambda x: x * x), (1, 8, 3, 3), "SDK_25_06", None, True),
        (lambda: Fn(lambda x: x * x), (1, 3, 3, 3), "SDK_25_06", None, False),
        (lambda: Fn(lambda x: x * x), (1, 3, 3, 3), "SDK_25_06", PADDED, True),
        (lambda: joined(2), IMAGE, "SDK_25_06", None, True),
        (lambda: joined(1), IMAGE, "SDK_25_06", None, True),
        (lambda: joined(2), SIX, "SDK_25_06", None, False),
        (lambda: joined(1), SIX, "SDK_25_06", None, False),
        (lambda: joined(2), SIX, "SDK_25_06", CAT, True),
        (lambda: joined(2), SIX, "SDK_25_06", PADDED, True),
        (lambda: joined(2), SIX, "reference", None, True),
        (lambda: joined(1), (1, 5, 8), "SDK_25_06", None, True),  # of tokens
        (lambda: joined(2), (1, 8, 5), "SDK_25_06", None, True),  # of a signal
        (lambda: joined(2), (1, 5, 6), "SDK_25_06", None, False),
        (lambda: joined(0), (5, 8), "SDK_25_06", None, True),
        (lambda: joined(0), (8, 5), "SDK_25_06", None, False),
    ],
)
def test_channels_of_older_converters(
    stand_in: Callable[..., None],
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    flavor: str,
    options: CustomDelegationOptions | None,
    delegated: bool,
) -> None:
    stand_in("flavors", "sdk")
    x = torch.randn(shape)
    program = quantized(make(), x)
    made = lowered(program, partitioner(options, neutron_converter_flavor=flavor))
    assert bool(backends(made)) is delegated
    if not delegated:
        assert "converters before 2026); got " in reasons(made)
        assert "and 8 for imxrt700" in reasons(made)
        assert "CustomDelegationOptions(allow_padded_channels=True)" in reasons(made)
    elif flavor == "reference":
        assert steps_off(program, made, x) <= 1
