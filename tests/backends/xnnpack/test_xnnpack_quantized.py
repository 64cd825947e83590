"""Quantized programs: integer kernels where XNNPACK has them, and PT2E's results."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import by_rows
import pytest
import quantized
import quantized_cases
import torch
import torch.nn.functional as F
from quantized import FLOAT, QBINT4, QCINT4, QCINT8, QDINT8, QINT8, float_kinds, kinds_of, pt2e
from xnnpack_bounds import rows_in

import edgewise
from closeness import assert_within
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.backends.xnnpack.lowering.weight_only import EXPANDED, UNQUANTIZED
from support import RUNTIMES, Fn, assert_close, operators, payloads

BOTH = ["ours", pytest.param("peer", marks=pytest.mark.peer)]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


IMAGE = t(1, 8, 9, 7)


def seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(3)
    return make().eval()


class Layers(torch.nn.Module):
    """Layers, and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict(layers)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, **dict(self.layers.items()))


def around(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], torch.nn.Module]:
    """Two convolutions, whose results are quantized, with the function in between."""

    def make() -> torch.nn.Module:
        return Layers(
            lambda x, a, b: b(function(a(x))),
            a=torch.nn.Conv2d(8, 8, 3, padding=1),
            b=torch.nn.Conv2d(8, 8, 1),
        )

    return make


@dataclass(frozen=True)
class Case:
    """`kinds` must be among the nodes, on integers; nothing is computed in floating point but
    `floats`. `steps`: allowed difference to PT2E in steps of the output: more than one where
    several operators round one after the other. One by one: test_xnnpack_quantized_rows.py."""

    make: Callable[[], torch.nn.Module]
    inputs: tuple[torch.Tensor, ...]
    kinds: tuple[str, ...]
    steps: float = 1
    floats: tuple[str, ...] = field(default=())
    per_channel: bool = True


def linear(*sizes: int) -> Callable[[], torch.nn.Module]:
    return lambda: torch.nn.Linear(*sizes)


