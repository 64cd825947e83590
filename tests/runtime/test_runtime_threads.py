"""Programs and methods under several threads, and the GIL."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.runtime import Method, Runtime, load


def test_one_method_from_many_threads(add: Method, x: np.ndarray) -> None:
    def run(i: int) -> bool:
        (y,) = add.execute([x + i, x])
        return bool((y == 2 * x + i).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(500)))


def test_programs_and_methods_at_once(
    add_pte: bytes, two_methods_pte: bytes, delegated_pte: bytes, x: np.ndarray
) -> None:
    both = Runtime.get().load_program(two_methods_pte)
    add = Runtime.get().load_program(add_pte).load_method("forward")
    delegated = Runtime.get().load_program(delegated_pte)
    calls = [
        (both.load_method("encode"), lambda x: [x], lambda x: x + 1),
        (both.load_method("decode"), lambda x: [x], lambda x: x * 2),
        (both.load_method("encode"), lambda x: [x], lambda x: x + 1),
        (add, lambda x: [x, x], lambda x: x + x),
        (delegated.load_method("forward"), lambda x: [x, x], lambda x: x + x),
        (delegated.load_method("forward"), lambda x: [x, x], lambda x: x + x),
    ]

    def run(i: int) -> bool:
        method, inputs, expected = calls[i % len(calls)]
        given = x + np.float32(i)
        (y,) = method.execute(inputs(given))
        return bool((y == expected(given)).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(600)))


def test_loading_at_once(two_methods_pte: bytes, x: np.ndarray) -> None:
    shared = load(two_methods_pte)

    def run(i: int) -> bool:
        own = load(two_methods_pte)
        return bool((own.encode(x) == x + 1).all() and (shared.decode(x) == 2 * x).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(40)))


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """A thread keeps the GIL until it gives it up by itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


def test_execute_releases_the_gil(make_pte: Any, no_forced_switches: None) -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = x * x + x
            return x

    method = (
        Runtime.get()
        .load_program(make_pte(Chain(), (torch.zeros(1 << 20),), partitioner=None))
        .load_method("forward")
    )
    x = np.zeros(1 << 20, np.float32)
    count = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0)  # gives the GIL back

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        # Were the GIL kept, the other thread could never run between the two readings.
        for _ in range(20):
            before = count
            method.execute([x])
            if count > before:
                break
        else:
            pytest.fail("no other thread ran during execute")
    finally:
        stop.set()
        thread.join()
