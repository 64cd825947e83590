"""Resolves symbolic shapes: sizes are taken from the program's inputs, each once.

Decompositions leave `sym_size` of intermediate tensors and chains of arithmetic behind.
Where a size is an expression of the inputs' sizes it is computed from these: then no
intermediate tensor is kept for its shape alone, and no partition must end for it.

Requires nothing. Ensures that equal sizes have one node, first in the graph, where their
expressions are sums, products, quotients and remainders of the inputs' sizes.
"""

from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.graph import erase_dead, is_size
from edgewise.edge.program import Constants

aten = torch.ops.aten


def resolve_symbolic_shapes(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    sizes = [n for n in program.graph.nodes if n.op == "call_function" and is_size(n)]
    sizes = [n for n in sizes if isinstance(n.meta["val"], torch.SymInt)]
    if not sizes:
        return False
    maker = SizeMaker(program.graph, _inputs(program))
    changed = False
    for node in sizes:
        made = maker.make(node.meta["val"])
        if made is not None and made is not node:
            node.replace_all_uses_with(made)
            changed = True
    if changed:
        erase_dead(program.graph)
    return changed


def _inputs(program: ExportedProgram) -> list[Node]:
    constants = Constants(program)
    return [n for n in program.graph.nodes if n.op == "placeholder" and n not in constants]


class SizeMaker:
    """Nodes that compute sizes from those of `sources`, put right after these."""

    def __init__(self, graph: Graph, sources: list[Node]) -> None:
        self._graph = graph
        self._made: dict[Any, Node | int] = {}
        self._sources: dict[Any, tuple[Node, int]] = {}
        self._multiples: dict[Any, tuple[Any, int]] = {}
        for node in sources:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._made.setdefault(value.node.expr, node)
                continue
            for dim, size in enumerate(getattr(value, "shape", ())):
                if isinstance(size, torch.SymInt):
                    self._add_source(size.node.expr, (node, dim))
        self._last = sources[-1] if sources else None

    def _add_source(self, expression: Any, dimension: tuple[Node, int]) -> None:
        self._sources.setdefault(expression, dimension)
        factor, rest = expression.as_coeff_Mul()
        if rest.is_Symbol and factor.is_Integer and factor != 1:
            self._multiples.setdefault(rest, (expression, int(factor)))

    def make(self, size: torch.SymInt) -> Node | None:
        """A node for the size, or None if it is no expression of the sources' sizes."""
        expression = size.node.expr
        if not self._reaches(expression):
            return None
        found = self._node(expression)
        return found if isinstance(found, Node) else None

    def _reaches(self, expression: Any) -> bool:
        if any(expression in known for known in (self._made, self._sources, self._multiples)):
            return True
        if isinstance(expression, sympy.Integer):
            return True
        supported = expression.is_Add or expression.is_Mul or _binary(expression) is not None
        if expression.is_Pow:
            power = expression.exp
            supported = isinstance(power, sympy.Integer) and 0 < int(power) <= 4
            return bool(supported) and self._reaches(expression.base)
        return bool(supported) and all(self._reaches(a) for a in expression.args)

    def _node(self, expression: Any) -> Node | int:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if expression not in self._made:
            self._made[expression] = self._compute(expression)
        return self._made[expression]

    def _compute(self, expression: Any) -> Node:
        if expression in self._sources:
            return self._call(aten.sym_size.int, self._sources[expression])
        if expression in self._multiples:
            multiple, factor = self._multiples[expression]
            return self._call(operator.floordiv, (self._node(multiple), factor))
        if expression.is_Pow:
            base = self._node(expression.base)
            return self._fold(operator.mul, [base] * int(expression.exp))
        # Numbers last: `n * 2`, as people write it.
        ordered = sorted(expression.args, key=lambda a: (a.is_Integer, str(a)))
        if expression.is_Add or expression.is_Mul:
            op: Any = operator.add if expression.is_Add else operator.mul
            return self._fold(op, [self._node(a) for a in ordered])
        op = _binary(expression)
        return self._call(op, tuple(self._node(a) for a in expression.args))

    def _fold(self, op: Any, items: list[Node | int]) -> Node:
        result = items[0]
        for item in items[1:]:
            result = self._call(op, (result, item))
        assert isinstance(result, Node)
        return result

    def _call(self, op: Any, args: tuple[Any, ...]) -> Node:
        anchor = self._last
        assert anchor is not None
        with self._graph.inserting_after(anchor):
            node: Node = self._graph.call_function(op, args)
        values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        node.meta["val"] = values[0].shape[args[1]] if op is aten.sym_size.int else op(*values)
        self._last = node
        return node


def _binary(expression: Any) -> Any:
    """The Python operator of a quotient or remainder."""
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

    if isinstance(expression, FloorDiv):
        return operator.floordiv
    return operator.mod if isinstance(expression, (Mod, PythonMod)) else None
