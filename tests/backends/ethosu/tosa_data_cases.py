"""Random graphs of operators that move values."""

from __future__ import annotations

import numpy as np
import tosa_serializer as ts
from tosa_cases import case, size, u85_case
from tosa_graph import TosaGraph, attribute


def some_type(rng: np.random.Generator) -> str:
    return str(rng.choice(["int8", "int16", "int32"]))


@case
def concat(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    axis, dtype = int(rng.integers(1, 4)), some_type(rng)
    shape = [1, size(rng), size(rng), size(rng, 40)]
    parts = []
    for _ in range(int(rng.integers(2, 4))):
        part = list(shape)
        part[axis] = size(rng, 20)
        parts.append(graph.input(part, dtype))
    shape[axis] = sum(graph.shapes[p][axis] for p in parts)
    return graph, graph.op("CONCAT", parts, shape, dtype, attribute("Concat", axis=axis))


@case
def transpose(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    rank = int(rng.integers(2, 5))
    dtype = some_type(rng)
    x = graph.input([size(rng, 24) for _ in range(rank)], dtype)
    order = [int(i) for i in rng.permutation(rank)]
    shape = [graph.shapes[x][i] for i in order]
    return graph, graph.op("TRANSPOSE", [x], shape, dtype, attribute("Transpose", perms=order))


@case
def slices(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    dtype = some_type(rng)
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], dtype)
    start = [int(rng.integers(0, n)) for n in graph.shapes[x]]
    shape = [int(rng.integers(1, n - s + 1)) for n, s in zip(graph.shapes[x], start, strict=True)]
    operands = [x, graph.shape(start), graph.shape(shape)]
    return graph, graph.op("SLICE", operands, shape, dtype, attribute("Slice"))


@case
def pad(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    edges = [0, 0, *(int(p) for p in rng.integers(0, 5, 6))]
    shape = [n + edges[2 * i] + edges[2 * i + 1] for i, n in enumerate(graph.shapes[x])]
    operands = [x, graph.shape(edges), graph.const([int(rng.integers(-128, 128))], "int8")]
    return graph, graph.op("PAD", operands, shape, "int8", attribute("Pad"))


@case
def reshape(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Between two operators that have their layouts."""
    graph = TosaGraph()
    h, w, c = size(rng), size(rng), size(rng)
    x = graph.rescale(graph.input([1, h, w, c]), 0.7)
    y = graph.op(
        "RESHAPE", [x, graph.shape([1, w, h * c])], [1, w, h * c], "int8", attribute("Reshape")
    )
    return graph, graph.rescale(y, 1.3)


@case
def reverse(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    axis = int(rng.integers(1, 3))
    return graph, graph.op("REVERSE", [x], graph.shapes[x], "int8", attribute("Reverse", axis=axis))


@case
def tile(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng, 8), size(rng, 8), size(rng, 20)])
    times = [1, *(int(n) for n in rng.integers(1, 4, 3))]
    shape = [n * t for n, t in zip(graph.shapes[x], times, strict=True)]
    return graph, graph.op("TILE", [x, graph.shape(times)], shape, "int8", attribute("Tile"))


def _resize(
    rng: np.random.Generator, bilinear: bool, factor: int, centres: bool
) -> tuple[TosaGraph, str]:
    """Enlarges by factor: half-pixel centres, else corners on corners."""
    graph = TosaGraph()
    h, w, c = size(rng) + 1, size(rng) + 1, size(rng, 40)
    x = graph.input([1, h, w, c])
    n, d, offset, border = factor, 1, 0, 0
    if centres:
        n, d, offset, border = 2 * factor, 2, 1 - factor, factor - 1
    shape = [1, *(((size - 1) * n - offset + border) // d + 1 for size in (h, w)), c]
    operands = [x, *(graph.shape(v) for v in ([n, d, n, d], [offset] * 2, [border] * 2))]
    kind = ts.ResizeMode.BILINEAR if bilinear else ts.ResizeMode.NEAREST
    dtype = "int32" if bilinear else "int8"
    y = graph.op("RESIZE", operands, shape, dtype, attribute("Resize", mode=kind))
    if not bilinear:
        return graph, y
    return graph, graph.rescale(y, 1 / n**2)


@case
def resize_nearest(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _resize(rng, False, int(rng.choice([2, 4, 8])), bool(rng.integers(0, 2)))


@u85_case
def resize_nearest_any(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _resize(rng, False, int(rng.integers(2, 7)), bool(rng.integers(0, 2)))


@u85_case
def resize_bilinear(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _resize(rng, True, int(rng.integers(2, 7)), bool(rng.integers(0, 2)))
