"""What is in flight: accesses of DMA transfers and kernels that were started but not awaited."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Access
from edgewise.backends.ethosu.simulator.stream import Command, Target


class InFlight:
    """Kernels wait for kernels by themselves (BLOCKDEP); all else waits by a command.

    A queue that is full makes the next command wait for the oldest.
    """

    def __init__(self, target: Target) -> None:
        self._limits = (target.max_outstanding_dma, target.max_outstanding_kernels)
        self._dma: deque[tuple[Command, Sequence[Access]]] = deque()
        self._kernels: deque[tuple[Command, Sequence[Access]]] = deque()

    def wait_dma(self, left: int) -> None:
        _shorten(self._dma, left)

    def wait_kernels(self, left: int) -> None:
        _shorten(self._kernels, left)

    def start_dma(self, command: Command, accesses: Sequence[Access]) -> None:
        _shorten(self._dma, self._limits[0] - 1)
        _check(accesses, self._dma, "DMA_WAIT")
        _check(accesses, self._kernels, "KERNEL_WAIT")
        self._dma.append((command, accesses))

    def start_kernel(self, command: Command, accesses: Sequence[Access]) -> None:
        _shorten(self._kernels, self._limits[1] - 1)
        _check(accesses, self._dma, "DMA_WAIT")
        self._kernels.append((command, accesses))


def _shorten(queue: deque[tuple[Command, Sequence[Access]]], left: int) -> None:
    while len(queue) > left:
        queue.popleft()


def _check(
    accesses: Sequence[Access], queue: deque[tuple[Command, Sequence[Access]]], wait: str
) -> None:
    for command, others in queue:
        for access in accesses:
            for other in others:
                if access.conflicts(other):
                    raise NpuError(
                        f"a {wait} comes before a command that touches what is in flight; "
                        f"got {access} while {command} at {command.offset:#x} has a {other}"
                    )
