"""From when to when each value of a method needs its memory, jumps included.

Instructions are numbered in the order of the file. A value lives from its first use to its
last. Two things change that:

- Loops. What is written before a loop and read in it is read again in the next round, and what
  is written in a loop and read after it may come from an earlier round: both live as long as
  the loop.
- Values that share memory (`share`): the results of two branches, and the value that stands for
  either of them afterwards. They live as one, from the first of them to the last.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgewise.emit.memory import Block

FOREVER = 1 << 60


class Lifetimes:
    """Collects uses while a method is emitted."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._shares: dict[int, int] = {}
        self._loops: list[tuple[int, int]] = []

    def use(self, value: int, instruction: int) -> None:
        """The instruction reads or writes the value; FOREVER: it is read after the method."""
        self._first[value] = min(instruction, self._first.get(value, instruction))
        self._last[value] = max(instruction, self._last.get(value, instruction))

    def loop(self, first: int, last: int) -> None:
        """The instructions from `first` to the jump back, `last`, both included."""
        self._loops.append((first, last))

    def share(self, value: int, other: int) -> None:
        """Both get the same memory."""
        self._shares[self.home(value)] = self.home(other)

    def home(self, value: int) -> int:
        """The value whose memory this one takes: itself, unless it shares another's."""
        while value in self._shares and self._shares[value] != value:
            value = self._shares[value]
        return value

    def blocks(self, sizes: Mapping[int, int], end: int) -> list[Block]:
        """One request for each block of memory.

        sizes: bytes by value; end: the number of instructions.
        """
        members: dict[int, list[int]] = {}
        for value in sizes:
            members.setdefault(self.home(value), []).append(value)
        used: dict[int, list[int]] = {}
        for value in self._first:
            used.setdefault(self.home(value), []).append(value)
        blocks = []
        for home, values in members.items():
            found = used.get(home, [])
            first = min((self._first[v] for v in found), default=0)
            last = max((self._last[v] for v in found), default=end)
            first, last = self._through_loops(first, last)
            blocks.append(Block(home, max(sizes[v] for v in values), first, min(last, end)))
        return blocks

    def _through_loops(self, first: int, last: int) -> tuple[int, int]:
        # Inner loops first: what they prolong may reach further into the outer ones.
        for start, stop in sorted(self._loops, key=lambda loop: loop[1] - loop[0]):
            if first < start <= last < stop:
                last = stop
            elif start < first <= stop < last:
                first = start
        return first, last
