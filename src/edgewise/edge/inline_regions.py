"""Regions under `torch.no_grad` or a switched-off autocast become part of the graph.

Exports keep such a region as a graph of its own, called by a higher-order operator. Neither
changes what is computed here. Autocast that is on does: it is refused, unless it is to bfloat16 and
the program is about to be computed in float32.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from edgewise.edge.graph import calls, erase_dead, inherit_meta, is_getitem
from edgewise.edge.node_errors import at_node
from edgewise.errors import InvalidGraphError

_SET_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast


def inline_regions(
    program: ExportedProgram, source: torch.nn.Module, upcasts: bool = False
) -> bool:
    """Inlines all regions of the program, whose graph modules are attributes of `source`.

    upcasts: whether bfloat16 is computed in float32 (`edge.upcast`), so that there is nothing to
    cast.
    """
    changed = _inline(program.graph, source, program.graph_module, upcasts)
    if changed:
        erase_dead(program.graph)
        program.graph_module.delete_all_unused_submodules()
    return changed


def _inline(graph: Graph, owner: torch.nn.Module, home: GraphModule, upcasts: bool) -> bool:
    """Bodies of control flow inside of a region move to `home`, which holds the whole graph."""
    changed = False
    for node in calls(graph):
        if node.target not in (_SET_GRAD, _AUTOCAST):
            continue
        region, inputs = _region(node, upcasts)
        assert isinstance(region, Node)
        inner = owner.get_submodule(str(region.target))
        assert isinstance(inner, GraphModule)
        body = copy.deepcopy(inner.graph)  # the user's program stays as it is
        _inline(body, inner, home, upcasts)
        _rehouse(body, inner, home)
        _replace(graph, node, body, inputs)
        changed = True
    return changed


def _region(node: Node, upcasts: bool) -> tuple[Any, tuple[Any, ...]]:
    """The attribute that holds the region's graph, and the region's inputs."""
    if node.target is _SET_GRAD:
        return node.args[1], node.args[2:]
    _, dtype, enabled, _, region, *inputs = node.args
    if enabled and not (upcasts and dtype == torch.bfloat16):
        hint = f"model.to({dtype}) or .half() before torch.export"
        if dtype == torch.bfloat16:
            hint += ", or to_edge_transform_and_lower with a partitioner"
        raise InvalidGraphError(
            f"{at_node(node)} autocast must be off in an export; got {dtype}; try {hint}"
        )
    return region, tuple(inputs)


def _rehouse(graph: Graph, inner: GraphModule, home: GraphModule) -> None:
    for node in graph.nodes:
        if node.op != "get_attr" or not hasattr(inner, str(node.target)):
            continue  # or one that is in `home` already
        number = 0
        while hasattr(home, f"{node.target}_{number}"):
            number += 1
        name = f"{node.target}_{number}"
        setattr(home, name, getattr(inner, str(node.target)))
        node.target = name


def _replace(graph: Graph, node: Node, inner: Graph, inputs: tuple[Any, ...]) -> None:
    given = iter(inputs)
    env: dict[Node, Any] = {}
    results: Any = ()
    with graph.inserting_before(node):
        for old in inner.nodes:
            if old.op == "placeholder":
                env[old] = next(given)
            elif old.op == "output":
                results = torch.fx.node.map_arg(old.args[0], env.__getitem__)
            else:
                env[old] = graph.node_copy(old, env.__getitem__)
                inherit_meta(env[old], node)
    if not isinstance(results, (tuple, list)):
        node.replace_all_uses_with(results)
    for user in list(node.users):
        assert is_getitem(user)
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)
