"""`group` on random graphs: no cycle, as few partitions as possible, linear time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgewise.partition import group


@dataclass(frozen=True)
class Dag:
    """Items are numbers in a topological order; `sources[i]` are smaller numbers."""

    sources: tuple[tuple[int, ...], ...]
    good: tuple[bool, ...]
    glued: tuple[tuple[int, int], ...] = ()

    def partitions(self) -> list[list[int]]:
        return group(
            range(len(self.sources)),
            lambda i: self.sources[i],
            lambda i: self.good[i],
            dict(self.glued),
        )


@st.composite
def dags(draw: st.DrawFn, gluing: bool = False) -> Dag:
    size = draw(st.integers(1, 14))
    sources: list[tuple[int, ...]] = []
    good: list[bool] = []
    glued: list[tuple[int, int]] = []
    for item in range(size):
        candidates = (
            st.lists(st.integers(0, item - 1), max_size=3, unique=True) if item else st.just([])
        )
        sources.append(tuple(draw(candidates)))
        good.append(draw(st.booleans()))
        if gluing and item and draw(st.integers(0, 3)) == 0:
            owner = draw(st.integers(0, item - 1))
            if owner not in dict(glued):
                # An element of a tuple reads that tuple and nothing else.
                glued.append((item, owner))
                sources[item], good[item] = (owner,), good[owner]
    return Dag(tuple(sources), tuple(good), tuple(glued))


def has_cycle(dag: Dag, partitions: Sequence[Sequence[int]]) -> bool:
    """Whether the graph with each partition drawn together into one node has a cycle."""
    unit = {i: ("item", i) for i in range(len(dag.sources))}
    unit |= {i: ("partition", n) for n, members in enumerate(partitions) for i in members}
    edges: dict[object, set[object]] = {u: set() for u in unit.values()}
    for item, sources in enumerate(dag.sources):
        edges[unit[item]] |= {unit[s] for s in sources if unit[s] != unit[item]}
    while True:
        free = [u for u, needs in edges.items() if not needs & edges.keys()]
        if not free:
            return bool(edges)
        for u in free:
            del edges[u]


def fewest(dag: Dag) -> int:
    """Entries from unsupported into supported items on the worst path, plus one if a path
    begins supported: each stretch needs a partition of its own. No grouping has fewer."""
    stretches: list[int] = []
    for item, sources in enumerate(dag.sources):
        best = 1 if dag.good[item] else 0
        for s in sources:
            best = max(best, stretches[s] + (1 if dag.good[item] and not dag.good[s] else 0))
        stretches.append(best)
    return max(stretches, default=0)


@settings(max_examples=300)
@given(dags())
def test_supported_items_are_grouped_once_without_a_cycle_in_order(dag: Dag) -> None:
    partitions = dag.partitions()
    members = [i for p in partitions for i in p]
    assert sorted(members) == [i for i, good in enumerate(dag.good) if good]
    assert all(p == sorted(p) for p in partitions)
    assert not has_cycle(dag, partitions)


@settings(max_examples=300)
@given(dags())
@example(Dag(((), (0,), (1,), ()), (True, False, True, True)))
def test_no_grouping_has_fewer_partitions(dag: Dag) -> None:
    assert len(dag.partitions()) == fewest(dag)


@settings(max_examples=300)
@given(dags(gluing=True))
def test_glued_items_stay_together(dag: Dag) -> None:
    partitions = dag.partitions()
    where = {i: n for n, members in enumerate(partitions) for i in members}
    assert not has_cycle(dag, partitions)
    for item, owner in dag.glued:
        assert where.get(item) == where.get(owner)


def test_linear_in_items_and_edges() -> None:
    """Each item is asked for once, and its inputs once."""
    asked = {"inputs": 0, "supported": 0}
    size = 2000

    def inputs(i: int) -> list[int]:
        asked["inputs"] += 1
        return [j for j in (i - 1, i - 7, i // 2) if 0 <= j < i]

    def supported(i: int) -> bool:
        asked["supported"] += 1
        return i % 5 != 0

    partitions = group(range(size), inputs, supported)
    assert asked == {"inputs": size, "supported": size}
    assert len(partitions) == size // 5


def test_inputs_outside_of_the_items_are_ignored() -> None:
    assert group([1, 2], lambda i: [i - 1, 99], lambda i: True) == [[1, 2]]
    assert group([], lambda i: [], lambda i: True) == []


SHAPES: dict[str, tuple[Dag, list[list[int]]]] = {
    "a diamond around an unsupported item": (
        Dag(((), (0,), (0,), (1, 2)), (True, False, True, True)),
        [[0, 2], [3]],
    ),
    "two inputs that meet late": (
        # A part of the second branch waits, so that it can join what follows the first.
        Dag(((), (0,), (1,), (), (2, 3)), (True, False, True, True, True)),
        [[0, 3], [2, 4]],
    ),
    "nothing supported": (Dag(((), (0,)), (False, False)), []),
    "all supported": (Dag(((), (0,), ()), (True, True, True)), [[0, 1, 2]]),
}


def test_shapes() -> None:
    for name, (dag, expected) in SHAPES.items():
        assert dag.partitions() == expected, name
