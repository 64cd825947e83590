"""Memory planning: where each tensor of a method lies in one arena.

Tensors that live at the same time get disjoint memory; others may share. Greedy by
size: the largest tensor is placed first, each at the lowest offset that no tensor with
an overlapping lifetime covers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from edgewise.errors import EmitError


@dataclass(frozen=True)
class Block:
    """A request: `size` bytes from instruction `first` to instruction `last`, both included."""

    key: Hashable
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """offsets: bytes from the arena's start, by key. size: of the arena. lower_bound: the
    most bytes alive at once; no plan can be smaller."""

    offsets: Mapping[Hashable, int]
    size: int
    lower_bound: int
    total: int

    def __str__(self) -> str:
        return (
            f"arena {self.size:,} B for {len(self.offsets)} tensors of {self.total:,} B "
            f"(at most {self.lower_bound:,} B alive at once)"
        )


def plan_memory(blocks: Sequence[Block], alignment: int = 16) -> MemoryPlan:
    """A checked plan. EmitError if the plan were to overlap (a defect of this function)."""
    placed: list[tuple[int, int, Block]] = []
    offsets: dict[Hashable, int] = {}
    for block in sorted(blocks, key=lambda b: (-b.size, b.first)):
        size = _align(block.size, alignment)
        offset = 0
        for start, end, other in placed:
            if other.last < block.first or block.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        offsets[block.key] = offset
        insort(placed, (offset, offset + size, block), key=lambda p: p[0])
    check_plan(blocks, offsets, alignment)
    size = max((end for _, end, _ in placed), default=0)
    total = sum(_align(b.size, alignment) for b in blocks)
    return MemoryPlan(offsets, size, _most_alive(blocks, alignment), total)


def check_plan(blocks: Sequence[Block], offsets: Mapping[Hashable, int], alignment: int) -> None:
    """Raises EmitError if a tensor is misaligned or two live ones overlap."""
    ordered = sorted(blocks, key=lambda b: b.first)
    alive: list[Block] = []
    for block in ordered:
        start = offsets[block.key]
        if start % alignment:
            raise EmitError(
                f"[memory plan] offsets must be multiples of {alignment}; "
                f"got {start} for {block.key}"
            )
        alive = [b for b in alive if b.last >= block.first]
        for other in alive:
            begin = offsets[other.key]
            if start < begin + other.size and begin < start + block.size:
                raise EmitError(
                    f"[memory plan] live tensors must not overlap; got {block.key} at {start} and "
                    f"{other.key} at {begin}"
                )
        alive.append(block)


def _most_alive(blocks: Sequence[Block], alignment: int) -> int:
    events: dict[int, int] = {}
    for block in blocks:
        size = _align(block.size, alignment)
        events[block.first] = events.get(block.first, 0) + size
        events[block.last + 1] = events.get(block.last + 1, 0) - size
    alive = most = 0
    for time in sorted(events):
        alive += events[time]
        most = max(most, alive)
    return most


def _align(size: int, alignment: int) -> int:
    return -(-max(size, 1) // alignment) * alignment