STATIC = {
    "linear": Case(linear(8, 6), (t(3, 8),), ("FullyConnected",)),
    "linear per tensor": Case(linear(8, 6), (t(3, 8),), ("FullyConnected",), per_channel=False),
    "linear of three dimensions": Case(linear(8, 6), (t(2, 3, 8),), ("FullyConnected",)),
    "linear without bias": Case(
        lambda: torch.nn.Linear(8, 6, bias=False), (t(3, 8),), ("FullyConnected",)
    ),
    "linear and relu": Case(
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU()),
        (t(3, 8),),
        ("FullyConnected",),
    ),
    "conv2d": Case(lambda: torch.nn.Conv2d(8, 6, 3, 2, 1), (IMAGE,), ("Conv2d",)),
    "conv2d per tensor": Case(
        lambda: torch.nn.Conv2d(8, 6, 3, 2, 1), (IMAGE,), ("Conv2d",), per_channel=False
    ),
    "conv2d of groups": Case(
        lambda: torch.nn.Conv2d(8, 6, 3, groups=2, dilation=2), (IMAGE,), ("Conv2d",)
    ),
    "depthwise": Case(
        lambda: torch.nn.Conv2d(8, 16, 3, groups=8, bias=False), (IMAGE,), ("DepthwiseConv2d",)
    ),
    "convolution, norm and relu": Case(
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
        ),
        (IMAGE,),
        ("Conv2d",),
    ),
    "add": Case(lambda: Fn(lambda x, y: x + y), (t(3, 5), t(3, 5, seed=1)), ("Add",)),
    "add a row": Case(lambda: Fn(lambda x, y: x + y), (t(3, 5), t(5, seed=1)), ("Add",)),
    "add itself and relu": Case(lambda: Fn(lambda x: (x + x).relu()), (t(3, 5),), ("Add",)),
    "mul": Case(lambda: Fn(lambda x, y: x * y), (t(3, 5), t(3, 5, seed=1)), ("Multiply",)),
    "mul by a number": Case(lambda: Fn(lambda x: x * 3), (t(3, 5),), ("Multiply",)),
    "cat": Case(
        lambda: Layers(
            lambda x, a, b, c: c(torch.cat([a(x), 3 * b(x)], 1)),
            a=torch.nn.Conv2d(8, 3, 1),
            b=torch.nn.Conv2d(8, 5, 1),
            c=torch.nn.Conv2d(8, 8, 1),
        ),
        (IMAGE,),
        ("Concatenate2",),
        2,
    ),
    "adaptive_avg_pool2d to one": Case(lambda: torch.nn.AdaptiveAvgPool2d(1), (IMAGE,), ()),
    "avg_pool2d": Case(around(lambda x: F.avg_pool2d(x, 2)), (IMAGE,), ("DepthwiseConv2d",), 2),
    "adaptive_avg_pool2d": Case(
        around(lambda x: F.adaptive_avg_pool2d(x, (3, 7))), (IMAGE,), ("DepthwiseConv2d",), 2
    ),
    "max_pool2d": Case(around(lambda x: F.max_pool2d(x, 2)), (IMAGE,), ("MaxPooling2d",), 2),
    "hardtanh": Case(around(lambda x: F.hardtanh(x, -0.2, 0.3)), (IMAGE,), (), 2),
    "relu6": Case(around(F.relu6), (IMAGE,), (), 2),
    "hardswish": Case(around(F.hardswish), (IMAGE,), ("Hardswish",), 2),
    "sigmoid": Case(around(torch.sigmoid), (IMAGE,), ("Sigmoid",), 2),
    "tanh": Case(around(torch.tanh), (IMAGE,), ("Tanh",), 2),
    "gelu": Case(around(F.gelu), (IMAGE,), ("Gelu",), 2),
    "elu": Case(around(F.elu), (IMAGE,), ("ELU",), 2),
    "leaky_relu": Case(around(lambda x: F.leaky_relu(x, 0.2)), (IMAGE,), ("LeakyReLU",), 2),
    "sub": Case(around(lambda x: x - x[:, :, :1]), (IMAGE,), ("Subtract", "StaticSlice"), 2),
    "pad": Case(around(lambda x: F.pad(x, (1, 0, 2, 1))), (IMAGE,), ("StaticConstantPad",), 2),
    "permute": Case(around(lambda x: x.permute(0, 1, 3, 2)), (IMAGE,), ("StaticTranspose",), 2),
    "view": Case(around(lambda x: x.reshape(1, 8, 7, 9)), (IMAGE,), ("StaticReshape",), 2),
    "mean": Case(
        around(lambda x: x.mean([2, 3], keepdim=True)), (IMAGE,), ("GlobalAvgPooling2d",), 2
    ),
    "bilinear": Case(
        around(lambda x: F.interpolate(x, (18, 14), mode="bilinear", align_corners=False)),
        (IMAGE,),
        ("StaticResizeBilinear2D",),
        3,  # rounds once more, in the scale of its operand
    ),
    "a float between": Case(around(lambda x: x.exp().log()), (IMAGE,), (), 2, ("Exp", "Log")),
    "residual": Case(
        lambda: Layers(
            lambda x, a, b: F.relu(b(F.relu(a(x))) + x),
            a=torch.nn.Conv2d(8, 8, 3, padding=1),
            b=torch.nn.Conv2d(8, 8, 3, padding=1),
        ),
        (IMAGE,),
        ("Conv2d", "Add"),
        2,
    ),
}


def flat(cases: dict[str, dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(*case, id=f"{row}: {name}")
        for row, named in cases.items()
        for name, case in named.items()
    ]


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize(("expected", "module", "inputs"), flat(quantized_cases.ACCEPTED))
def test_rows(
    expected: list[str], module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], runtime: str
) -> None:
    exported = torch.export.export(module, inputs)
    lowered = quantized.lower(exported)
    pte = lowered.buffer
    assert operators(pte) == ["delegate"]
    assert kinds_of(pte) == Counter(expected)
    (got,) = RUNTIMES[runtime](pte, inputs)
    (want,) = quantized.reference(exported, inputs)
    assert got[0].dtype == want.dtype
    if {"FullyConnected", "Conv2d"} & set(expected):
        # XNNPACK finds a scale for each row, eager one for all: each rounds other digits, and no
        # element has a bound of its own.
        assert (got[0] - want).abs().max() <= 2e-2 * want.abs().max()
        return
    (row,) = rows_in(lowered)
    accuracy = row.accuracies()[str(want.dtype).removeprefix("torch.")]
    assert_within(got[0], want.double(), accuracy, inputs=inputs)


