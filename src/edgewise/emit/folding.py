"""Which operation of a delegate also computes a node that has none of its own.

Backends fold nodes into others: clamps and quantizations into the operation before, what is
done to weights into the one that reads them. A payload names one node for each operation; the
others are found here.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from edgewise.edge.graph import is_call, is_getitem, is_size


def folded(nodes: Sequence[Node], handles: set[int]) -> dict[int, int]:
    """For each call without an operation the number of the node that stands for it.

    nodes: of the partition, in order; handles: numbers of those that have operations. A node
    goes to the first operation before it, or, where it computes from constants alone or from
    what enters the partition, to the first one after it. Without handles there is none.
    """
    number = {node: i for i, node in enumerate(nodes)}
    before: dict[Node, int] = {}
    for i, node in enumerate(nodes):
        if i in handles:
            before[node] = i
            continue
        sources = [before[n] for n in node.all_input_nodes if n in before]
        if sources and is_call(node):
            before[node] = sources[0]
    after: dict[Node, int] = {}
    for node in reversed(nodes):
        found = [after[u] for u in node.users if u in after]
        if number[node] in handles:
            after[node] = number[node]
        elif found:
            after[node] = min(found)
    into = {}
    for i, node in enumerate(nodes):
        if i in handles or not is_call(node) or is_getitem(node) or is_size(node):
            continue
        target = before.get(node, after.get(node))
        if target is not None:
            into[i] = target
    return into
