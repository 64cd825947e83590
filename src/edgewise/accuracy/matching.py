"""Which node of the float export a node of a program to be lowered computes the same as."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.graph import module_path
from edgewise.quantize.patterns import BATCH_NORMS

_EXPORTED = "ExportedProgram.module()"
QUANTIZING = frozenset({"quantized_decomposed", "torchao"})
"""Namespaces of operators that only change how a value is written."""


def match(program: Graph, reference: Graph) -> dict[Node, Node]:
    """Nodes of `reference` by nodes of `program`; only pairs of one operator and rank.

    A PT2E graph names the nodes of the float export that it came from; of any other, calls
    are matched by module, operator and order, where both have as many.
    """
    by_name = {n.name: n for n in reference.nodes if n.op == "call_function"}
    by_location = _by_location(reference.nodes)
    found: dict[Node, Node] = {}
    for location, nodes in _by_location(program.nodes).items():
        theirs = by_location.get(location, [])
        for index, node in enumerate(nodes):
            named = by_name.get(_float_name(node))
            if named is None and len(theirs) == len(nodes):
                named = theirs[index]
            if named is not None and base_name(named) == base_name(node) and _alike(node, named):
                found[node] = named
    return _past_batch_norms(found)


def base_name(node: Node) -> str:
    """The operator without overload, namespace and mark of being in place: `relu`."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[-1].rstrip("_")
    return str(getattr(node.target, "__name__", node.target))


def namespace(node: Node) -> str:
    """`aten` for ATen's operators; empty for what is no operator."""
    return node.target.namespace if isinstance(node.target, torch._ops.OpOverload) else ""


def _by_location(nodes: Iterable[Node]) -> dict[tuple[str, str], list[Node]]:
    locations = defaultdict(list)
    for node in nodes:
        if node.op == "call_function" and namespace(node) not in QUANTIZING:
            locations[module_path(node), base_name(node)].append(node)
    return locations


def _float_name(node: Node) -> str:
    for source in _sources(node.meta.get("from_node") or ()):
        if source.pass_name == _EXPORTED:
            return str(source.name)
    return ""


def _sources(sources: Iterable[Any]) -> Iterator[Any]:
    """The innermost first."""
    for source in sources:
        yield from _sources(source.from_node)
        yield source


def _alike(one: Node, other: Node) -> bool:
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b)
    return a.dim() == b.dim()


def _past_batch_norms(found: dict[Node, Node]) -> dict[Node, Node]:
    """PT2E folds batch normalisation into the convolution, which then computes its result."""
    kept = set(found.values())
    for node, wanted in found.items():
        users = list(wanted.users)
        if len(users) == 1 and users[0].target in BATCH_NORMS and users[0] not in kept:
            found[node] = users[0]
    return found
