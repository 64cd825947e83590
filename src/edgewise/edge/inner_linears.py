"""Linear layers inside of composite operators that were decomposed.

    linear(x, w, b)  <-  addmm(b, x, permute(w, [1, 0]))
                     <-  add(view(mm(x, permute(w, [1, 0]))), b)

Torch decomposes a recurrent layer to products. Where a backend keeps linear layers whole, those
are made again, so that they read the weights as the program holds them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

from edgewise.edge.graph import fake, inherit_meta

aten = torch.ops.aten

_PRODUCTS = {aten.mm.default, aten.addmm.default}
_MERGED = {*_PRODUCTS, aten.permute.default, aten.add.Tensor}
"""What a linear layer that is whole again leaves behind."""


def with_linears(made: list[Node], keep: Callable[[Node], bool]) -> list[Node]:
    """The nodes that a composite operator became, with its linear layers whole where somebody
    keeps such: a recurrent layer's, step by step, read the weights as they are."""
    linears: dict[Node, Node] = {}
    for node in made:
        linear = _linear(node) if node.target in _PRODUCTS and node.args[-1] in made else None
        if linear is None:
            continue
        if keep(linear):
            node.replace_all_uses_with(linear)
            linears[node] = linear
            _take_bias(linear, keep)
        else:
            node.graph.erase_node(linear)
    nodes = [new for node in made for new in (node, linears.get(node)) if new is not None]
    for node in reversed(nodes):
        if linears and not node.users and node.target in _MERGED:
            node.graph.erase_node(node)
    return [node for node in nodes if not node._erased]


def _linear(product: Node) -> Node | None:
    """A new node behind a product with the transpose of [n, k], and maybe [n] added; else None."""
    *bias, source, turned = product.args
    is_transpose = isinstance(turned, Node) and turned.target is aten.permute.default
    if not is_transpose or product.kwargs or any(fake(b).dim() != 1 for b in bias):  # type: ignore[arg-type]
        return None
    assert isinstance(turned, Node)
    graph = product.graph
    with graph.inserting_after(product):
        linear = graph.call_function(aten.linear.default, (source, turned.args[0], *bias))
    inherit_meta(linear, product)
    linear.meta["val"] = product.meta["val"]
    return linear


def _take_bias(linear: Node, keep: Callable[[Node], bool]) -> None:
    """[n] that is added behind a view of the result becomes the layer's own."""
    view = next(iter(linear.users))
    total = next(iter(view.users), None)
    if len(linear.args) == 3 or view.target is not aten.view.default or total is None:
        return
    if len(linear.users) > 1 or len(view.users) > 1 or total.target is not aten.add.Tensor:
        return
    first, bias = total.args
    if first is not view or total.kwargs or not isinstance(bias, Node) or bias.op != "placeholder":
        return
    width = fake(linear).shape[-1]
    if list(fake(bias).shape) != [width] or fake(view).shape[-1] != width:
        return
    plain = linear.args
    linear.args = (*plain, bias)
    if keep(linear):
        total.replace_all_uses_with(view)
    else:
        linear.args = plain