class AsGiven(XnnpackPartitioner):
    """Sees what is bfloat16 as it is, not in float32."""

    upcasts_bfloat16 = False


@pytest.mark.parametrize(
    ("module", "inputs", "operator", "reason"),
    quantized_cases.REFUSED.values(),
    ids=quantized_cases.REFUSED,
)
def test_refused(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], operator: str, reason: str
) -> None:
    exported = torch.export.export(module, inputs)
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[AsGiven()])
    nodes = [n for n in edge.delegation_report().refused if n.operator == operator]
    assert any(reason in r for n in nodes for rs in n.reasons.values() for r in rs), [
        n.reasons for n in nodes
    ]
    pte = edge.to_executorch().buffer
    (got,) = RUNTIMES["ours"](pte, inputs)
    for y, want in zip(got, quantized.reference(exported, inputs), strict=True):
        difference = (torch.as_tensor(y).double() - want.double()).abs().max()
        assert difference <= 1e-2 * max(1.0, float(want.double().abs().max()))


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Each case is lowered once for both runtimes."""
    return {}


def once(made: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
    if name not in made:
        made[name] = make()
    return made[name]


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("name", STATIC)
def test_static(name: str, runtime: str, made: dict[str, Any]) -> None:
    case = STATIC[name]

    def make() -> tuple[Any, bytes]:
        exported = pt2e(seeded(case.make), case.inputs, per_channel=case.per_channel)
        return exported, quantized.lower(exported).buffer

    exported, pte = once(made, name, make)
    assert operators(pte) == ["delegate"]
    found = kinds_of(pte)
    assert all(kind in found for kind in case.kinds), found
    # The image's own transpose comes before it is quantized.
    assert set(float_kinds(pte)) - {"StaticTranspose", "StaticReshape"} <= set(case.floats)
    (got,) = RUNTIMES[runtime](pte, case.inputs)
    step = quantized.output_step(exported)
    for y, want in zip(got, quantized.reference(exported, case.inputs), strict=True):
        assert y.shape == want.shape
        assert (y - want).abs().max() <= case.steps * step * 1.001


def mlp(*sizes: int) -> torch.nn.Module:
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.ReLU())][:-1])


def shared_input() -> torch.nn.Module:
    """As projections of query and key."""
    return Layers(
        lambda x, q, k: q(x) @ k(x).transpose(-1, -2),
        q=torch.nn.Linear(32, 32),
        k=torch.nn.Linear(32, 32),
    )


def grouped(weight: torch.dtype, *group: int) -> Callable[..., Any]:
    def quantize(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
        from torchao.quantization import PerAxis, PerGroup

        granularity = PerGroup(*group) if group else PerAxis(0)
        return quantized.groupwise(module, inputs, weight, granularity)

    return quantize


def pt2e_dynamic(per_channel: bool, ours: bool = False) -> Callable[..., Any]:
    return lambda module, inputs: pt2e(
        module, inputs, dynamic=True, per_channel=per_channel, ours=ours
    )


# Sums of the same integers, rounded in another order.
EXACTLY: dict[str, float] = {"rel": 1e-5, "floor": 4e-6}

# Module, inputs, flow, nodes of each kind with quantized activations, weights' type.
DYNAMIC: dict[str, tuple[Any, tuple[Any, ...], Any, tuple[str, int], int]] = {
    "per channel": (
        lambda: mlp(32, 64, 8),
        (t(5, 32),),
        pt2e_dynamic(True),
        ("FullyConnected", 2),
        QCINT8,
    ),
    "per tensor": (
        lambda: mlp(32, 64, 8),
        (t(2, 5, 32),),
        pt2e_dynamic(False),
        ("FullyConnected", 2),
        QCINT8,
    ),
    "a shared input": (
        shared_input,
        (t(1, 5, 32),),
        pt2e_dynamic(True),
        ("FullyConnected", 2),
        QCINT8,
    ),
    "8 bits per channel": (
        lambda: mlp(64, 32, 8),
        (t(3, 64),),
        grouped(torch.int8),
        ("FullyConnected", 2),
        QCINT8,
    ),
    "4 bits per channel": (
        lambda: mlp(64, 32, 8),
        (t(3, 64),),
        grouped(torch.int4),
        ("FullyConnected", 2),
        QCINT4,
    ),
    "4 bits in blocks of 32": (
        lambda: mlp(64, 96, 8),
        (t(2, 3, 64),),
        grouped(torch.int4, 32),
        ("FullyConnected", 2),
        QBINT4,
    ),
    "4 bits in blocks of 128": (
        lambda: mlp(256, 256, 8),
        (t(2, 256),),
        grouped(torch.int4, 128),
        ("FullyConnected", 2),
        QBINT4,
    ),
    "4 bits in blocks of 256": (
        lambda: mlp(512, 512, 8),
        (t(3, 512),),
        grouped(torch.int4, 256),
        ("FullyConnected", 2),
        QBINT4,
    ),
    "convolution per channel": (
        lambda: torch.nn.Conv2d(8, 6, 3, 2, 1),
        (IMAGE,),
        pt2e_dynamic(True, ours=True),
        ("Conv2d", 1),
        QCINT8,
    ),
    "convolution per tensor": (
        lambda: torch.nn.Conv2d(8, 6, 3, 2, 1),
        (IMAGE,),
        pt2e_dynamic(False, ours=True),
        ("Conv2d", 1),
        QCINT8,
    ),
    "4 bits in blocks of 64": (
        lambda: mlp(128, 128, 8),
        (t(1, 128),),
        grouped(torch.int4, 64),
        ("FullyConnected", 2),
        QBINT4,
    ),
}


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic(name: str, runtime: str, made: dict[str, Any]) -> None:
    make, inputs, quantize, (kind, count), weights = DYNAMIC[name]

    def make_program() -> tuple[Any, bytes]:
        exported = quantize(seeded(make), inputs)
        return exported, quantized.lower(exported).buffer

    exported, pte = once(made, "dynamic " + name, make_program)
    assert operators(pte) == ["delegate"]
    (graph,) = payloads(pte)
    products = [types for k, types in quantized.node_types(graph) if k == kind]
    assert [types[:2] for types in products if types[0] == QDINT8] == [[QDINT8, weights]] * count
    (got,) = RUNTIMES[runtime](pte, inputs)
    assert_close(got, by_rows.reference(exported, inputs), **EXACTLY, inputs=inputs)


def test_shared_activations_are_quantized_once() -> None:
    pte = quantized.lower(pt2e(seeded(shared_input), (t(1, 5, 32),), dynamic=True)).buffer
    assert kinds_of(pte)["Convert"] == 1


def attention() -> torch.nn.Module:
    """Query, key and value from one product."""

    def heads(x: torch.Tensor, qkv: Any, out: Any) -> torch.Tensor:
        split = qkv(x).reshape(1, 5, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*split)
        return out(mixed.transpose(1, 2).reshape(1, 5, 64))

    return Layers(heads, qkv=torch.nn.Linear(64, 192), out=torch.nn.Linear(64, 64))


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("flow", ["static", "dynamic", "in blocks"])
def test_packed_projections_are_split(flow: str, runtime: str) -> None:
    module, x = seeded(attention), (t(1, 5, 64),)
    if flow == "in blocks":
        exported = grouped(torch.int4, 32)(module, x)
    else:
        exported = pt2e(module, x, dynamic=flow == "dynamic")
    pte = quantized.lower(exported).buffer
    assert operators(pte) == ["delegate"]
    found = kinds_of(pte)
    assert (found["FullyConnected"], found["StaticSlice"]) == (4, 0)
    (got,) = RUNTIMES[runtime](pte, x)
    if flow == "static":
        (want,) = quantized.reference(exported, x)
        assert (got[0] - want).abs().max() <= 1.001 * quantized.output_step(exported)
    else:
        assert_close(got, by_rows.reference(exported, x), **EXACTLY)


class Cached(torch.nn.Module):
    """A projection that is kept in a buffer, as attention's keys are."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(64, 64)
        self.register_buffer("cache", torch.zeros(4, 64))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache[position] = self.project(x)[0]
        return self.project(self.cache.view(2, 128).view(4, 64) + x)


