"""Attention that computes with its heads in place, where the model's code moves them.

Models of `transformers` move heads before tokens (`transpose(1, 2)`), rotate queries and keys, and
attention over a cache needs tokens before heads again. `move_transposes` takes a transpose past the
operators between, until it meets the other one and both go.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

__all__ = ["move_transposes"]

aten = torch.ops.aten

_ELEMENTWISE = {aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.neg.default}
_ALONG_DEPTH = {aten.slice.Tensor: 1, aten.cat.default: 1}
"""Where their dimension is given."""


def move_transposes(program: ExportedProgram) -> bool:
    """Returns whether it modified. Values are the same to the bit.

    Requires: operators of the export, before they are decomposed.
    """
    graph = program.graph
    moved = False
    for node in list(graph.nodes):
        if _is_transpose(node) and _is_transpose(node.args[0]):
            node.replace_all_uses_with(node.args[0].args[0])
            moved = True
        elif _keeps_heads(node):
            _past(node)
            moved = True
    graph.eliminate_dead_code()
    return moved


def _past(node: Node) -> None:
    """The operator on what its operands are transposes of, then the transpose."""
    graph = node.graph
    with graph.inserting_before(node):

        def before(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [before(one) for one in value]
            if not isinstance(value, Node):
                return value
            if _is_transpose(value):
                return value.args[0]
            other = graph.call_function(aten.unsqueeze.default, (value.args[0], 2))
            other.meta = {**value.meta, "val": value.meta["val"].transpose(1, 2)}
            return other

        args: Any = tuple(before(value) for value in node.args)
        target: Any = node.target
        inner = graph.call_function(target, args, dict(node.kwargs))
        inner.meta = {**node.meta, "val": node.meta["val"].transpose(1, 2)}
        outer = graph.call_function(aten.transpose.int, (inner, 1, 2))
        outer.meta = dict(node.meta)
    node.replace_all_uses_with(outer)


def _keeps_heads(node: Node) -> bool:
    """Whether it treats each row [depth] by itself, and some operand is a transpose."""
    operands = node.all_input_nodes
    if node.op != "call_function" or not any(map(_is_transpose, operands)):
        return False
    if not all(_is_transpose(one) or _is_for_all_heads(one) for one in operands):
        return False
    if node.target in _ALONG_DEPTH:
        index = _ALONG_DEPTH[node.target]
        dim = node.args[index] if len(node.args) > index else 0
        return dim in (3, -1) and all(map(_is_transpose, operands))
    return node.target in _ELEMENTWISE


def _is_transpose(node: Any) -> bool:
    if not isinstance(node, Node) or node.target is not aten.transpose.int:
        return False
    dims = {dim % 4 for dim in node.args[1:] if isinstance(dim, int)}
    return node.meta["val"].dim() == 4 and dims == {1, 2}


def _is_for_all_heads(node: Node) -> bool:
    """[B, S, depth] with a dimension for heads put in."""
    return (
        node.target is aten.unsqueeze.default
        and node.args[1] in (1, -3)
        and node.meta["val"].dim() == 4
    )
