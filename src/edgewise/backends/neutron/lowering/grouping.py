"""Which clusters may run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from graphlib import CycleError

from torch.fx import Graph, Node

from edgewise.backends.neutron.lowering.quantized import Cluster
from edgewise.edge.graph import is_call, is_size, op_name
from edgewise.partition.grouping import group
from edgewise.partition.ordering import topological
from edgewise.partition.spec import Refusal
from edgewise.partition.work import macs

Unit = Node | Cluster


def partitions(
    graph: Graph,
    found: Sequence[Cluster],
    accepted: Callable[[Cluster], bool],
    refuse: Callable[[Cluster, Refusal], None],
) -> list[list[Cluster]]:
    """The accepted clusters, in groups. Nodes outside of them keep them apart.

    A cluster runs at once. Of those that need each other's results, through floating-point values
    in one and quantized ones in the other, the one with the least work is given to `refuse`, and
    is no longer one of the accepted.
    """
    clusters = [cluster for cluster in found if accepted(cluster)]
    items = [n for n in graph.nodes if is_call(n) and not is_size(n)]
    while True:
        owner = {n: cluster for cluster in clusters for n in cluster.all_nodes}
        read = _inputs(items, owner)
        try:
            ordered = topological(list(read), read.__getitem__)
        except CycleError as cycle:
            loop: list[Unit] = cycle.args[1]
            least = min((u for u in loop if isinstance(u, Cluster)), key=_work)
            refuse(least, _needs_itself(least, loop))
            clusters.remove(least)
            continue
        joined = group(ordered, read.__getitem__, lambda unit: isinstance(unit, Cluster))
        return [[u for u in members if isinstance(u, Cluster)] for members in joined]


def _inputs(items: Sequence[Node], owner: dict[Node, Cluster]) -> dict[Unit, list[Unit]]:
    """What each unit reads directly, without itself."""
    read: dict[Unit, dict[Unit, None]] = {}
    for node in items:
        unit = owner.get(node, node)
        sources = (owner.get(s, s) for s in node.all_input_nodes)
        read.setdefault(unit, {}).update((s, None) for s in sources if s is not unit)
    return {unit: list(sources) for unit, sources in read.items()}


def _work(cluster: Cluster) -> int:
    return sum(macs(n) for n in cluster.nodes)


def _needs_itself(cluster: Cluster, loop: Sequence[Unit]) -> Refusal:
    other = next((u for u in loop if u is not cluster), cluster)
    node = other if isinstance(other, Node) else (other.nodes or other.all_nodes)[0]
    return Refusal(
        "what lies between quantizations runs at once",
        f"a path that leaves it and comes back, through {op_name(node)} ({node.name})",
        "a quantization of the value that both read",
    )
