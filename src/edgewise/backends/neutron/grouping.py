"""Which clusters may run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Graph, Node

from edgewise.backends.neutron.quantized import Cluster
from edgewise.edge.graph import is_call, is_size
from edgewise.partition.grouping import group


def partitions(
    graph: Graph, found: Sequence[Cluster], accepted: Callable[[Cluster], bool]
) -> list[list[Cluster]]:
    """The accepted clusters, in groups. Nodes outside of them keep them apart."""
    owner: dict[Node, Any] = {}
    for cluster in found:
        owner.update(dict.fromkeys(cluster.all_nodes, cluster))
    items = [n for n in graph.nodes if is_call(n) and not is_size(n)]
    by_id = {id(owner.get(n, n)): owner.get(n, n) for n in items}
    units = _sorted(list(by_id), by_id, owner)

    def sources(unit: int) -> list[int]:
        return [s for s in _read(by_id[unit], owner) if s != unit]

    def supported(unit: int) -> bool:
        item = by_id[unit]
        return isinstance(item, Cluster) and accepted(item)

    return [[by_id[u] for u in members] for members in group(units, sources, supported)]


def _read(item: Any, owner: dict[Node, Any]) -> dict[int, None]:
    members = item.all_nodes if isinstance(item, Cluster) else [item]
    return dict.fromkeys(id(owner.get(s, s)) for n in members for s in n.all_input_nodes)


def _sorted(units: list[int], by_id: dict[int, Any], owner: dict[Node, Any]) -> list[int]:
    """So that each comes after all that it reads (a cluster's nodes lie apart in the graph)."""
    done: dict[int, None] = {}
    for first in units:
        stack = [first]
        while stack:
            unit = stack[-1]
            read = _read(by_id[unit], owner)
            missing = [s for s in read if s in by_id and s != unit and s not in done]
            if missing and missing[0] not in stack:
                stack.append(missing[0])
                continue
            done[unit] = None
            stack.pop()
    return list(done)
