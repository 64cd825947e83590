"""GELU that a model writes out, as the operator.

    x / 2 * (1 + erf(x / sqrt(2)))

in any order of its factors. Backends compute the operator, and no error function.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.graph import call, calls, erase_dead, fake, replace, same_shape

aten = torch.ops.aten

_CLOSE = 3e-6
"""How near numbers must be to be the formula's: 1 / 1.41421 is, too."""


def recognize_gelu(graph: Graph) -> bool:
    """In place; whether there was any."""
    changed = False
    for node in calls(graph):
        if node.target is not aten.erf.default:
            continue
        x, factor = _scaled(node.args[0])
        total = _only_user(node, aten.add.Tensor)
        if x is None or total is None or abs(factor - math.sqrt(0.5)) > _CLOSE:
            continue
        if not _is_one_more(total, node) or (found := _product(total, x)) is None:
            continue
        product, number = found
        with graph.inserting_before(product):
            made = call(graph, aten.gelu.default, (x,), product, fake(product))
            if abs(number - 0.5) > _CLOSE:
                args = (made, number * 2)
                made = call(graph, aten.mul.Tensor, args, product, fake(product))
        replace(product, made)
        changed = True
    if changed:
        erase_dead(graph)
    return changed


def _product(total: Node, x: Node) -> tuple[Node, float] | None:
    """The product of it, x and a number, and the number: a half, if there is one; None if it is
    none."""
    wanted, number, made = True, 1.0, total
    while (above := _only_user(made, aten.mul.Tensor, aten.div.Tensor)) is not None:
        first, second = above.args[:2]
        other = second if first is made else first
        factor = _number(other)
        if above.target is aten.div.Tensor:
            if first is not made or not factor:
                break
            number /= factor
        elif factor is not None:
            number *= factor
        else:
            source, factor = (x, 1.0) if other is x else _scaled(other)
            if source is not x or not wanted:
                break
            wanted, number = False, number * factor
        made = above
        if not wanted and abs(number - 0.5) < _CLOSE:
            break
    is_alike = same_shape(fake(made).shape, fake(x).shape) and fake(made).dtype == fake(x).dtype
    return (made, number) if is_alike and not wanted else None


def _is_one_more(total: Node, node: Node) -> bool:
    others = [_number(one) for one in total.args[:2] if one is not node]
    return others == [1.0] and bool(total.kwargs.get("alpha", 1) == 1)


def _scaled(value: Any) -> tuple[Node | None, float]:
    """A node, and the number that it is multiplied with to give the value."""
    if not isinstance(value, Node):
        return None, 0.0
    if value.target not in (aten.mul.Tensor, aten.div.Tensor):
        return value, 1.0
    first, second = value.args[:2]
    number = _number(second)
    if not isinstance(first, Node) or not number:
        return value, 1.0
    return first, number if value.target is aten.mul.Tensor else 1 / number


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else None


def _only_user(node: Node, *targets: Any) -> Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target in targets else None
