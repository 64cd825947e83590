"""What is tagged, what is refused and where that is said; programs with other partitioners."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from neutron_cases import IMAGE, act, conv
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

import edgewise
from edgewise.backends.neutron import (
    NeutronConverterError,
)
from edgewise.backends.neutron.reference import _interpreters
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.edge import to_edge_program
from edgewise.edge.graph import is_call
from edgewise.lowering import ExecutorchProgramManager
from edgewise.partition.spec import TAG
from edgewise.runtime import BackendError, load
from support import export

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert


class Interrupted(nn.Module):
    """An operator in the middle that the NPU has not."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.erf(self.before(x)))


# --- whole models ---------------------------------------------------------


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


def test_programs_for_the_npu_do_not_run_here(stand_in: Callable[..., None]) -> None:
    stand_in("sdk")
    made = lowered(
        quantized(conv(8, 8, 3), torch.randn(IMAGE)), partitioner(neutron_converter_flavor=None)
    )
    with pytest.raises(BackendError, match=r"neutron_converter_flavor='reference'"):
        load(bytes(made.buffer))


def test_missing_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LiteRT is imported in a process of its own."""
    made = lowered(quantized(conv(8, 8, 3), torch.randn(IMAGE)))
    (tmp_path / "ai_edge_litert.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    _interpreters.stop()
    with pytest.raises(BackendError, match=r"not here; try pip install 'edgewise\[neutron\]'"):
        load(bytes(made.buffer))
    _interpreters.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": "imxrt701"}, "got 'imxrt701'; try one of imxrt700"),
        ({"config": "imx943"}, "known to NXP's converter only"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partitioner(**options)


@pytest.mark.parametrize("flavor", [None, "SDK_25_06", "neutron_converter_SDK_26_03"])
def test_without_the_converter(flavor: str | None) -> None:
    """Partitioning tells which nodes the NPU takes; compiling them says what to install."""
    program = quantized(Interrupted(), torch.randn(IMAGE))
    asked = partitioner(neutron_converter_flavor=flavor)
    kept, _ = asked.ops_to_not_decompose(program)
    edge = to_edge_program(program, lambda _: lambda node: node.target in kept)
    result = asked.partition(edge)
    places = {n.name: n.meta.get(TAG, "") for n in edge.graph.nodes if is_call(n)}
    assert sorted(set(places.values())) == ["", "neutron_0", "neutron_1"]
    assert all(result.refusals[name] for name, tag in places.items() if not tag)
    assert [n for n in result.refusals if "erf" in n]
    with pytest.raises(NeutronConverterError, match="try installing eiq_neutron_sdk") as missing:
        lowered(program, partitioner(neutron_converter_flavor=flavor))
    assert flavor is None or f"{flavor} (installed: none)" in str(missing.value)


class Branches(nn.Module):
    """Operators on the NPU before and behind one that it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.before(x))
        return self.after(torch.erf(y)) - torch.sigmoid(y)


@pytest.mark.parametrize(
    ("failing", "delegates", "refused", "reason"),
    [
        ("", 2, [], ""),
        ("no_graph", 0, ["convolution", "convolution", "sigmoid", "sub", "tanh"], "no operators"),
        ("unchanged", 0, ["convolution", "convolution", "sigmoid", "sub", "tanh"], "CONV_2D"),
        ("two_operators", 0, ["convolution", "convolution", "sigmoid", "sub", "tanh"], "NeutronGr"),
        ("leaves:tanh", 3, ["tanh"], "turns into a program; got TANH"),
        ("leaves:sigmoid", 2, ["sigmoid"], "turns into a program; got LOGISTIC"),
    ],
)
def test_what_the_converter_does_not_convert(
    stand_in: Callable[..., None], failing: str, delegates: int, refused: list[str], reason: str
) -> None:
    """Stays with the runtime's kernels, with the reason; the rest of its partition does not."""
    stand_in("sdk", failing=failing)
    x = torch.randn(IMAGE, generator=torch.Generator().manual_seed(3))
    program = quantized(Branches(), x)
    made = lowered(program, partitioner(neutron_converter_flavor=None))
    assert backends(made) == ["NeutronBackend"] * delegates
    report = made.delegation_report()
    assert len(report.delegates) == delegates
    assert "erf" in reasons(made)
    left = [n for n in report.refused if "NXP's converter" in str(n.refusals)]
    assert sorted(n.operator.split(".")[1] for n in left if "quant" not in n.operator) == refused
    assert any(reason in str(r) for n in left for r in n.refusals) or not reason
    assert not [n.name for n in report.refused if not n.refusals]


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
        (
            "neutron-imxrt9-reference",
            {},
            "got 'neutron-imxrt9-reference'; try 'neutron-imx95-reference'",
        ),
        ("neutron", {}, "or Neutron"),
        ("neutron-imxrt700-reference", {"quantize": "int8-dynamic"}, "try quantize='int8'"),
    ],
)
def test_compile_refuses(backend: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compiled(backend, **options)
