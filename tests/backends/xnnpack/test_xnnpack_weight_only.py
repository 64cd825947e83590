"""Weights in 8 and 4 bits, activations in floating point: in the file, and what is computed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from quantized import FLOAT, QBINT4, QBINT8, QCINT4, QCINT8, node_types, reference

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.backends.xnnpack.lowering.weight_only import EXPANDED, PLAIN
from edgewise.quantize.flow import quantize
from support import RUNTIMES, assert_close, payloads


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(5)
    return make().eval()


def weight_only(module: torch.nn.Module, x: torch.Tensor, how: Any) -> torch.export.ExportedProgram:
    """how: "int8" or "tensor" by PT2E, else a data type and granularity for `quantize_`."""
    if how == "int8":
        return quantize(module, (x,), "int8-weight", XNNPACKQuantizer)
    if how in ("tensor", "channel4"):
        return _pt2e(module, x, four_bits=how == "channel4")
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    bits, group = how
    granularity = PerAxis(0) if group is None else PerGroup(group)
    module = copy.deepcopy(module)
    quantize_(
        module,
        IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity),
    )
    return torch.export.export(module, (x,))


def _pt2e(module: torch.nn.Module, x: torch.Tensor, four_bits: bool) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from edgewise.quantize import QuantizationConfig, get_symmetric_quantization_config

    low, high = (-8, 7) if four_bits else (-127, 127)
    whole = get_symmetric_quantization_config(four_bits, weight_qmin=low, weight_qmax=high)
    quantizer = XNNPACKQuantizer().set_global(QuantizationConfig(None, None, whole.weight, None))
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    prepared(x)
    return torch.export.export(convert_pt2e(prepared), (x,))


@dataclass(frozen=True)
class Case:
    """filter: the type of the weights in the file; both: whether the peer's runtime takes it."""

    make: Callable[[], torch.nn.Module]
    x: torch.Tensor
    how: Any
    filter: int
    both: bool = False
    half: bool = False


def linear(inputs: int, outputs: int, bias: bool = True) -> Callable[[], torch.nn.Module]:
    return lambda: torch.nn.Linear(inputs, outputs, bias)


