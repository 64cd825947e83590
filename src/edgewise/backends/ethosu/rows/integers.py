"""Arithmetic of 32-bit integers as they are."""

from __future__ import annotations

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import Args, Lowering, Refused
from edgewise.backends.ethosu.lowering.tosa import INT32, Tensor
from edgewise.partition.spec import Refusal


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
