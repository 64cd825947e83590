"""Topological orders of random graphs, and of programs whose partitions need each other."""

from __future__ import annotations

from graphlib import CycleError
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgewise.partition.ordering import topological

Graph = dict[int, tuple[int, ...]]
DIAMOND = {0: (1, 2), 1: (3,), 2: (1, 3), 3: ()}
"""0 reads 1 and 2; 2 reads 1, too: a sibling that waits is no cycle."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Acyclic, given in any order: inputs may come after what reads them."""
    size = draw(st.integers(1, 12))
    ranks = draw(st.permutations(range(size)))
    return {
        item: tuple(
            draw(st.lists(st.sampled_from([o for o in range(size) if ranks[o] < ranks[item]])))
            if ranks[item]
            else ()
        )
        for item in range(size)
    }


@given(graphs())
@example(DIAMOND)
def test_each_item_once_and_after_its_inputs(graph: Graph) -> None:
    order = topological(list(graph), graph.__getitem__)
    assert sorted(order) == sorted(graph)
    place = {item: i for i, item in enumerate(order)}
    assert all(place[s] < place[item] for item, sources in graph.items() for s in sources)


@given(graphs())
def test_what_is_in_order_stays_as_it_is(graph: Graph) -> None:
    order = topological(list(graph), graph.__getitem__)
    assert topological(order, graph.__getitem__) == order


@given(graphs(), st.data())
def test_a_cycle_is_told(graph: Graph, data: st.DataObject) -> None:
    order = topological(list(graph), graph.__getitem__)
    first = data.draw(st.integers(0, len(order) - 1))
    last = data.draw(st.integers(first, len(order) - 1))
    chain = order[first : last + 1]
    for item, source in zip(chain, [*chain[1:], chain[0]], strict=True):
        graph[item] = (*graph[item], source)
    with pytest.raises(CycleError) as failure:
        topological(list(graph), graph.__getitem__)
    cycle = failure.value.args[1]
    assert cycle[0] == cycle[-1]
    assert all(
        before in graph[after] or after in graph[before] for before, after in pairwise(cycle)
    )


def test_inputs_from_elsewhere_are_ignored() -> None:
    assert topological(["b", "a"], {"a": ["x"], "b": ["a", "y"]}.__getitem__) == ["a", "b"]
