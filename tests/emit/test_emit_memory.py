"""Memory plans: no overlap of live tensors, aligned, and the check that says so."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.emit import (
    Block,
    ExecutorchBackendConfig,
    MemoryPlanningConfig,
    plan_memory,
)
from edgewise.emit.memory import check_plan
from edgewise.errors import EmitError


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    found = []
    for key in range(draw(st.integers(0, 14))):
        first = draw(st.integers(-1, 12))
        size = draw(st.one_of(st.integers(0, 40), st.sampled_from([64, 1000, 4096])))
        found.append(Block(key, size, first, draw(st.integers(first, 13))))
    return found


@settings(max_examples=300)
@given(blocks(), st.sampled_from([1, 4, 16, 64]))
def test_plan(requests: list[Block], alignment: int) -> None:
    plan = plan_memory(requests, alignment)
    assert set(plan.offsets) == {b.key for b in requests}
    assert plan.lower_bound <= plan.size <= plan.total
    assert plan.size % alignment == 0
    for block in requests:
        start = plan.offsets[block.key]
        assert start % alignment == 0
        assert start >= 0
        assert start + block.size <= plan.size
    # Independently of check_plan: at each moment no byte has two owners.
    for now in range(-1, 14):
        alive = sorted(
            (plan.offsets[b.key], b.size) for b in requests if b.first <= now <= b.last and b.size
        )
        for (start, size), (other, _) in pairwise(alive):
            assert start + size <= other


def test_plan_is_a_function_of_the_requests() -> None:
    requests = [Block(i, 16 * (1 + i % 5), i, i + 3) for i in range(20)]
    assert plan_memory(requests) == plan_memory(list(requests))


PLANS: dict[str, tuple[list[Block], int, int]] = {
    # requests | bytes of the arena | lower bound
    "nothing": ([], 0, 0),
    "one after the other share": ([Block("a", 64, 0, 1), Block("b", 64, 2, 3)], 64, 64),
    "alive at once do not": ([Block("a", 64, 0, 2), Block("b", 64, 2, 3)], 128, 128),
    "a chain of three uses two places": ([Block(i, 32, i, i + 1) for i in range(3)], 64, 64),
    "rounded up": ([Block("a", 1, 0, 0), Block("b", 17, 0, 0)], 48, 48),
    "no bytes still have a place": ([Block("a", 0, 0, 0), Block("b", 0, 0, 0)], 32, 32),
    "a gap is filled": (
        [
            Block("low", 32, 0, 9),
            Block("gap", 64, 0, 2),
            Block("high", 96, 0, 9),
            Block("late", 48, 3, 9),
        ],
        192,
        192,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_known_plans(name: str) -> None:
    requests, size, bound = PLANS[name]
    plan = plan_memory(requests)
    assert (plan.size, plan.lower_bound) == (size, bound)
    assert f"arena {size:,} B for {len(requests)} tensors" in str(plan)


PLANTED: dict[str, tuple[list[Block], dict[str, int], str]] = {
    "the same place": (
        [Block("a", 16, 0, 1), Block("b", 16, 1, 2)],
        {"a": 0, "b": 0},
        r"live tensors must not overlap; got b at 0 and a at 0",
    ),
    "one inside the other": (
        [Block("a", 64, 0, 5), Block("b", 16, 2, 3)],
        {"a": 0, "b": 32},
        "got b at 32 and a at 0",
    ),
    "by one byte": (
        [Block("a", 17, 0, 1), Block("b", 16, 0, 1)],
        {"a": 0, "b": 16},
        "must not overlap",
    ),
    "with one that began long before": (
        [Block("a", 16, 0, 9), Block("b", 16, 1, 2), Block("c", 16, 4, 5)],
        {"a": 0, "b": 16, "c": 0},
        "got c at 0 and a at 0",
    ),
    "misaligned": (
        [Block("a", 16, 0, 1)],
        {"a": 8},
        "offsets must be multiples of 16; got 8 for a",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str) -> None:
    requests, offsets, text = PLANTED[name]
    with pytest.raises(EmitError, match=text):
        check_plan(requests, offsets, 16)


def test_check_lets_good_plans_pass() -> None:
    check_plan([Block("a", 16, 0, 1), Block("b", 16, 2, 3)], {"a": 0, "b": 0}, 16)
    check_plan([Block("a", 16, 0, 1), Block("b", 16, 1, 3)], {"a": 0, "b": 16}, 16)


@pytest.mark.parametrize("value", [0, -16, 3, 24])
def test_alignments_are_powers_of_two(value: int) -> None:
    with pytest.raises(ValueError, match=f"alignment must be a power of two; got {value}"):
        MemoryPlanningConfig(alignment=value)
    with pytest.raises(ValueError, match="segment_alignment must be a power of two"):
        ExecutorchBackendConfig(segment_alignment=value)
