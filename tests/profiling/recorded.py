"""Runs made by hand, for figures that can be worked out on paper."""

from __future__ import annotations

from edgewise.profiling import Event, Instruction, MethodRuns, Part, Run

CONV, RELU = Part("Convolution", (0, 1)), Part("Clamp", (2,))


def run(events: list[Event], begin: int = 0, thread: int = 7) -> Run:
    """A call that takes 100 ns before its first and after its last instruction."""
    end = max(event.end for event in events)
    return Run(thread, begin, end + 100, begin + 100, end, tuple(events))


def method() -> MethodRuns:
    """Two runs of a kernel and a delegate of two operators; in the second all takes twice."""
    runs = []
    for begin, k in ((0, 1000), (100_000, 2000)):
        at = begin + 100
        runs.append(
            run(
                [
                    Event(at, at + 2 * k, 0),
                    Event(at + 3 * k, at + 8 * k, 1, CONV),
                    Event(at + 8 * k, at + 9 * k, 1, RELU),
                    Event(at + 2 * k, at + 10 * k, 1),
                ],
                begin,
            )
        )
    instructions = [Instruction("kernel", "aten::add.out"), Instruction("delegate", "Npu", 0)]
    return MethodRuns("forward", "", instructions, runs)
