"""Rewrites of a subgraph: each where it applies and where it must not."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.passes import OPTIMIZE
from edgewise.backends.xnnpack.passes.drop_dead import drop_dead
from edgewise.backends.xnnpack.passes.fuse_clamp import fuse_clamp
from edgewise.backends.xnnpack.passes.merge_reshapes import merge_reshapes
from edgewise.passes import Group
from support import Fn, assert_close, eager64, kinds, lower, operators, payloads, run_ours

ROWS = torch.randn(2, 3, 8)
IMAGE = torch.randn(1, 4, 6, 5)


def norm(*shape: int) -> nn.LayerNorm:
    made = nn.LayerNorm(shape)
    nn.init.uniform_(made.weight, 0.5, 2)
    nn.init.uniform_(made.bias, -1, 1)
    return made


class Heads(nn.Module):
    """One projection for query, key and value, cut in three."""

    def __init__(self, cut: Any, outputs: int = 24, bias: bool = True) -> None:
        super().__init__()
        self.linear, self.cut = nn.Linear(8, outputs, bias), cut

    def forward(self, x: torch.Tensor) -> Any:
        return self.cut(self.linear(x))


class Both(nn.Module):
    """The normalised tensor is read by a projection and by a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = norm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return self.linear(y) + y


class Two(nn.Module):
    """The normalised tensor is read by two projections, one of them without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = norm(8), nn.Linear(8, 4), nn.Linear(8, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return self.a(y).sigmoid() * self.b(y)


def outer(factor: float) -> Any:
    return Fn(lambda y: (y * factor).relu())


NORM = [
    "FullyConnected",
    "Subtract",
    "Square",
    "FullyConnected",
    "ReciprocalSquareRoot",
    "Multiply",
]

# Module | input | kinds of nodes that are left.
CASES: dict[str, tuple[nn.Module, torch.Tensor, list[str]]] = {
    # fuse_clamp
    "clamp into a convolution": (
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU6()),
        IMAGE,
        ["StaticTranspose", "Conv2d", "StaticTranspose"],
    ),
    "clamp into a sum": (Fn(lambda x: (x + x).relu()), ROWS, ["Add"]),
    "clamp into pooling": (
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        IMAGE,
        ["StaticTranspose", "MaxPooling2d", "StaticTranspose"],
    ),
    "two clamps into one": (Fn(lambda x: (x * x).clamp(0, 2).clamp(1, 3)), ROWS, ["Multiply"]),
    "disjoint clamps stay two": (
        Fn(lambda x: (x * x).clamp(0, 1).clamp(2, 3)),
        ROWS,
        ["Multiply", "Clamp"],
    ),
    "clamp of a shared sum stays": (Fn(lambda x: (x + 1).relu() * (x + 1).sigmoid()), ROWS, None),
    "clamp of a sum that is returned stays": (
        Fn(lambda x: ((y := x + x), y.relu())),
        ROWS,
        ["Add", "Clamp"],
    ),
    "clamp of a sum that is read twice stays": (
        Fn(lambda x: (y := x + x).relu() * y),
        ROWS,
        ["Add", "Clamp", "Multiply"],
    ),
    "clamp of what takes no range stays": (
        Fn(lambda x: x.exp().clamp(max=2)),
        ROWS,
        ["Exp", "Clamp"],
    ),
    # fold_affine, before
    "norm into a projection": (
        nn.Sequential(norm(8), nn.Linear(8, 4)),
        ROWS,
        [*NORM, "FullyConnected"],
    ),
    "norm into two projections": (
        Two(),
        ROWS,
        [*NORM, "FullyConnected", "Sigmoid", "FullyConnected", "Multiply"],
    ),
    "norm that a sum reads too stays": (
        Both(),
        ROWS,
        [*NORM, "Multiply", "Add", "FullyConnected", "Add"],
    ),
    "norm that is returned stays": (norm(8), ROWS, [*NORM, "Multiply", "Add"]),
    "scale and shift into a projection": (
        nn.Sequential(Fn(lambda x: x * 3 + 2), nn.Linear(8, 4, bias=False)),
        ROWS,
        ["FullyConnected"],
    ),
    "a clamped shift stays": (
        nn.Sequential(Fn(lambda x: (x + 2).relu()), nn.Linear(8, 4)),
        ROWS,
        ["Add", "FullyConnected"],
    ),
    "one factor per row stays": (
        nn.Sequential(Fn(lambda x, c: x * c, c=torch.rand(3, 1)), nn.Linear(8, 4)),
        ROWS,
        ["Multiply", "FullyConnected"],
    ),
    "a number's factor and shift after a convolution": (
        nn.Sequential(nn.Conv2d(4, 3, 1, bias=False), Fn(lambda x: x * 3 + 2), nn.ReLU()),
        IMAGE,
        ["StaticTranspose", "Conv2d", "StaticTranspose"],
    ),
    "hardsigmoid after a depthwise convolution": (
        nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Hardsigmoid()),
        IMAGE,
        ["StaticTranspose", "DepthwiseConv2d", "StaticTranspose"],
    ),
    "a factor behind an activation stays": (
        nn.Sequential(nn.Conv2d(4, 3, 1), nn.ReLU(), Fn(lambda x: x * 3)),
        IMAGE,
        ["StaticTranspose", "Conv2d", "Multiply", "StaticTranspose"],
    ),
    "a factor that widens stays": (
        nn.Sequential(Fn(lambda x, c: x[..., :1] * c, c=torch.rand(8)), nn.Linear(8, 4)),
        ROWS,
        ["StaticSlice", "Multiply", "FullyConnected"],
    ),
    "a difference stays": (nn.Sequential(Fn(lambda x: 2 - x), nn.Linear(8, 4)), ROWS, None),
    # fold_affine, after
    "a scale after a projection": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y: y * 0.3)),
        ROWS,
        ["FullyConnected"],
    ),
    "a scale and a clamp after a projection": (
        nn.Sequential(nn.Linear(8, 4), outer(-2.0)),
        ROWS,
        ["FullyConnected"],
    ),
    "a scale behind a reshape": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y: y.view(2, 3, 2, 2) * 0.3)),
        ROWS,
        ["FullyConnected", "StaticReshape"],
    ),
    "a scale and a clamp behind a reshape": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y: (y.view(2, 3, 2, 2) * -0.3).relu())),
        ROWS,
        ["FullyConnected", "StaticReshape", "Clamp"],
    ),
    "a scale of a clamped projection stays": (
        nn.Sequential(nn.Linear(8, 4), nn.ReLU(), Fn(lambda y: y * 0.3)),
        ROWS,
        None,
    ),
    "a scale per channel stays": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y, c: y * c, c=torch.rand(4))),
        ROWS,
        ["FullyConnected", "Multiply"],
    ),
    "a scale of a projection that is read twice stays": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y: y * 0.3 - y)),
        ROWS,
        ["FullyConnected", "Multiply", "Subtract"],
    ),
    "a scale of a projection that is returned stays": (
        nn.Sequential(nn.Linear(8, 4), Fn(lambda y: (y * 0.3, y))),
        ROWS,
        ["FullyConnected", "Multiply"],
    ),
    # split_fully_connected
    "chunks of a projection": (
        Heads(lambda y: [p.sigmoid() for p in y.chunk(3, -1)]),
        ROWS,
        ["FullyConnected"] * 3 + ["Sigmoid"] * 3,
    ),
    "chunks without bias": (
        Heads(lambda y: [p.sigmoid() for p in y.chunk(3, -1)], bias=False),
        ROWS,
        ["FullyConnected"] * 3 + ["Sigmoid"] * 3,
    ),
    "unequal parts": (
        Heads(lambda y: [p.sigmoid() for p in y.split([3, 20, 1], -1)]),
        ROWS,
        ["FullyConnected"] * 3 + ["Sigmoid"] * 3,
    ),
    "parts that leave a gap": (
        Heads(lambda y: y[..., :4].sigmoid() * y[..., 8:12]),
        ROWS,
        ["FullyConnected", "FullyConnected", "Sigmoid", "Multiply"],
    ),
    "parts behind a reshape": (
        Heads(lambda y: [p.sigmoid() for p in y.unflatten(-1, (3, 8)).unbind(-2)]),
        ROWS,
        ["FullyConnected"] * 3 + ["Sigmoid"] * 3,
    ),
    "heads": (
        Heads(
            lambda y: F.scaled_dot_product_attention(
                *y.view(2, 3, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            )
        ),
        ROWS,
        None,
    ),
    "one part stays": (
        Heads(lambda y: y[..., :8].sigmoid()),
        ROWS,
        ["FullyConnected", "StaticSlice", "Clamp", "Sigmoid"],
    ),
    "overlapping parts stay": (
        Heads(lambda y: y[..., :8].sigmoid() * y[..., 4:12]),
        ROWS,
        ["FullyConnected", "StaticSlice", "Clamp", "Sigmoid", "StaticSlice", "Multiply"],
    ),
    "parts of rows stay": (
        Heads(lambda y: y[:, :1].sigmoid() * y[:, 1:2]),
        ROWS,
        ["FullyConnected", "StaticSlice", "Clamp", "Sigmoid", "StaticSlice", "Multiply"],
    ),
    "parts of parts stay": (
        Heads(lambda y: (v := y.unflatten(-1, (3, 8)))[..., :4].sigmoid() * v[..., 4:]),
        ROWS,
        None,
    ),
    "parts that are read besides the whole stay": (
        Heads(lambda y: y[..., :12].sigmoid() + y[..., 12:] + y.mean(-1, keepdim=True)),
        ROWS,
        None,
    ),
    "a result that is returned stays": (
        Heads(lambda y: (y, y[..., :8], y[..., 8:])),
        ROWS,
        ["FullyConnected", "StaticSlice", "StaticSlice"],
    ),
    # merge_reshapes, drop_dead
    "reshapes in a row": (
        Fn(lambda x: x.exp().view(6, 8).view(3, 16).view(48) * 2),
        ROWS,
        ["Exp", "StaticReshape", "Multiply"],
    ),
    "reshapes to and fro": (
        Fn(lambda x: x.exp().view(6, 8).view(2, 3, 8) * 2),
        ROWS,
        ["Exp", "Multiply"],
    ),
    "a reshape that is read twice stays": (
        Fn(lambda x: ((y := x.exp().view(6, 8)).view(48).sin(), y.cos())),
        ROWS,
        ["Exp", "StaticReshape", "StaticReshape", "Sin", "Cos"],
    ),
    # layout
    "no transpose between operators": (
        nn.Sequential(
            nn.Conv2d(4, 4, 3),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 2),
        ),
        IMAGE,
        [
            "StaticTranspose",
            "Conv2d",
            "Conv2d",
            "GlobalAvgPooling2d",
            "StaticReshape",
            "FullyConnected",
        ],
    ),
    "a permuted weight product": (
        Fn(lambda x: x @ x.transpose(1, 2)),
        ROWS,
        ["BatchMatrixMultiply"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_results(name: str) -> None:
    module, x, expected = CASES[name]
    program = lower(module, (x,))
    assert operators(program.buffer) == ["delegate"]
    (graph,) = payloads(program.buffer)
    if expected is not None:
        assert kinds(graph) == expected
    assert_close(run_ours(program.buffer, (x,))[0], eager64(module, (x,)))


# --- the passes alone -------------------------------------------------------------------


def value(*dims: int, data: torch.Tensor | None = None, **role: int) -> Value:
    return Value(dims, torch.float32, data=data, **role)


def unary(kind: str, source: Value, result: Value, **options: Any) -> Node:
    return Node(kind, [source], [result], **options)


def chain(*nodes: tuple[str, dict[str, Any]], dims: Any = (2, 8)) -> Graph:
    """Nodes one after the other between one external input and one output."""
    graph = Graph()
    x = value(*dims, input_index=0)
    graph.inputs.append(x)
    for kind, options in nodes:
        y = value(*options.pop("dims", dims))
        graph.nodes.append(unary(kind, x, y, **options))
        x = y
    x.output_index = 0
    graph.outputs.append(x)
    return graph


def test_passes_say_whether_they_modified() -> None:
    graph = chain(("Exp", {}), ("Sin", {}))
    steps = [one.passes if isinstance(one, Group) else (one,) for one in OPTIMIZE.steps]
    for one in itertools.chain.from_iterable(steps):
        before = list(graph.nodes)
        assert one(graph) is False, one
        assert graph.nodes == before


def test_drop_dead() -> None:
    graph = chain(("Exp", {}), ("Sin", {}))
    unread = value(2, 8)
    graph.nodes.insert(1, unary("Cos", graph.nodes[0].outputs[0], unread))
    graph.nodes.append(unary("Log", unread, value(2, 8)))
    assert drop_dead(graph)
    assert [n.kind for n in graph.nodes] == ["Exp", "Sin"]
    assert not drop_dead(graph)


INF = math.inf
RANGES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float] | None]] = {
    # first | second | together
    "inside": ((0, 6), (1, 2), (1, 2)),
    "outside": ((1, 2), (0, 6), (1, 2)),
    "overlapping": ((0, 2), (1, 3), (1, 2)),
    "half-open": ((0, INF), (-INF, 6), (0, 6)),
    "disjoint": ((0, 1), (2, 3), None),
    "disjoint the other way": ((2, 3), (0, 1), None),
    "touching": ((0, 1), (1, 2), None),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name: str) -> None:
    first, second, together = RANGES[name]
    graph = chain(("Exp", {}), ("Clamp", {"clamp": first}), ("Clamp", {"clamp": second}))
    assert fuse_clamp(graph) is (together is not None)
    clamps = [n.clamp for n in graph.nodes if n.kind == "Clamp"]
    assert clamps == ([together] if together else [first, second])


def test_a_reshape_to_the_shape_at_hand_is_none() -> None:
    graph = chain(("Exp", {}), ("StaticReshape", {"dims": (2, 8)}), ("Sin", {}))
    assert merge_reshapes(graph)
    assert [n.kind for n in graph.nodes] == ["Exp", "Sin"]
    assert graph.nodes[1].inputs == graph.nodes[0].outputs


def test_a_reshape_that_is_the_output_stays() -> None:
    graph = chain(("Exp", {}), ("StaticReshape", {"dims": (2, 8)}))
    merge_reshapes(graph)
    assert [n.kind for n in graph.nodes] == ["Exp", "StaticReshape"]