IMAGE = t(2, 8, 9, 7)
CONVOLUTIONS: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor]] = {
    "conv2d": (lambda: torch.nn.Conv2d(8, 6, 3, 2, 1), IMAGE),
    "conv2d of groups": (lambda: torch.nn.Conv2d(8, 6, 3, groups=2, dilation=2), IMAGE),
    "pointwise": (lambda: torch.nn.Conv2d(8, 5, 1, bias=False), IMAGE),
    "depthwise": (lambda: torch.nn.Conv2d(8, 16, 3, groups=8), IMAGE),
    "transposed": (lambda: torch.nn.ConvTranspose2d(8, 4, 3, 2), IMAGE),
    "transposed in groups": (lambda: torch.nn.ConvTranspose2d(8, 4, 3, groups=2), IMAGE),
    "transposed 1d": (lambda: torch.nn.ConvTranspose1d(8, 4, 3, 2), t(2, 8, 11)),
    "conv1d": (lambda: torch.nn.Conv1d(8, 6, 3), t(2, 8, 11)),
    "convolution and norm": (
        lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8)),
        IMAGE,
    ),
}
CASES = {
    "linear": Case(linear(24, 10), t(3, 24), "int8", QCINT8, both=True),
    "linear without bias": Case(linear(24, 10, False), t(3, 24), "int8", QCINT8, both=True),
    "linear of three dimensions": Case(linear(24, 10), t(2, 3, 24), "int8", QCINT8, both=True),
    "linear per tensor": Case(linear(24, 10), t(3, 24), "tensor", QCINT8, both=True),
    "linear of odd rows, 4 bits": Case(linear(25, 10), t(3, 25), "channel4", QCINT8, both=True),
    "linear in 4 bits": Case(linear(24, 10), t(3, 24), (4, None), QCINT4, both=True),
    "linear in 8 bits by quantize_": Case(linear(24, 10), t(3, 24), (8, None), QCINT8, both=True),
    "linear in groups of 32": Case(linear(96, 10), t(3, 96), (4, 32), QBINT4),
    "linear in groups of 64": Case(linear(128, 7, False), t(1, 128), (4, 64), QBINT4),
    "linear in groups of 128": Case(linear(256, 7), t(2, 256), (4, 128), QBINT4),
    "linear in groups of 256": Case(linear(512, 6), t(2, 512), (4, 256), QBINT4),
    "linear in 8-bit groups of 256": Case(linear(512, 6), t(2, 512), (8, 256), QBINT8),
    "linear in 2 bits": Case(linear(24, 10), t(3, 24), (2, None), QCINT4, both=True),
    "linear in 2-bit groups of 32": Case(linear(64, 10), t(3, 64), (2, 32), QBINT4),
    "linear in 8-bit groups of 32": Case(linear(96, 10), t(3, 96), (8, 32), QBINT8),
    "linear in 8-bit groups, half": Case(linear(64, 10), t(3, 64), (8, 32), QBINT8, half=True),
    "linear in groups of odd size": Case(linear(48, 10), t(3, 48), (4, 24), FLOAT, both=True),
    "linear in half": Case(linear(24, 10), t(3, 24), (8, None), QCINT8, half=True),
    "linear in groups and half": Case(linear(64, 10), t(3, 64), (4, 32), QBINT4, half=True),
    **{name: Case(make, x, "int8", QCINT8) for name, (make, x) in CONVOLUTIONS.items()},
    **{
        f"{name} in 4 bits": Case(make, x, "channel4", QCINT4)
        for name, (make, x) in CONVOLUTIONS.items()
    },
    "conv2d per tensor": Case(CONVOLUTIONS["conv2d"][0], IMAGE, "tensor", QCINT8),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_weight_only(case: Case) -> None:
    module, x = seeded(case.make), case.x
    if case.half:
        module, x = module.half(), x.half()
    program = weight_only(module, x, case.how)
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    report = edge.delegation_report()
    pte = edge.to_executorch().buffer
    (graph,) = payloads(pte)
    products = [types for kind, types in node_types(graph) if "Conv" in kind or "Fully" in kind]
    assert [types[1] for types in products if len(types) > 2] == [case.filter]
    notes = [note for node in report.nodes for note in node.notes]
    plain = [PLAIN] if case.filter == FLOAT else []
    assert notes == (plain if case.both else [EXPANDED])
    assert ("on this runtime only" in str(report)) == (not case.both)
    (want,) = reference(program, (x,))
    # Scales of groups are bfloat16 in the file: a relative error of 2^-9 of each product.
    bound = {True: 4e-3, False: 1e-5}[case.filter == QBINT4 or case.half]
    for runtime in ["ours"] + ["peer"] * case.both:
        (got,) = RUNTIMES[runtime](pte, (x,))
        # Of each element, and of a sum of magnitude 1 where its terms cancel.
        assert_close(got, [want], bound, bound, inputs=(x,))


@pytest.mark.peer
def test_the_peer_refuses_what_the_note_says() -> None:
    program = weight_only(seeded(CONVOLUTIONS["conv2d"][0]), IMAGE, "int8")
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    with pytest.raises(RuntimeError):
        RUNTIMES["peer"](edge.to_executorch().buffer, (IMAGE,))


@pytest.mark.parametrize("how", ["int8", (4, 32), (8, 32)])
def test_files_are_smaller(how: Any) -> None:
    module, x = seeded(linear(512, 512, False)), t(1, 512)
    edge = edgewise.to_edge_transform_and_lower(
        weight_only(module, x, how), partitioner=[XnnpackPartitioner()]
    )
    bits = {"int8": 8, (4, 32): 4 + 16 / 32, (8, 32): 8 + 32 / 32}[how]
    assert len(edge.to_executorch().buffer) <= 512 * 512 * bits / 8 + 12_000


def test_two_products_share_expanded_weights() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x).relu())

    program = weight_only(seeded(Twice), IMAGE, "int8")
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    (got,) = RUNTIMES["ours"](edge.to_executorch().buffer, (IMAGE,))
    (want,) = reference(program, (IMAGE,))
    assert_close(got[:1], [want], 1e-5, 4e-6)
