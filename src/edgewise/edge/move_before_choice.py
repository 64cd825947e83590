"""Padding and reshaping go before the choice of a scale that is made at run time.

    convolution(pad(dequantize(quantize(x, *choose(x)), ...)))
    convolution(dequantize(quantize(pad(x), *choose(pad(x))), ...))

compute the same: the choice reads the least and the largest number, and 0. The second is what
backends take whole. Such nodes come from the one spelling of convolutions: of images without
a batch, and of even sizes that keep the image's ("same").

Requires: one spelling (`normalize`). Ensures: a convolution reads activations that are quantized
at run time directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import call, calls, erase_dead, fake, is_getitem, replace
from edgewise.edge.program import fake_mode

aten = torch.ops.aten

_CHOOSE = (
    "quantized_decomposed.choose_qparams.tensor",
    "quantized_decomposed.choose_qparams_symmetric.tensor",
)
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.tensor"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.tensor"


def move_before_choice(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    changed = False
    for node in list(calls(program.graph)):
        if _is_on_the_way(node):
            with fake_mode(program):
                changed |= _move(node)
    if changed:
        erase_dead(program.graph)
    return changed


def _moves(node: Node) -> bool:
    if node.target is aten.constant_pad_nd.default:
        return len(node.args) < 3 or bool(node.args[2] == 0)
    return node.target in (aten.unsqueeze_copy.default, aten.unsqueeze.default)


def _is_on_the_way(node: Node) -> bool:
    """Whether only convolutions read the node, or further ones that read like it."""
    return _moves(node) and all(
        user.target is aten.convolution.default or _is_on_the_way(user) for user in node.users
    )


def _move(node: Node) -> bool:
    dequantize = node.args[0]
    if not isinstance(dequantize, Node) or str(dequantize.target) != _DEQUANTIZE:
        return False
    quantize = dequantize.args[0]
    choose = _chooser(dequantize)
    if not isinstance(quantize, Node) or str(quantize.target) != _QUANTIZE or choose is None:
        return False
    x = quantize.args[0]
    if _chooser(quantize) is not choose or choose.args[0] is not x or not isinstance(x, Node):
        return False
    graph = node.graph
    with graph.inserting_before(node):
        moved = call(graph, node.target, (x, *node.args[1:]), node, fake(node), **node.kwargs)
        chosen = _like(choose, moved)
        items = {
            item: call(graph, item.target, (chosen, item.args[1]), item, item.meta["val"])
            for item in (*dequantize.args[1:3], *quantize.args[1:3])
            if isinstance(item, Node)
        }
        integers = _like(
            quantize, moved, items, fake(node).new_empty(fake(node).shape, dtype=_of(quantize))
        )
        made = _like(dequantize, integers, items, fake(node))
    replace(node, made)
    return True


def _of(node: Node) -> torch.dtype:
    return fake(node).dtype


def _like(old: Node, first: Node, items: dict[Node, Node] | None = None, val: Any = None) -> Node:
    """The same call of another first operand, with other scales."""
    rest = [(items or {}).get(a, a) if isinstance(a, Node) else a for a in old.args[1:]]
    value = old.meta["val"] if val is None else val
    return call(old.graph, old.target, (first, *rest), old, value, **old.kwargs)


def _chooser(node: Node) -> Node | None:
    """What finds the scale by which the node quantizes or dequantizes, when the program runs."""
    scale, zero = node.args[1:3]
    if not isinstance(scale, Node) or not isinstance(zero, Node):
        return None
    if not is_getitem(scale) or not is_getitem(zero) or scale.args[0] is not zero.args[0]:
        return None
    source = scale.args[0]
    return source if isinstance(source, Node) and str(source.target) in _CHOOSE else None


__all__ = ["move_before_choice"]
