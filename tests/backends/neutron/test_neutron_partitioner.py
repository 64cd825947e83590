"""What is tagged, what is refused and where that is said; options, and programs with others."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from neutron_cases import IMAGE, Fn, act, conv
from torch import nn
from torch.export import ExportedProgram

import edgewise
from edgewise.backends.neutron import (
    CustomDelegationOptions,
    NeutronConverterError,
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.targets import TARGETS
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.emit.file import read
from edgewise.lowering import ExecutorchProgramManager
from edgewise.quantize.flow import quantize
from edgewise.runtime import BackendError, load
from support import export

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert


class Net(nn.Module):
    """A residual, pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.head(self.pool(self.second(x) + x).flatten(1))


class Interrupted(nn.Module):
    """An operator in the middle that the NPU has not."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.nn.functional.gelu(self.before(x)))


INPUT = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def quantized(
    model: nn.Module, *inputs: torch.Tensor, quantizer: Any = NeutronQuantizer, **options: Any
) -> ExportedProgram:
    torch.manual_seed(0)
    batches = [inputs, *(tuple(torch.randn_like(x) for x in inputs) for _ in range(3))]
    return quantize(
        model.eval(),
        inputs,
        "int8",
        quantizer,
        calibration=batches,
        progress=False,
        **options,
    )


def partitioner(*given: Any, config: str = "imxrt700", **options: Any) -> NeutronPartitioner:
    options.setdefault("neutron_converter_flavor", "reference")
    return NeutronPartitioner(generate_neutron_compile_spec(config, **options), *given)


def lowered(program: ExportedProgram, *with_: Any) -> ExecutorchProgramManager:
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[*with_] or [partitioner()])
    return edge.to_executorch()


def backends(made: ExecutorchProgramManager) -> list[str]:
    return [d.id for d in read(bytes(made.buffer)).program.execution_plan[0].delegates]


def reasons(made: ExecutorchProgramManager) -> str:
    return "\n".join(
        f"{n.operator}: {r} try {r.hint}"
        for n in made.delegation_report().refused
        for r in n.refusals
    )


def steps_off(program: ExportedProgram, made: ExecutorchProgramManager, *inputs: Any) -> int:
    """The largest difference to the PT2E reference, in steps of the result's scale."""
    scale = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1].args[1]
    expected = program.module()(*inputs).detach().numpy()
    found = load(bytes(made.buffer))(*inputs)
    assert tuple(found.shape) == expected.shape
    return int(np.abs(np.rint((np.asarray(found) - expected) / scale)).max())


# --- whole models and options ---------------------------------------------------------


