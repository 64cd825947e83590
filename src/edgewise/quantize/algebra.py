"""Nodes as products and sums, whatever calls they are spelt with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import attribute, step

aten = torch.ops.aten

_MUL = (aten.mul.Tensor, aten.mul.Scalar)
_DIV = (aten.div.Tensor, aten.div.Scalar)
_ADD = (aten.add.Tensor, aten.add.Scalar)
_SUB = (aten.sub.Tensor, aten.sub.Scalar)
_RSUB = (aten.rsub.Tensor, aten.rsub.Scalar)
PRODUCTS = (*_MUL, *_DIV, aten.neg.default, aten.reciprocal.default)
SUMS = (*_ADD, *_SUB, *_RSUB)


@dataclass(frozen=True)
class Product:
    """A number times powers of nodes."""

    number: float
    powers: Mapping[Node, int]

    def of_one(self) -> Node | None:
        """The node, if there is one alone, once."""
        ((node, power),) = self.powers.items() if len(self.powers) == 1 else ((None, 0),)
        return node if power == 1 else None


@dataclass(frozen=True)
class Sum:
    """A number plus nodes, each with a factor."""

    number: float
    factors: Mapping[Node, float]

    def of_one(self) -> tuple[Node, float] | None:
        """The node and its factor, if there is one alone."""
        return next(iter(self.factors.items())) if len(self.factors) == 1 else None


def product_of(node: Any) -> Product:
    """What is read by others, too, is a node of its own there."""
    number, powers = 1.0, dict[Node, int]()

    def take(value: Any, power: int, top: bool = False) -> None:
        nonlocal number
        known = number_of(value)
        if known is not None:
            number = number * known if power > 0 else number / known if known else float("nan")
            return
        inside = top or len(value.users) == 1
        if inside and value.target in (*_MUL, *_DIV):
            one, other = value.args[:2]
            take(one, power)
            take(other, power if value.target in _MUL else -power)
        elif inside and value.target is aten.neg.default:
            number = -number
            take(value.args[0], power)
        elif inside and value.target is aten.reciprocal.default:
            take(value.args[0], -power)
        elif inside and _whole_power(value):
            powers[value.args[0]] = powers.get(value.args[0], 0) + power * int(value.args[1])
        else:
            powers[value] = powers.get(value, 0) + power

    take(node, 1, top=True)
    return Product(number, powers)


def sum_of(node: Node) -> Sum:
    """As `product_of`."""
    number, factors = 0.0, dict[Node, float]()

    def take(value: Any, factor: float, top: bool = False) -> None:
        nonlocal number
        known = number_of(value)
        if known is not None:
            number += factor * known
            return
        if (top or len(value.users) == 1) and value.target in SUMS:
            args = arguments(value)
            one, other, alpha = args["self"], args["other"], args.get("alpha", 1)
            first, second = {True: (-alpha, 1), False: (1, alpha)}[value.target in _RSUB]
            take(one, factor * first)
            take(other, factor * (-second if value.target in _SUB else second))
            return
        source, scale = scaled_of(value)
        factors[source] = factors.get(source, 0.0) + factor * scale

    take(node, 1.0, top=True)
    return Sum(number, factors)


def number_of(value: Any) -> float | None:
    """Of a number, of a buffer with one element and no dimensions, of zeros like another."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, Node) and value.target is aten.zeros_like.default:
        return 0.0
    if isinstance(value, Node) and value.op == "get_attr":
        module = value.graph.owning_module
        held = attribute(module, str(value.target)) if module is not None else None
        if held is not None and held.dim() == 0 and not isinstance(held, torch.nn.Parameter):
            return float(held)
    return None


def scaled_of(node: Node) -> tuple[Node, float]:
    """A node and a number whose product this is."""
    return list(_scaled(node))[-1]


def times(node: Node, factor: float, like: Node) -> Node:
    """The node times a number, without a product of which nothing is left."""
    for source, scale in _scaled(node):
        if abs(scale * factor - 1) < 1e-6:
            return source
    return step(like, aten.mul.Tensor, source, scale * factor)


def _scaled(node: Node) -> Iterator[tuple[Node, float]]:
    """The node times 1, then what it is a multiple of, and how many times."""
    factor, source = 1.0, node
    while True:
        yield source, factor
        number, below = None, None
        if source.target is aten.neg.default:
            number, below = -1.0, source.args[0]
        elif source.target in _MUL or source.target in _DIV:
            number, below = number_of(source.args[1]), source.args[0]
            if number is None and source.target in _MUL:
                number, below = number_of(source.args[0]), source.args[1]
        if not number or not isinstance(below, Node) or not is_float(below):
            return
        factor = factor / number if source.target in _DIV else factor * number
        source = below


def _whole_power(node: Node) -> bool:
    if node.target is not aten.pow.Tensor_Scalar or not is_float(node.args[0]):
        return False
    return node.args[1] in (2, 3)
