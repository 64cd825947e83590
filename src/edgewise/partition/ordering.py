"""Topological orders: each item after all that it reads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def topological(items: Sequence[Item], inputs: Callable[[Item], Sequence[Item]]) -> list[Item]:
    """The items, each after its inputs, otherwise in the order given.

    inputs: direct predecessors; others than `items` are ignored. Of the orders there are it is the
    first by the items' indices (Kahn's algorithm with a heap), in time linear in edges.

    `graphlib.CycleError` if items need each other; its second argument is a cycle, whose first and
    last item are the same one.
    """
    index = {item: i for i, item in enumerate(items)}
    readers: dict[Item, list[Item]] = {item: [] for item in index}
    missing: dict[Item, int] = {}
    for item in index:
        sources = {source for source in inputs(item) if source in index}
        missing[item] = len(sources)
        for source in sources:
            readers[source].append(item)
    ready = [index[item] for item, count in missing.items() if count == 0]
    heapq.heapify(ready)
    by_index = list(index)
    found: list[Item] = []
    while ready:
        item = by_index[heapq.heappop(ready)]
        found.append(item)
        for reader in readers[item]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, index[reader])
    if len(found) != len(index):
        raise _cycle([item for item, count in missing.items() if count], inputs)
    return found


def _cycle(items: Sequence[Item], inputs: Callable[[Item], Sequence[Item]]) -> CycleError:
    known = set(items)
    sorter = TopologicalSorter({item: [s for s in inputs(item) if s in known] for item in items})
    try:
        sorter.prepare()
    except CycleError as cycle:
        return cycle
    raise AssertionError("items that are left over need each other")