def test_programs_that_write_to_buffers() -> None:
    """Torch traces these as a whole, which must leave quantization whole."""
    x = (t(1, 64), torch.tensor([1]))
    exported = grouped(torch.int4, 32)(seeded(Cached), x)
    pte = quantized.lower(exported).buffer
    types = [n for graph in payloads(pte) for n in quantized.node_types(graph)]
    assert [found[:2] for k, found in types if k == "FullyConnected"] == [[QDINT8, QBINT4]] * 2
    (got,) = RUNTIMES["ours"](pte, x)
    assert_close(got, by_rows.reference(exported, x), **EXACTLY)


def test_weights_are_stored_as_integers() -> None:
    module = seeded(lambda: torch.nn.Linear(256, 256, bias=False))
    x = (t(1, 256),)
    size = 256 * 256
    for exported, expected in (
        (pt2e(module, x), size),
        (pt2e(module, x, dynamic=True), size),
        (grouped(torch.int4, 32)(module, x), size // 2 + 2 * size // 32),
    ):
        assert expected <= len(quantized.lower(exported).buffer) <= 1.1 * expected + 4096


def test_8_bit_blocks_are_integers_in_the_file() -> None:
    """XNNPACK has no kernel for them: weights are expanded, activations are not quantized."""
    x = (t(3, 512),)
    module = seeded(lambda: mlp(512, 512))
    exported = grouped(torch.int8, 32)(module, x)
    program = quantized.lower(exported)
    assert operators(program.buffer) == ["delegate"]
    assert len(program.buffer) <= 512 * 512 * 9 / 8 + 12_000
    (notes,) = [node.notes for node in program.delegation_report().nodes if node.notes]
    assert notes == [EXPANDED, UNQUANTIZED]
    (got,) = RUNTIMES["ours"](program.buffer, x)
    with torch.no_grad():
        layer = module[0]
        want = F.linear(x[0].double(), layer.weight.dequantize().double(), layer.bias.double())
    assert_close(got[:1], [want], **EXACTLY)
    (rounded,) = quantized.reference(exported, x)
    assert (got[0] - rounded).abs().max() <= 2e-2 * rounded.abs().max()


def test_weights_alone_stay_integers() -> None:
    """Quantized weights with floating-point activations: see test_xnnpack_weight_only.py."""
    from torchao.quantization import IntxWeightOnlyConfig, PerAxis, quantize_

    module, x = seeded(linear(64, 8)), (t(3, 64),)
    quantize_(module, IntxWeightOnlyConfig(torch.int8, PerAxis(0)))
    with torch.no_grad():
        exported = torch.export.export(module, x)
    pte = quantized.lower(exported).buffer
    assert operators(pte) == ["delegate"]
    assert not float_kinds(pte)
    (got,) = RUNTIMES["ours"](pte, x)
    (want,) = quantized.reference(exported, x)
    assert_close(got[:1], [want], **EXACTLY)


def test_batches_of_other_sizes() -> None:
    batch = torch.export.Dim("batch", min=1, max=16)
    x = (t(4, 32),)
    exported = pt2e(seeded(lambda: mlp(32, 64, 8)), x, dynamic=True, dynamic_shapes=({0: batch},))
    pte = quantized.lower(exported).buffer
    assert operators(pte) == ["delegate"]
    for rows in (1, 4, 16):
        inputs = (t(rows, 32, seed=rows),)
        (got,) = RUNTIMES["ours"](pte, inputs)
        (want,) = quantized.reference(exported, inputs)
        assert (got[0] - want).abs().max() <= 3e-2 * want.abs().max()


def test_integers_cross_the_border_of_a_program() -> None:
    """int8 in, int8 out: the borders keep the integers and their scales."""
    qd = torch.ops.quantized_decomposed

    def function(x: torch.Tensor) -> torch.Tensor:
        real = qd.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        return qd.quantize_per_tensor(real + real, 0.1, -7, -128, 127, torch.int8)

    x = (torch.randint(-128, 128, (3, 5), dtype=torch.int8),)
    exported = torch.export.export(Fn(function), x)
    pte = quantized.lower(exported).buffer
    assert operators(pte) == ["delegate"]
    assert kinds_of(pte) == {"Add": 1}
    (graph,) = payloads(pte)
    assert quantized.node_types(graph) == [("Add", [QINT8] * 3)]
    (got,) = RUNTIMES["ours"](pte, x)
    (want,) = quantized.reference(exported, x)
    assert (got[0].int() - want.int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("scale", "nodes"),
    [
        (0.06, [("Convert", [QINT8, QINT8])]),
        (0.05, [("Copy", [QINT8, QINT8])]),
        (0.05 * 300, [("Convert", [QINT8, FLOAT]), ("Convert", [FLOAT, QINT8])]),
    ],
    ids=["another scale", "the same", "beyond what XNNPACK converts at once"],
)
def test_requantizing(scale: float, nodes: list[Any]) -> None:
    qd = torch.ops.quantized_decomposed

    def function(x: torch.Tensor) -> torch.Tensor:
        real = qd.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        return qd.quantize_per_tensor(real, scale, 3, -128, 127, torch.int8)

    x = (torch.randint(-128, 128, (3, 5), dtype=torch.int8),)
    exported = torch.export.export(Fn(function), x)
    pte = quantized.lower(exported).buffer
    (graph,) = payloads(pte)
    assert quantized.node_types(graph) == nodes
    (got,) = RUNTIMES["ours"](pte, x)
    (want,) = quantized.reference(exported, x)
    assert (got[0].int() - want.int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("number", "integers"),
    [(0.05 * 7, True), (0.37, False), (-6.55, True), (-6.6, False), (6.2, True), (6.25, False)],
    ids=["a step", "between steps", "the least", "below", "the largest", "above"],
)
def test_padding_of_what_was_dequantized(number: float, integers: bool) -> None:
    """In integers only by a number that they hold: the result is read as it is."""
    qd = torch.ops.quantized_decomposed

    def function(x: torch.Tensor) -> torch.Tensor:
        real = qd.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        return torch.constant_pad_nd(real, (1, 2), number)

    x = (torch.randint(-128, 128, (3, 5), dtype=torch.int8),)
    exported = torch.export.export(Fn(function), x)
    pte = quantized.lower(exported).buffer
    (graph,) = payloads(pte)
    types = dict(quantized.node_types(graph))
    assert types["StaticConstantPad"][0] == (QINT8 if integers else FLOAT)
    (got,) = RUNTIMES["ours"](pte, x)
    torch.testing.assert_close(got[0], Fn(function)(*x), rtol=0, atol=1e-6)


# Architecture | kinds that stay in floating point, for XNNPACK has no integer kernel for them
# (softmax, products of activations) or because PT2E leaves them unquantized
# (layer norm), | the largest difference to PT2E as a share of what quantization itself changed.
MODELS = {
    "mobilenet_v2": (set(), 1.0),
    "mobilenet_v3_small": (set(), 1.5),
    "resnet18": (set(), 1.0),
    "bert_small": (
        {
            *("Add", "BatchMatrixMultiply", "FullyConnected", "Multiply", "ReciprocalSquareRoot"),
            *("Softmax", "Square", "StaticReshape", "StaticSlice", "Subtract", "Tanh"),
        },
        1.0,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    from examples.models import MODELS as SPECS

    floats, share = MODELS[name]
    module, inputs = SPECS[name].build(seed=0), SPECS[name].example_inputs(0)
    exported = pt2e(module, inputs)
    pte = quantized.lower(exported).buffer
    assert operators(pte).count("delegate") == 1
    assert set(float_kinds(pte)) - {"StaticTranspose"} <= floats, float_kinds(pte)
    # Embeddings are looked up by the runtime's own kernel, in float32.
    tables = sum(m.weight.numel() for m in module.modules() if isinstance(m, torch.nn.Embedding))
    parameters = sum(p.numel() for p in module.parameters())
    assert len(pte) <= 1.25 * (parameters + 3 * tables) + 200_000
    with torch.no_grad():
        unquantized = torch.utils._pytree.tree_leaves(module(*inputs))
    want = quantized.reference(exported, inputs)
    (got,) = RUNTIMES["ours"](pte, inputs)
    (peer,) = RUNTIMES["peer"](pte, inputs)
    for y, z, w, f in zip(got, peer, want, unquantized, strict=True):
        # The largest single error hangs on the last bits of the calibration; their sum does not.
        assert (y - w).norm() <= share * (w - f).norm()
        assert (z - w).norm() <= share * (w - f).norm()
