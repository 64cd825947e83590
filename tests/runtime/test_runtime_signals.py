"""Signals are heard while a method runs for long."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.runtime import Method, Runtime

ROUNDS = 90_000_000
"""More than a minute's work, below the most that a loop may take."""


class Count(nn.Module):
    def forward(self, n: torch.Tensor) -> torch.Tensor:
        (count,) = torch._higher_order_ops.while_loop(
            lambda i: i < n, lambda i: (i + 1,), (torch.zeros((), dtype=torch.int64),)
        )
        return count


class Stopped(Exception):
    """What a handler of a program's own raises."""


@pytest.fixture(scope="module")
def count() -> Method:
    example = (torch.tensor(3),)
    program = edgewise.compile(Count(), example, verbose=False)
    return Runtime.get().load_program(program.buffer).load_method("forward")


@pytest.fixture
def alarm() -> Iterator[threading.Timer]:
    """Sends SIGINT to this process a little after it is started."""
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    yield timer
    timer.cancel()
    timer.join()
    signal.signal(signal.SIGINT, before)


def stop(*_: object) -> None:
    raise Stopped("enough")


@pytest.mark.parametrize(
    ("handler", "raised"),
    [(signal.default_int_handler, KeyboardInterrupt), (stop, Stopped)],
    ids=["KeyboardInterrupt", "an exception of the program's"],
)
def test_a_loop_hears_ctrl_c(
    count: Method,
    alarm: threading.Timer,
    handler: object,
    raised: type[BaseException],
) -> None:
    signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    alarm.start()
    with pytest.raises(raised):
        count.execute([np.array(ROUNDS)])
    assert count.execute([np.array(5)])[0] == 5


def test_a_handler_that_raises_nothing_ends_nothing(count: Method, alarm: threading.Timer) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    alarm.start()
    rounds = 300_000
    while not heard:
        assert count.execute([np.array(rounds)])[0] == rounds
    assert heard == [signal.SIGINT]
