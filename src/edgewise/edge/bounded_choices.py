"""Choices by computed booleans, spelt as bounds.

A backend that computes with floats alone cannot take booleans that are computed from an input, and
so no `where` or `masked_fill` by them. Where it would take minima and maxima, the booleans are made
bounds, once, and the rest is arithmetic:

    where(m, x, y) = max(min(x, where(m, inf, -inf)), min(y, where(m, -inf, inf)))
    where(m, x, c) = max(min(x, where(m, inf, c)), where(m, -inf, c))

Infinities of what is not chosen stay out. Booleans that real inputs and parameters lead to stay:
the backend, which computes with these, would be left and entered again for them all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import (
    arguments,
    call,
    calls,
    erase_dead,
    fake,
    op_name,
    replace,
    same_shape,
    tensors_of,
    value_of,
)
from edgewise.edge.program import Constants
from edgewise.edge.provenance import forget

aten = torch.ops.aten

_FILL = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)
_WHERE = (aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
_EXPANDED = (aten.expand.default, aten.expand_as.default)
_AS = (aten.expand_as.default, aten.view_as.default)
_LIKE = (
    aten.empty_like.default,
    aten.full_like.default,
    aten.new_full.default,
    aten.new_ones.default,
    aten.new_zeros.default,
    aten.ones_like.default,
    aten.zeros_like.default,
)
_FLOATS = (torch.float32, torch.float16)
_MIN, _MAX = aten.minimum.default, aten.maximum.default


def make_choices_bounds(program: ExportedProgram, keep: Callable[[Node], bool]) -> bool:
    """Rewrites choices that `keep` answers for only then. Returns whether it modified."""
    wanted = [
        node
        for node in calls(program.graph)
        if node.target in (*_FILL, *_WHERE) and fake(node).dtype in _FLOATS and not keep(node)
    ]
    if not wanted:
        return False
    constants = Constants(program)
    bounds = _Bounds()
    behind_reals = _behind_reals(program)
    changed = False
    for node in wanted:
        given = _choice(node)
        if (
            given is None
            or _is_in_integers(node)
            or given[0] in constants
            or given[0] in behind_reals
        ):
            continue
        with program.graph.inserting_before(node):
            made = _chosen(node, *given, bounds, constants)
        if made and all(keep(one) for one in made):
            forget(node)
            replace(node, made[-1])
            changed = True
        else:
            for one in made[::-1]:
                program.graph.erase_node(one)
    if bounds.made:
        erase_dead(program.graph)
    return changed


def _choice(node: Node) -> tuple[Node, Any, Any] | None:
    """Booleans, what is chosen where they hold, and elsewhere."""
    named = arguments(node)
    if node.target in _FILL:
        mask, one, other = named["mask"], named["value"], named["self"]
    else:
        mask, one, other = named["condition"], named["self"], named["other"]
    is_mask = isinstance(mask, Node) and fake(mask).dtype == torch.bool
    return (mask, one, other) if is_mask else None


def _is_in_integers(node: Node) -> bool:
    """Whether the program quantizes the choice itself, which is for a processor that chooses."""
    sources = [n for n in node.all_input_nodes if any(t.is_floating_point() for t in tensors_of(n))]
    ends = [op_name(user) for user in node.users]
    starts = [op_name(source) for source in sources]
    return all(".quantize_" in e for e in ends) and all(".dequantize_" in s for s in starts)


def _behind_reals(program: ExportedProgram) -> set[Node]:
    """What real numbers lead to that are computed from inputs or parameters of real numbers; not by
    way of sizes, or of operators with several results, such as topk, which leave the backend."""
    signature = program.graph_signature
    given = {*signature.user_inputs, *signature.inputs_to_parameters}
    derived: set[Node] = set()
    found: set[Node] = set()
    for node in program.graph.nodes:
        is_real = any(t.is_floating_point() for t in tensors_of(node))
        if node.op == "placeholder":
            if is_real and node.name in given:
                derived.add(node)
        elif tensors_of(node):  # not a size
            sources = _read_by(node)
            if not derived.isdisjoint(sources):
                derived.add(node)
            is_one = isinstance(value_of(node), torch.Tensor)
            if is_one and (not found.isdisjoint(sources) or (is_real and node in derived)):
                found.add(node)
    return found


def _read_by(node: Node) -> list[Node]:
    """What it computes with: of some operands the sizes alone matter."""
    if node.target in _LIKE:
        return []
    return node.all_input_nodes[: 1 if node.target in _AS else None]


def _chosen(
    node: Node, mask: Node, one: Any, other: Any, bounds: _Bounds, constants: Constants
) -> list[Node]:
    """The calls that compute it, the result last; none if it is no such choice."""
    kind = fake(node).dtype
    made: list[Node] = []

    def bounded(operator: Any, source: Node, bound: Node) -> Node:
        value = operator(fake(source), fake(bound))
        made.append(call(node.graph, operator, (source, bound), node, value))
        return made[-1]

    while mask.target in _EXPANDED and isinstance(mask.args[0], Node):
        mask = mask.args[0]  # bounds are broadcast
    numbers = [_number(value, constants) for value in (one, other)]
    sources = [v for v, n in zip((one, other), numbers, strict=True) if n is None]
    if not sources or not all([t.dtype for t in tensors_of(v)] == [kind] for v in sources):
        return []  # of another type, or a number that is computed from sizes
    if len(sources) == 2:
        ends = [(math.inf, -math.inf), (-math.inf, math.inf)]
        sides = [
            bounded(_MIN, source, bounds.of(mask, end, node))
            for source, end in zip(sources, ends, strict=True)
        ]
        bounded(_MAX, *sides)
    else:
        (result,) = sources
        for operator, free in ((_MIN, math.inf), (_MAX, -math.inf)):
            end = tuple(free if number is None else number for number in numbers)
            if end != (free, free):
                result = bounded(operator, result, bounds.of(mask, end, node))
    return made if same_shape(fake(made[-1]).shape, fake(node).shape) else []


def _number(value: Any, constants: Constants) -> float | None:
    """Of a number, or a constant of one element; None of others."""
    if isinstance(value, Node) and value in constants and fake(value).numel() == 1:
        value = constants.tensor(value).item()
    return None if isinstance(value, Node) else float(value)


@dataclass
class _Bounds:
    """What lies beside the booleans, made once for all choices by them."""

    made: dict[tuple[Node, tuple[float, ...], torch.dtype], Node] = field(default_factory=dict)

    def of(self, mask: Node, ends: tuple[float, ...], like: Node) -> Node:
        """The first end where the mask holds, the second elsewhere; before all that reads it."""
        graph, kind = like.graph, fake(like).dtype
        key = (mask, ends, kind)
        if key not in self.made:
            empty = fake(like).new_empty(())
            sides = [
                call(graph, aten.full.default, ([], end), like, empty, dtype=kind) for end in ends
            ]
            value = fake(like).new_empty(fake(mask).shape)
            self.made[key] = call(graph, aten.where.self, (mask, *sides), like, value)
        return self.made[key]
