"""Causal attention over a symbolic number of tokens, spelt with a mask that is added.

A backend that needs the causal mask as a constant cannot have it where only the run knows
how long the sequence is. Where it would take the attention with a computed mask, that is
computed before, once for each pair of lengths:

    mask = where(arange(keys) <= arange(queries)[:, None], 0, -inf)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import (
    arguments,
    call,
    calls,
    dims_of,
    erase_dead,
    fake,
    is_static,
    replace,
)
from edgewise.edge.program import Constants, fake_mode
from edgewise.edge.provenance import forget
from edgewise.edge.resolve_symbolic_shapes import SizeMaker

aten = torch.ops.aten
_attention = aten.scaled_dot_product_attention.default


def make_causal_masks(program: ExportedProgram, keep: Callable[[Node], bool]) -> bool:
    """Rewrites attention nodes that `keep` answers for only then. Returns whether it modified."""
    wanted = [n for n in calls(program.graph) if _is_candidate(n) and not keep(n)]
    if not wanted:
        return False
    constants = Constants(program)
    inputs = [n for n in program.graph.nodes if n.op == "placeholder" and n not in constants]
    maker = _MaskMaker(program, SizeMaker(program.graph, inputs))
    changed = False
    for node in wanted:
        mask = maker.mask(node)
        if mask is None:
            continue
        named = arguments(node)
        args = (*(named[k] for k in ("query", "key", "value")), mask, named["dropout_p"], False)
        options = {k: named[k] for k in ("scale", "enable_gqa")}
        with program.graph.inserting_before(node):
            other = call(program.graph, _attention, args, node, fake(node), **options)
        if keep(other):
            forget(node)
            replace(node, other)
            changed = True
        else:
            program.graph.erase_node(other)
    erase_dead(program.graph)
    return changed


def _is_candidate(node: Node) -> bool:
    if node.target is not _attention:
        return False
    named = arguments(node)
    lengths = (fake(named["query"]).shape[-2], fake(named["key"]).shape[-2])
    return bool(named["is_causal"]) and named["attn_mask"] is None and not is_static(lengths)


class _MaskMaker:
    def __init__(self, program: ExportedProgram, sizes: SizeMaker) -> None:
        self._graph = program.graph
        self._mode = fake_mode(program)
        self._sizes = sizes
        self._made: dict[Any, Node] = {}

    def mask(self, node: Node) -> Node | None:
        """The mask of a node, put before it; None if its lengths are not the inputs' sizes."""
        named = arguments(node)
        lengths: list[Any] = [fake(named[k]).shape[-2] for k in ("query", "key")]
        dtype = fake(node).dtype
        key = (*dims_of(lengths), dtype)
        if key not in self._made:
            rows, columns = (x if isinstance(x, int) else self._sizes.make(x) for x in lengths)
            if rows is None or columns is None:
                return None
            with self._graph.inserting_before(node):
                self._made[key] = self._compute(node, rows, columns, dtype)
        return self._made[key]

    def _compute(self, like: Node, rows: Any, columns: Any, dtype: torch.dtype) -> Node:
        row = self._call(like, aten.arange.default, rows)
        row = self._call(like, aten.unsqueeze.default, row, 1)
        column = self._call(like, aten.arange.default, columns)
        allowed = self._call(like, aten.le.Tensor, column, row)
        mask = self._call(like, aten.where.Scalar, allowed, 0.0, -math.inf)
        if fake(mask).dtype != dtype:
            mask = self._call(like, aten._to_copy.default, mask, dtype=dtype)
        return mask

    def _call(self, like: Node, op: Any, *args: Any, **options: Any) -> Node:
        values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        with self._mode:
            value = op(*values, **options)
        return call(self._graph, op, args, like, value, **options)
