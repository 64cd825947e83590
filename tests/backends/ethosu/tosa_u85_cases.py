"""Random graphs of what only Ethos-U85 can."""

from __future__ import annotations

import numpy as np
from tosa_cases import conv2d, scales, size, u85_case
from tosa_graph import TosaGraph, attribute
from tosa_value_cases import shapes


def _compare(rng: np.random.Generator, kind: str, name: str) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    first, second = shapes(rng)
    a, b = (graph.input(s, "int32", (-3, 3)) for s in (first, second))
    return graph, graph.op(kind, [a, b], first, "bool", attribute(name))


@u85_case
def equal(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _compare(rng, "EQUAL", "Equal")


@u85_case
def greater(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _compare(rng, "GREATER", "Greater")


@u85_case
def greater_equal(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _compare(rng, "GREATER_EQUAL", "GreaterEqual")


def _bits(
    rng: np.random.Generator, kind: str, name: str, dtype: str, unary: bool = False
) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    first, second = shapes(rng)
    operands = [graph.input(s, dtype) for s in ((first,) if unary else (first, second))]
    return graph, graph.op(kind, operands, first, dtype, attribute(name))


@u85_case
def bitwise_and(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "BITWISE_AND", "BitwiseAnd", "int8")


@u85_case
def bitwise_or(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "BITWISE_OR", "BitwiseOr", "int16")


@u85_case
def bitwise_xor(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "BITWISE_XOR", "BitwiseXor", "int32")


@u85_case
def bitwise_not(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "BITWISE_NOT", "BitwiseNot", "int32", unary=True)


@u85_case
def logical_and(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "LOGICAL_AND", "LogicalAnd", "bool")


@u85_case
def logical_or(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "LOGICAL_OR", "LogicalOr", "bool")


@u85_case
def logical_not(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _bits(rng, "LOGICAL_NOT", "LogicalNot", "bool", unary=True)


@u85_case
def logical_shift_right(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    first, second = shapes(rng)
    operands = [graph.input(first, "int32"), graph.input(second, "int32", (0, 31))]
    values = attribute("LogicalRightShift")
    return graph, graph.op("LOGICAL_RIGHT_SHIFT", operands, first, "int32", values)


@u85_case
def arithmetic_shift_right_plain(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    first, second = shapes(rng)
    operands = [graph.input(first, "int32"), graph.input(second, "int32", (0, 31))]
    values = attribute("ArithmeticRightShift", round=False)
    return graph, graph.op("ARITHMETIC_RIGHT_SHIFT", operands, first, "int32", values)


@u85_case
def divide(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    first, second = shapes(rng)
    operands = [
        graph.input(first, "int32", (-(2**20), 2**20)),
        graph.input(second, "int32", (1, 99)),
    ]
    return graph, graph.op("INTDIV", operands, first, "int32", attribute("IntDiv"))


@u85_case
def select(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    shape, _ = shapes(rng)
    dtype = str(rng.choice(["int8", "int16", "int32"]))
    operands = [graph.input(shape, "bool"), graph.input(shape, dtype), graph.input(shape, dtype)]
    return graph, graph.op("SELECT", operands, shape, dtype, attribute("Select"))


@u85_case
def gather(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    n, k, w, c = size(rng, 4), size(rng, 30), size(rng, 30), size(rng, 40)
    dtype = str(rng.choice(["int8", "int16", "int32"]))
    operands = [graph.input([n, k, c], dtype), graph.input([n, w], "int32", (0, k - 1))]
    return graph, graph.op("GATHER", operands, [n, w, c], dtype, attribute("Gather"))


@u85_case
def scatter(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """The indices are constant: each only once."""
    graph = TosaGraph()
    n, k, c = size(rng, 4), int(rng.integers(4, 30)), size(rng, 40)
    w = int(rng.integers(1, k))
    dtype = str(rng.choice(["int8", "int16", "int32"]))
    index = np.stack([rng.permutation(k)[:w] for _ in range(n)])
    operands = [
        graph.input([n, k, c], dtype),
        graph.const(index, "int32"),
        graph.input([n, w, c], dtype),
    ]
    return graph, graph.op("SCATTER", operands, [n, k, c], dtype, attribute("Scatter"))


@u85_case
def reduce_all(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng, 5), size(rng, 5), size(rng, 5)], "bool")
    axis = int(rng.integers(1, 4))
    shape = [n if i != axis else 1 for i, n in enumerate(graph.shapes[x])]
    return graph, graph.op("REDUCE_ALL", [x], shape, "bool", attribute("ReduceAll", axis=axis))


@u85_case
def reduce_any(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng, 5), size(rng, 5), size(rng, 5)], "bool")
    axis = int(rng.integers(1, 4))
    shape = [n if i != axis else 1 for i, n in enumerate(graph.shapes[x])]
    return graph, graph.op("REDUCE_ANY", [x], shape, "bool", attribute("ReduceAny", axis=axis))


@u85_case
def reverse_channels(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    return graph, graph.op("REVERSE", [x], graph.shapes[x], "int8", attribute("Reverse", axis=3))


@u85_case
def chain(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """A convolution whose result goes through elementwise operators."""
    graph = TosaGraph()
    x = graph.input([1, size(rng, 24), size(rng, 24), size(rng, 40)])
    acc = conv2d(graph, x, size(rng, 40), (1, 1), rng)
    y = graph.rescale(acc, scales(rng, acc, graph, graph.shapes[x][3]), "int32")
    other = graph.rescale(graph.input(graph.shapes[y]), 1.0, "int32")
    y = graph.op("ADD", [y, other], graph.shapes[y], "int32", attribute("Add"))
    y = graph.op("ABS", [y], graph.shapes[y], "int32", attribute("Abs"))
    y = graph.op(
        "MUL", [y, other, graph.const([0], "int8")], graph.shapes[y], "int32", attribute("Mul")
    )
    return graph, graph.rescale(y, 0.01)


@u85_case
def convolution_transposed_output(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng, 12), size(rng, 12), size(rng, 20)])
    acc = conv2d(graph, x, size(rng, 30), (1, 1), rng)
    y = graph.rescale(acc, scales(rng, acc, graph, graph.shapes[x][3]))
    order = [0, *(int(i) + 1 for i in rng.permutation(3))]
    shape = [graph.shapes[y][i] for i in order]
    return graph, graph.op("TRANSPOSE", [y], shape, "int8", attribute("Transpose", perms=order))


@u85_case
def table_int16_wide(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], "int16")
    steps = np.cumsum(rng.integers(-120, 120, 513))
    entries = graph.const(np.clip(steps, -32768, 32767), "int16")
    return graph, graph.op("TABLE", [x, entries], graph.shapes[x], "int32", attribute("Table"))


@u85_case
def chain_of_both(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """The second operand is the one that is chained."""
    graph = TosaGraph()
    x = graph.input([1, size(rng, 24), size(rng, 24), size(rng, 40)])
    acc = conv2d(graph, x, size(rng, 40), (1, 1), rng)
    y = graph.rescale(acc, scales(rng, acc, graph, graph.shapes[x][3]), "int32")
    other = graph.input(graph.shapes[y], "int32", (-999, 999))
    y = graph.op("SUB", [other, y], graph.shapes[y], "int32", attribute("Sub"))
    return graph, graph.op("SUB", [other, y], graph.shapes[y], "int32", attribute("Sub"))


def _sparse(rng: np.random.Generator, dtype: str) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    kernel = [int(k) for k in rng.integers(1, 5, 2)]
    stride = int(rng.integers(1, 3))
    sizes = [k + stride * int(rng.integers(0, 7)) for k in kernel]
    channels = int(rng.choice([4, 16, 20, 64, 144]))
    x = graph.input([1, *sizes, channels], dtype)
    y = conv2d(graph, x, size(rng, 150), kernel, rng, stride=(stride, stride), sparse=True)
    if dtype == "int16":
        return graph, graph.rescale(y, [1e-7] * graph.shapes[y][3], dtype, scale32=False)
    points = kernel[0] * kernel[1] * channels
    return graph, graph.rescale(y, scales(rng, y, graph, points), dtype, output_zp=3)


@u85_case
def convolution_sparse(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _sparse(rng, "int8")


@u85_case
def convolution_sparse_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _sparse(rng, "int16")


@u85_case
def conditional(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    shape, _ = shapes(rng)
    condition = graph.input([1], "bool")
    operands = [graph.input(shape, "int32", (-(2**20), 2**20)) for _ in range(2)]

    def part(kind: str, name: str) -> str:
        def build() -> list[str]:
            inner = [graph.input(shape, "int32") for _ in operands]
            return [graph.op(kind, inner, shape, "int32", attribute(name))]

        return graph.region(build)

    parts = attribute("CondIf", then_graph=part("ADD", "Add"), else_graph=part("SUB", "Sub"))
    return graph, graph.op("COND_IF", [condition, *operands], shape, "int32", parts)


@u85_case
def loop(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Doubles until a counter is seven."""
    graph = TosaGraph()
    shape, _ = shapes(rng)
    operands = [graph.input([1], "int32", (0, 8)), graph.input(shape, "int32", (-(2**20), 2**20))]

    def test() -> list[str]:
        count, _ = graph.input([1], "int32"), graph.input(shape, "int32")
        seven = graph.const([7], "int32")
        return [graph.op("GREATER", [seven, count], [1], "bool", attribute("Greater"))]

    def body() -> list[str]:
        count, x = graph.input([1], "int32"), graph.input(shape, "int32")
        one = graph.const([1], "int32")
        return [
            graph.op("ADD", [count, one], [1], "int32", attribute("Add")),
            graph.op("ADD", [x, x], shape, "int32", attribute("Add")),
        ]

    parts = attribute("WhileLoop", cond_graph=graph.region(test), body_graph=graph.region(body))
    return graph, graph.ops("WHILE_LOOP", operands, [([1], "int32"), (shape, "int32")], parts)[1]
