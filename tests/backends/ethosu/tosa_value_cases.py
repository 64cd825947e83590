"""Random graphs of operators on single values, and of reductions."""

from __future__ import annotations

import numpy as np
import tosa_serializer as ts
from tosa_cases import case, size, u85_case
from tosa_graph import TosaGraph, attribute

NAN = ts.NanPropagationMode.PROPAGATE


def shapes(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Two shapes, of which the second may be broadcast to the first."""
    first = [1, size(rng), size(rng), size(rng, 40)]
    kind = int(rng.integers(0, 6))
    second = list(first)
    if kind < 4:
        second[kind] = 1
    elif kind == 4:
        second = [1, 1, 1, 1]
    return first, second


def _arithmetic(
    rng: np.random.Generator, kind: str, dtype: str = "int8", constant: bool = False
) -> tuple[TosaGraph, str]:
    """int8 or int16 through int32 and back, as quantized programs have it."""
    graph = TosaGraph()
    first, second = shapes(rng)
    limit = 128 if dtype == "int8" else 1
    a = graph.input(first, dtype)
    limits = np.iinfo(dtype)
    if constant:
        values = rng.integers(limits.min, limits.max, second, endpoint=True)
        b = graph.const(values, dtype)
    else:
        b = graph.input(second, dtype)
    ins = [int(z) for z in rng.integers(-limit, limit, 2)] if limit > 1 else [0, 0]
    shift = 20 if dtype == "int8" else 15
    wide = []
    for x, zp in ((a, ins[0]), (b, ins[1])):
        if kind == "MUL":
            wide.append(graph.rescale(x, 1.0, "int32", input_zp=zp))
        else:
            # Below one half: sums stay within the bits.
            scale = float(rng.choice([0.5, rng.uniform(0.1, 0.5)]))
            wide.append(graph.rescale(x, scale * (1 << shift), "int32", input_zp=zp))
    if rng.integers(0, 2):
        wide = wide[::-1] if kind != "MUL" else wide
    operands = [*wide, graph.const([0], "int8")] if kind == "MUL" else wide
    names = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul"}
    y = graph.op(kind, operands, first, "int32", attribute(names[kind]))
    back = rng.uniform(0.5, 2) / ((1 << shift) if kind != "MUL" else 200 * limits.max / 127)
    return graph, graph.rescale(y, back, dtype, output_zp=ins[0])


@case
def add(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "ADD")


@case
def add_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "ADD", "int16")


@case
def add_constant(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "ADD", constant=True)


@case
def sub(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "SUB")


@case
def sub_constant(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "SUB", constant=True)


@case
def mul(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "MUL")


@case
def mul_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "MUL", "int16")


@case
def mul_constant(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _arithmetic(rng, "MUL", constant=True)


def _plain(
    rng: np.random.Generator,
    kind: str,
    dtype: str,
    name: str,
    *,
    values: tuple[int, int] | None = None,
    second: tuple[int, int] | None = None,
    out: str = "",
    **attributes: object,
) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    a, b = shapes(rng)
    operands = [graph.input(a, dtype, values), graph.input(b, dtype, second or values)]
    if kind == "MUL":
        operands.append(graph.const([0], "int8"))
    return graph, graph.op(kind, operands, a, out or dtype, attribute(name, **attributes))


HALF = (-(1 << 30), 1 << 30)


@case
def add_int32(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(rng, "ADD", "int32", "Add", values=HALF)


@case
def sub_int32(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(rng, "SUB", "int32", "Sub", values=HALF)


@case
def mul_int32(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(rng, "MUL", "int32", "Mul", values=(-(1 << 15), 1 << 15))


def _choice(rng: np.random.Generator, kind: str, name: str, dtype: str) -> tuple[TosaGraph, str]:
    """As quantized programs have it: both sides on one scale, in int32."""
    graph = TosaGraph()
    wide = [
        graph.rescale(graph.input(shape, dtype), float(rng.uniform(0.3, 1)) * 256, "int32")
        for shape in shapes(rng)
    ]
    shape = graph.shapes[wide[0]]
    y = graph.op(kind, wide, shape, "int32", attribute(name, nan_mode=NAN))
    return graph, graph.rescale(y, 1 / 256, dtype)


@case
def minimum(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _choice(rng, "MINIMUM", "Minimum", "int8")


@case
def maximum(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _choice(rng, "MAXIMUM", "Maximum", "int16")


@case
def maximum_int32(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(rng, "MAXIMUM", "int32", "Maximum", nan_mode=NAN)


@case
def shift_right(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(
        rng,
        "ARITHMETIC_RIGHT_SHIFT",
        "int32",
        "ArithmeticRightShift",
        second=(0, 31),
        round=True,
    )


@case
def shift_left(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _plain(
        rng, "LOGICAL_LEFT_SHIFT", "int32", "LogicalLeftShift", values=(-9, 9), second=(0, 26)
    )


def _unary(
    rng: np.random.Generator, kind: str, dtype: str, name: str, **attributes: object
) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], dtype)
    return graph, graph.op(kind, [x], graph.shapes[x], dtype, attribute(name, **attributes))


@case
def absolute(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _unary(rng, "ABS", "int32", "Abs")


@case
def leading_zeros(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _unary(rng, "CLZ", "int32", "Clz")


@case
def negate(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    zps = [graph.const([int(z)], "int8") for z in rng.integers(-128, 128, 2)]
    return graph, graph.op("NEGATE", [x, *zps], graph.shapes[x], "int8", attribute("Negate"))


def _rescale(
    rng: np.random.Generator, source: str, target: str, rounding: str = "single"
) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], source)
    ratio = np.iinfo(target).max / np.iinfo(source).max / 4
    zps = {
        f"{side}_zp": int(rng.integers(-128, 128)) if dtype == "int8" else 0
        for side, dtype in (("input", source), ("output", target))
    }
    scale = min(float(rng.uniform(0.1, 1) * ratio), 2.0**30)
    return graph, graph.rescale(x, scale, target, rounding=rounding, **zps)


@case
def rescale_down(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int32", "int8")


@case
def rescale_down_16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int32", "int16")


@case
def rescale_up(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int8", "int32")


@case
def rescale_8_16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int8", "int16")


@case
def rescale_16_8(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int16", "int8")


@case
def rescale_same(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int8", "int8")


@case
def rescale_twice_rounded(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _rescale(rng, "int32", "int8", "double")


@case
def table(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    entries = graph.const(rng.integers(-128, 128, 256), "int8")
    return graph, graph.op("TABLE", [x, entries], graph.shapes[x], "int8", attribute("Table"))


@case
def several_tables(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    for _ in range(10):
        entries = graph.const(rng.permutation(256) - 128, "int8")
        x = graph.op("TABLE", [x, entries], graph.shapes[x], "int8", attribute("Table"))
    return graph, x


@u85_case
def table_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], "int16")
    steps = np.cumsum(rng.integers(-120, 120, 513))
    entries = graph.const(np.clip(steps, -32768, 32767), "int16")
    y = graph.op("TABLE", [x, entries], graph.shapes[x], "int32", attribute("Table"))
    return graph, graph.rescale(y, 1 / 128, "int16")


def _reduce(
    rng: np.random.Generator, kind: str, name: str, dtype: str, **attributes: object
) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    values = (-(1 << 20), 1 << 20) if dtype == "int32" else None
    x = graph.input([1, size(rng), size(rng), size(rng, 40)], dtype, values)
    axis = int(rng.integers(1, 4))
    shape = [n if i != axis else 1 for i, n in enumerate(graph.shapes[x])]
    return graph, graph.op(kind, [x], shape, dtype, attribute(name, axis=axis, **attributes))


@case
def reduce_sum(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _reduce(rng, "REDUCE_SUM", "ReduceSum", "int32")


@case
def reduce_max(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _reduce(rng, "REDUCE_MAX", "ReduceMax", "int8", nan_mode=NAN)


@case
def reduce_min(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _reduce(rng, "REDUCE_MIN", "ReduceMin", "int8", nan_mode=NAN)


@case
def mean(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """As a mean over a plane is written: wide, summed over each axis, scaled back."""
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng, 40)])
    zp = int(rng.integers(-128, 128))
    _, h, w, c = graph.shapes[x]
    y = graph.rescale(x, 1.0, "int32", input_zp=zp)
    y = graph.op("REDUCE_SUM", [y], [1, 1, w, c], "int32", attribute("ReduceSum", axis=1))
    y = graph.op("REDUCE_SUM", [y], [1, 1, 1, c], "int32", attribute("ReduceSum", axis=2))
    return graph, graph.rescale(y, 1 / (h * w), output_zp=zp)


@case
def argmax(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), int(rng.integers(1, 60))])
    values = attribute("ArgMax", axis=3, nan_mode=NAN)
    return graph, graph.op("ARGMAX", [x], graph.shapes[x][:3], "int32", values)