@pytest.mark.parametrize("converts", [True, False], ids=["npu-converts", "runtime-converts"])
@pytest.mark.parametrize(
    "layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"]
)
def test_layouts(layout: torch.memory_format, converts: bool) -> None:
    x = INPUT.to(memory_format=layout)
    model = act(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
    for module in (Net(), model):
        program = quantized(module, x)
        made = lowered(program, partitioner(use_neutron_for_format_conversion=converts))
        assert backends(made) == ["NeutronBackend"]
        assert steps_off(program, made, x) <= 2


def test_intermediate_files(tmp_path: Path, stand_in: Callable[..., None]) -> None:
    stand_in("sdk")
    program = quantized(conv(8, 8, 3), torch.randn(IMAGE))
    for flavor, names in (("reference", ["pure"]), (None, ["neutron", "pure"])):
        folder = tmp_path / str(flavor)
        folder.mkdir()
        options = {"neutron_converter_flavor": flavor, "intermediates_dir": str(folder)}
        lowered(program, partitioner(**options))
        found = sorted(folder.iterdir())
        assert [f.name.rpartition("_")[2] for f in found] == [f"{n}.et.tflite" for n in names]
        assert all(f.read_bytes()[4:8] == b"TFL3" for f in found)


def test_intermediate_folder_missing(tmp_path: Path) -> None:
    program = quantized(conv(8, 8, 3), torch.randn(IMAGE))
    with pytest.raises(ValueError, match="intermediates_dir must be an existing directory"):
        lowered(program, partitioner(intermediates_dir=str(tmp_path / "none")))


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


# --- with other partitioners ----------------------------------------------------------


def test_mixed_with_xnnpack() -> None:
    """XNNPACK gets what the NPU has not, in one file that runs on the host."""
    x = torch.randn(1, 8, 9, 7, generator=torch.Generator().manual_seed(2))
    program = quantized(Interrupted(), x)
    made = lowered(program, partitioner(), XnnpackPartitioner())
    assert sorted(set(backends(made))) == ["NeutronBackend", "XnnpackBackend"]
    assert backends(made).count("NeutronBackend") == 2
    assert steps_off(program, made, x) <= 2


def test_xnnpack_first_leaves_nothing() -> None:
    program = quantized(Net(), INPUT)
    made = lowered(program, XnnpackPartitioner(), partitioner())
    assert "XnnpackBackend" in backends(made)
    assert steps_off(program, made, INPUT) <= 2


def test_quantized_by_xnnpack_s_quantizer() -> None:
    program = quantized(Net(), INPUT, quantizer=XNNPACKQuantizer)
    made = lowered(program)
    assert made.delegation_report().share("macs") == 1
    assert steps_off(program, made, INPUT) <= 2


def test_part_in_float() -> None:
    program = quantized(Net(), INPUT, keep_float=["second"])
    made = lowered(program)
    assert 0 < made.delegation_report().share("macs") < 1
    assert "floating point" in reasons(made)


# --- bad input ------------------------------------------------------------------------


def test_not_quantized() -> None:
    made = lowered(export(Net(), (INPUT,)))
    assert backends(made) == []
    assert "operands and result quantized to int8; got floating point" in reasons(made)
    assert "NeutronQuantizer" in reasons(made)


class Between(nn.Module):
    """tanh between quantizations of a type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, low = dtype, torch.iinfo(dtype).min
        self.bounds = (low, torch.iinfo(dtype).max, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        real = ops.dequantize_per_tensor(x, 0.1, 0, *self.bounds)
        return ops.quantize_per_tensor(torch.tanh(real), 1 / 128, 0, *self.bounds)


@pytest.mark.parametrize(
    ("dtype", "dynamic", "message"),
    [
        (torch.int8, False, ""),
        (torch.uint8, False, "activations in int8, -128..127; got .*: uint8 0..255"),
        (torch.int16, False, "activations in int8, -128..127; got .*: int16"),
        (torch.int8, True, r"static shapes; got .*: \[s\d+, 5\].* try .*without dynamic_shapes"),
    ],
)
def test_types_and_sizes(dtype: torch.dtype, dynamic: bool, message: str) -> None:
    x = torch.ones(4, 5, dtype=dtype)
    shapes = ({0: torch.export.Dim("batch", min=2, max=8)},) if dynamic else None
    made = lowered(torch.export.export(Between(dtype), (x,), dynamic_shapes=shapes))
    assert backends(made) == ([] if message else ["NeutronBackend"])
    if message:
        assert re.search(message, reasons(made)), reasons(made)


@pytest.mark.parametrize(
    ("make", "shape", "flavor", "delegated"),
    [
        (lambda: conv(8, 8, 3), IMAGE, "SDK_25_06", True),
        (lambda: conv(8, 6, 3), IMAGE, "SDK_25_06", False),
        (lambda: conv(3, 8, 3), (1, 3, 9, 7), "SDK_25_06", False),
        (lambda: conv(8, 6, 3), IMAGE, "eiq_neutron_sdk", True),
        (lambda: conv(8, 6, 3), IMAGE, "reference", True),
        (lambda: Fn(lambda x: x * x), (1, 8, 3, 3), "SDK_25_06", True),
        (lambda: Fn(lambda x: x * x), (1, 3, 3, 3), "SDK_25_06", False),
    ],
)
def test_channels_of_older_converters(
    stand_in: Callable[..., None],
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    flavor: str,
    delegated: bool,
) -> None:
    stand_in("flavors", "sdk")
    made = lowered(
        quantized(make(), torch.randn(shape)), partitioner(neutron_converter_flavor=flavor)
    )
    assert bool(backends(made)) is delegated
    if not delegated:
        assert "converters before 2026); got " in reasons(made)
        assert "and 8 for imxrt700" in reasons(made)


def test_programs_for_the_npu_do_not_run_here(stand_in: Callable[..., None]) -> None:
    stand_in("sdk")
    made = lowered(
        quantized(conv(8, 8, 3), torch.randn(IMAGE)), partitioner(neutron_converter_flavor=None)
    )
    with pytest.raises(BackendError, match=r"neutron_converter_flavor='reference'"):
        load(bytes(made.buffer))


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    made = lowered(quantized(conv(8, 8, 3), torch.randn(IMAGE)))
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(BackendError, match=r"pip install 'edgewise\[neutron\]'"):
        load(bytes(made.buffer))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"config": "imxrt701"}, ValueError, "got 'imxrt701'; try one of imxrt700"),
        ({"config": "imx943"}, ValueError, "known to NXP's converter only"),
        ({"neutron_converter_flavor": "SDK_1"}, NeutronConverterError, "installed: none"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        partitioner(**options)


# --- edgewise.compile -----------------------------------------------------------------


def compiled(backend: str, **options: Any) -> ExecutorchProgramManager:
    options = {"quantize": "int8", "calibration": [INPUT], **options}
    return edgewise.compile(Net(), INPUT, backend=backend, verbose=False, **options)


def test_compile_for_the_host() -> None:
    torch.manual_seed(0)
    made = compiled("neutron-imxrt700-reference")
    assert backends(made) == ["NeutronBackend"]
    assert load(bytes(made.buffer))(INPUT).shape == (1, 5)


def test_compile_for_the_npu(stand_in: Callable[..., None]) -> None:
    with pytest.raises(NeutronConverterError) as missing:
        compiled("neutron-imxrt700")
    for part in (
        "backend='neutron-imxrt700-reference'",
        "neutron_converter_flavor='reference'",
        "installing eiq_neutron_sdk",
    ):
        assert part in str(missing.value)
    stand_in("sdk")
    assert backends(compiled("neutron-imxrt700")) == ["NeutronBackend"]


@pytest.mark.parametrize(
    ("backend", "options", "message"),
    [
        ("neutron-imxrt9-reference", {}, "got 'imxrt9'"),
        ("neutron", {}, "or Neutron"),
        ("neutron-imxrt700-reference", {"quantize": "int8-dynamic"}, "try quantize='int8'"),
    ],
)
def test_compile_refuses(backend: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compiled(backend, **options)
