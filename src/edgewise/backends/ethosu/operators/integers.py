"""Arithmetic of integers as they are."""

from __future__ import annotations

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import within
from edgewise.backends.ethosu.lowering.quant import TYPES
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Refused,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, INT32, Tensor
from edgewise.edge.graph import dtype_name, fake
from edgewise.partition.spec import Refusal

aten = torch.ops.aten


def integers(to: Lowering, operator: str, args: Args) -> Tensor | None:
    """`a + alpha * b`, or another operator, of 32-bit integers as they are; None if they are
    none."""
    given = args["self"], args["other"]
    first = next((n for n in given if isinstance(n, Node) and n not in to.constants), None)
    if first is None or not isinstance(to.done.get(first), Tensor):
        return None
    like = to.plain(first)
    if like.dtype != INT32:
        return None
    a, b = (_integer(to, n, like) for n in given)
    alpha = int(args.get("alpha", 1))
    if alpha != 1:
        b = to.b.binary("MUL", b, to.b.number(alpha, b))
    return to.b.binary(operator, a, b)


def _integer(to: Lowering, given: object, like: Tensor) -> Tensor:
    if isinstance(given, Node) and given not in to.constants:
        found = to.plain(given)
        if found.dtype != INT32:
            raise Refused(Refusal("operands of one type", f"{INT32}, {found.dtype}"))
        return found
    known = to.constants.tensor(given) if isinstance(given, Node) else torch.tensor(given)
    if known.is_floating_point() or not bool((known == known.int()).all()):
        raise Refused(Refusal("numbers that are integers of 32 bits", f"{given}"))
    return to.b.const(known.numpy(), INT32) if known.dim() else to.b.number(int(known), like)


def _divided(to: Lowering, node: Node, args: Args) -> Tensor:
    """The quotient of integers, cut or rounded down."""
    b, x = to.b, to.plain(args["self"])
    if x.dtype not in (INT8, INT16, INT32):
        raise Refused(Refusal("integers of 8, 16 or 32 bits", x.dtype))
    a = _wide(to, x)
    divisor = args["other"]
    if isinstance(divisor, Node) and divisor not in to.constants:
        other = _wide(to, to.plain(divisor))
    else:
        other = _integer(to, divisor, a)
    made = b.binary("INTDIV", a, other)
    if args["rounding_mode"] == "floor":
        rest = b.binary("SUB", a, b.binary("MUL", made, other))
        # -1 where the signs of rest and divisor differ, which the highest bit says.
        signs = b.binary("BITWISE_XOR", rest, other)
        below = b.tosa.add(
            "ARITHMETIC_RIGHT_SHIFT",
            [signs, b.number(31, signs)],
            signs.dims,
            INT32,
            signs.order,
            round=False,
        )
        some = b.binary("MINIMUM", b.unary("ABS", rest), b.number(1, rest))
        made = b.binary("ADD", made, b.binary("MUL", below, some))
    dtype = TYPES[fake(node).dtype]
    return made if dtype == INT32 else b.rescale(made, [1.0], dtype)


def _wide(to: Lowering, t: Tensor) -> Tensor:
    return t if t.dtype == INT32 else to.b.rescale(t, [1.0], INT32)


def _rounds(q: Ask) -> str | None:
    mode = q.args["rounding_mode"]
    if mode is None or fake(q.node).dtype not in (torch.int8, torch.int16, torch.int32):
        return f"rounding_mode={mode!r} of {dtype_name(fake(q.node).dtype)}"
    return None


define(
    "div_mode",
    (aten.div.Tensor_mode, aten.div.Scalar_mode),
    _divided,
    (Constraint("integers, cut or rounded down", _rounds),),
    only=("U85",),
    why="others have no division",
    reads=ANY,
    bounds=within(0, 0),
)
