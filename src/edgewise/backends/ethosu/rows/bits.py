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
    OpRow,
    Refused,
    add_row,
)
from edgewise.backends.ethosu.lowering.tosa import BOOL, Tensor
from edgewise.backends.ethosu.rows.reductions import dims_reduced
from edgewise.backends.ethosu.rows.selection import NO_BOOL
from edgewise.backends.ethosu.rows.shape import sizes
from edgewise.edge.graph import fake
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
    add_row(
        OpRow(
            f"bitwise_{_name}",
            (_packet.default,) if _name == "not" else (_packet.Tensor, _packet.Scalar),
            _bitwise(_name.upper()),
            only=_U85,
            why="others have no such operations",
            reads=ANY,
            bounds=within(0, 0),
        )
    )


def _shifted(left: bool) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        t = to.plain(args["self"])
        places = to.b.number(int(args["other"]), t, t.dtype)
        if left:
            return to.b.binary("LOGICAL_LEFT_SHIFT", t, places)
        t, places = to.b.aligned([t, places])
        return to.b.tosa.add(
            "ARITHMETIC_RIGHT_SHIFT", [t, places], t.dims, t.dtype, t.order, round=False
        )

    return lower


def _places(q: Ask) -> str | None:
    other, kind = q.args["other"], fake(q.node).dtype
    if isinstance(other, Node):
        return "a tensor"
    if kind not in (torch.int8, torch.int16, torch.int32):
        return str(kind).removeprefix("torch.")
    return None if 0 <= int(other) < torch.iinfo(kind).bits else f"{other} of {kind}"


for _name, _left in (("left", True), ("right", False)):
    add_row(
        OpRow(
            f"bitwise_{_name}_shift",
            (getattr(aten, f"bitwise_{_name}_shift").Tensor_Scalar,),
            _shifted(_left),
            (Constraint("signed integers by a number of places that they have", _places),),
            only=_U85,
            why="others round",
            reads=ANY,
            bounds=within(0, 0),
        )
    )


def _reduced(operator: str) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        t = to.plain(args["self"])
        if t.dtype != BOOL:
            raise Refused(Refusal("booleans", t.dtype))
        for dim in dims_reduced(args.get("dim"), t.rank):
            t = to.b.reduce(operator, t, dim)
        return to.b.reshape(t, sizes(node))

    return lower


for _name in ("any", "all"):
    _packet = getattr(aten, _name)
    add_row(
        OpRow(
            _name,
            (_packet.default, _packet.dim, _packet.dims),
            _reduced(f"REDUCE_{_name.upper()}"),
            only=_U85,
            why=NO_BOOL,
            reads=ANY,
            bounds=within(0, 0),
        )
    )
