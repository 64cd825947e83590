"""Operators on the bits of integers, and on booleans."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import within
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Refused,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import BOOL, INT8, INT16, INT32, Tensor
from edgewise.backends.ethosu.operators.selection import NO_BOOL
from edgewise.backends.ethosu.operators.shape import sizes
from edgewise.edge.graph import dtype_name, fake
from edgewise.operators.arguments import reduced_dims
from edgewise.partition.spec import Refusal

aten = torch.ops.aten
_U85 = ("U85",)


def _operand(to: Lowering, given: Any, like: Tensor) -> Tensor:
    if isinstance(given, Node):
        return to.plain(given)
    return to.b.number(int(given), like, like.dtype)


def _bitwise(name: str) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        first = to.plain(node.all_input_nodes[0])
        kind = "LOGICAL" if first.dtype == BOOL else "BITWISE"
        if name == "NOT":
            return to.b.unary(f"{kind}_NOT", first)
        a, b = (_operand(to, args[k], first) for k in ("self", "other"))
        if a.dtype != b.dtype:
            raise Refused(Refusal("operands of one type", f"{a.dtype}, {b.dtype}"))
        return to.b.binary(f"{kind}_{name}", a, b)

    return lower


for _name in ("and", "or", "xor", "not"):
    _packet = getattr(aten, f"bitwise_{_name}")
    define(
        f"bitwise_{_name}",
        (_packet.default,) if _name == "not" else (_packet.Tensor, _packet.Scalar),
        _bitwise(_name.upper()),
        only=_U85,
        why="others have no such operations",
        reads=ANY,
        bounds=within(0, 0),
    )


def _left(to: Lowering, node: Node, args: Args) -> Tensor:
    """In 32 bits, at their upper end: what a narrower type cuts off is cut off there."""
    b, t = to.b, to.plain(args["self"])
    above = _BITS[INT32] - _BITS[t.dtype]
    wide = _as_int32(to, t)
    bits = _count(to, args["other"], wide)
    if above:
        bits = b.binary("ADD", bits, b.number(above, bits))
    made = b.binary("LOGICAL_LEFT_SHIFT", wide, bits)
    return b.rescale(made, [2.0**-above], t.dtype) if above else made


def _right(to: Lowering, node: Node, args: Args) -> Tensor:
    b, t = to.b, to.plain(args["self"])
    wide = _as_int32(to, t)
    if to.family == "U85":
        wide, bits = b.aligned([wide, _count(to, args["other"], wide)])
        dims = [max(m, n) for m, n in zip(wide.dims, bits.dims, strict=True)]
        made = b.tosa.add(
            "ARITHMETIC_RIGHT_SHIFT", [wide, bits], dims, INT32, wide.order, round=False
        )
        return made if t.dtype == INT32 else b.rescale(made, [1.0], t.dtype)
    if t.dtype == INT32:
        return _halved(to, wide, int(args["other"]), INT32)
    # By as many bits for all, once numbers that are shifted by fewer are moved to the left.
    most = _BITS[t.dtype] - 1
    bits = _count(to, args["other"], wide)
    moved = b.binary("LOGICAL_LEFT_SHIFT", wide, b.binary("SUB", b.number(most, bits), bits))
    return _halved(to, moved, most, t.dtype)


def _halved(to: Lowering, t: Tensor, times: int, dtype: str) -> Tensor:
    """floor(t / 2**times): a rescale, which rounds halves up, of what is half of that less."""
    if times == 0:
        return t
    half = 2 ** (times - 1)
    t = to.b.binary("MAXIMUM", t, to.b.number(half - 2**31, t))
    return to.b.rescale(to.b.binary("SUB", t, to.b.number(half, t)), [2.0**-times], dtype)


_BITS = {INT8: 8, INT16: 16, INT32: 32}


def _as_int32(to: Lowering, t: Tensor) -> Tensor:
    if t.dtype not in _BITS:
        raise Refused(Refusal("integers of 8, 16 or 32 bits", t.dtype))
    return t if t.dtype == INT32 else to.b.rescale(t, [1.0], INT32)


def _count(to: Lowering, given: Any, like: Tensor) -> Tensor:
    """By how many bits: int32."""
    if not isinstance(given, Node):
        return to.b.number(int(given), like)
    if given in to.constants:
        return to.b.const(to.constants.tensor(given).numpy(), INT32)
    return _as_int32(to, to.plain(given))


def _few_bits(q: Ask) -> str | None:
    other, kind = q.args["other"], fake(q.node).dtype
    if kind not in (torch.int8, torch.int16, torch.int32):
        return dtype_name(kind)
    if isinstance(other, Node):
        if fake(other).dtype != kind:
            return f"{fake(other).dtype} for {kind}"
        left = q.node.target is aten.bitwise_left_shift.Tensor
        alone = kind == torch.int32 and not left and q.target.family != "U85"
        return f"a tensor of int32 on {q.target.name}" if alone else None
    return None if 0 <= int(other) < torch.iinfo(kind).bits else f"{other} of {kind}"


_FEW_BITS = Constraint(
    "signed integers by a number of bits that they have; to the right of int32 by one number, "
    "except on U85",
    _few_bits,
)
for _name, _lower in (("left", _left), ("right", _right)):
    _packet = getattr(aten, f"bitwise_{_name}_shift")
    define(
        f"bitwise_{_name}_shift",
        (_packet.Tensor_Scalar, _packet.Tensor),
        _lower,
        (_FEW_BITS,),
        reads=ANY,
        bounds=within(0, 0),
    )


def _reduced(operator: str) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        t = to.plain(args["self"])
        if t.dtype != BOOL:
            raise Refused(Refusal("booleans", t.dtype))
        for dim in reduced_dims(args.get("dim"), t.rank):
            t = to.b.reduce(operator, t, dim)
        return to.b.reshape(t, sizes(node))

    return lower


for _name in ("any", "all"):
    _packet = getattr(aten, _name)
    define(
        _name,
        (_packet.default, _packet.dim, _packet.dims),
        _reduced(f"REDUCE_{_name.upper()}"),
        only=_U85,
        why=NO_BOOL,
        reads=ANY,
        bounds=within(0, 0),
    )
