"""Attention in steps, each of which can be quantized."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from edgewise.edge.graph import arguments, inherit_meta

aten = torch.ops.aten


def split_attention(model: GraphModule) -> bool:
    """Puts products and a softmax in the place of attention. Returns whether it modified.

    Attention with a causal flag, a mask of booleans, dropout or shared heads stays whole.
    """
    graph = model.graph
    changed = False
    for node in list(graph.nodes):
        if node.target is aten.scaled_dot_product_attention.default and _is_plain(node):
            with graph.inserting_before(node):
                made = _steps(graph, node)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            changed = True
    if changed:
        model.recompile()
    return changed


def _is_plain(node: Node) -> bool:
    args = arguments(node)
    mask = args["attn_mask"]
    if args["is_causal"] or args["enable_gqa"] or args["dropout_p"]:
        return False
    return mask is None or mask.meta["val"].is_floating_point()


def _steps(graph: Graph, node: Node) -> Node:
    args = arguments(node)
    query, key = args["query"], args["key"]

    def step(target: Any, *operands: Any) -> Node:
        made = graph.call_function(target, operands)
        inherit_meta(made, node)
        made.meta["val"] = target(*(o.meta["val"] if isinstance(o, Node) else o for o in operands))
        return made

    scale = args["scale"]
    if scale is None:
        scale = 1 / math.sqrt(query.meta["val"].shape[-1])
    turned = step(aten.transpose.int, key, -2, -1)
    scores = step(aten.mul.Tensor, step(aten.matmul.default, query, turned), scale)
    if args["attn_mask"] is not None:
        scores = step(aten.add.Tensor, scores, args["attn_mask"])
    weights = step(aten.softmax.int, scores, -1)
    return step(aten.matmul.default, weights, args["value"])
