"""Which supported nodes may run together.

A partition is called as one: all its inputs before, all its outputs after. Two nodes
may share one only if no path between them leaves it. Each node gets a stage so that
stages never fall along an edge, and rise by one where an edge enters a supported node
from an unsupported one. A path that leaves a stage can then not come back to it, so the
supported nodes of one stage make a partition and no cycle can arise. The number of
stages is the largest number of such entries on any path plus one: no assignment needs
fewer. One pass over nodes and edges forward (as early as possible) and one backward (as
late as possible); the one with fewer partitions wins, the early one on a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def group(
    items: Sequence[Item],
    inputs: Callable[[Item], Sequence[Item]],
    supported: Callable[[Item], bool],
    glued: Mapping[Item, Item] | None = None,
) -> list[list[Item]]:
    """Partitions of the supported items, each in the order of `items`.

    items: a topological order. inputs: direct predecessors (others than `items` are
    ignored). glued: an item that must share the partition of one of its predecessors
    (an element of a tuple with the call that computes it), both supported or neither.
    Time is linear in items and edges.
    """
    glued = glued or {}
    known = set(items)
    sources = {item: [s for s in inputs(item) if s in known] for item in items}
    good = {item: supported(item) for item in items}
    early: dict[Item, int] = {}
    for item in items:
        stage = 0
        for source in sources[item]:
            enters = good[item] and not good[source]
            stage = max(stage, early[source] + (1 if enters else 0))
        early[item] = stage
    last = max(early.values(), default=0)
    late = dict.fromkeys(items, last)
    for item in reversed(items):
        for source in sources[item]:
            enters = good[item] and not good[source]
            late[source] = min(late[source], late[item] - (1 if enters else 0))
        if item in glued:
            late[glued[item]] = min(late[glued[item]], late[item])
    for item, owner in glued.items():
        late[item] = late[owner]
    if not _valid(items, sources, good, late):
        late = early
    by_early, by_late = _collect(items, good, early), _collect(items, good, late)
    return by_late if len(by_late) < len(by_early) else by_early


def _valid(
    items: Sequence[Item],
    sources: Mapping[Item, Sequence[Item]],
    good: Mapping[Item, bool],
    stage: Mapping[Item, int],
) -> bool:
    """Whether gluing left every edge's rule intact."""
    return all(
        stage[item] >= stage[source] + (1 if good[item] and not good[source] else 0)
        for item in items
        for source in sources[item]
    )


def _collect(
    items: Sequence[Item], good: Mapping[Item, bool], stage: Mapping[Item, int]
) -> list[list[Item]]:
    groups: dict[int, list[Item]] = {}
    for item in items:
        if good[item]:
            groups.setdefault(stage[item], []).append(item)
    return [groups[key] for key in sorted(groups)]
