"""Backends in Python. The file under test is an XNNPACK one under another backend's name:
its payload means nothing here."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from edgewise.runtime import (
    BackendError,
    Error,
    InvalidArgumentError,
    Method,
    Runtime,
    register_backend,
)

pytestmark = pytest.mark.matrix

numbers = itertools.count()


@pytest.fixture
def load_with(delegated_pte: bytes) -> Callable[[Any], Method]:
    """A method whose only delegate a new backend runs."""

    def load(factory: Any) -> Method:
        name = f"PythonBack{next(numbers):04}"
        assert len(name) == len("XnnpackBackend")
        register_backend(name, factory)
        data = delegated_pte.replace(b"XnnpackBackend", name.encode())
        return Runtime.get().load_program(data).load_method("forward")

    return load


def running(run: Callable[[list[Any]], Sequence[Any]]) -> Any:
    return lambda payload, compile_specs, named_data: run


def test_runs(load_with: Any, x: np.ndarray) -> None:
    seen = {}

    def factory(payload: bytes, compile_specs: dict[str, bytes], named_data: Any) -> Any:
        seen.update(payload=payload, compile_specs=compile_specs, named_data=named_data)

        def run(arguments: list[np.ndarray]) -> list[np.ndarray]:
            a, b, _ = arguments
            return [np.asfortranarray(10 * a + b)]

        return run

    method = load_with(factory)
    assert len(seen["payload"]) == method.metadata.delegates[0].payload_bytes
    assert isinstance(seen["compile_specs"], dict)
    with pytest.raises(Error):
        seen["named_data"]("no such key")
    for i in range(3):
        (y,) = method.execute([x + i, x])
        np.testing.assert_array_equal(y, 11 * x + 10 * i)
    del method
    gc.collect()
    with pytest.raises(BackendError, match="afterwards"):
        seen["named_data"]("no such key")


def test_registration(load_with: Any) -> None:
    load_with(running(lambda arguments: arguments[:1]))
    registry = Runtime.get().backend_registry
    name = max(n for n in registry.registered_backend_names if n.startswith("PythonBack"))
    assert registry.is_available(name)
    with pytest.raises(InvalidArgumentError, match=name):
        register_backend(name, print)
    with pytest.raises(TypeError, match="callable"):
        register_backend("NotCallable", 3)  # type: ignore[arg-type]


def fail(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("factory", "message", "cause"),
    [
        (lambda *_: fail(OSError("no device")), "OSError: no device", OSError),
        (lambda *_: 3, "must return a callable; got int", None),
        (lambda: 3, "TypeError", TypeError),
        (running(lambda a: fail(KeyError("x"))), "KeyError: 'x'", KeyError),
        (running(lambda a: 3), "sequence of arrays", TypeError),
        (running(lambda a: ["text"]), "output 0.*got str", InvalidArgumentError),
        (running(lambda a: [a[0].astype("f8")]), "output 0.*float32.*float64", None),
        (running(lambda a: [a[0][0]]), "output 0.*rank 1", None),
        (running(lambda a: [a[0].T]), r"output 0.*\[3, 2\]", None),
        (running(lambda a: a + a), "3 arguments in all; got 6", None),
    ],
)
def test_failures(
    load_with: Any, x: np.ndarray, factory: Any, message: str, cause: type[Exception] | None
) -> None:
    with pytest.raises(BackendError, match=message) as caught:
        load_with(factory).execute([x, x])
    assert type(caught.value.__cause__) is (type(None) if cause is None else cause)


def test_keyboard_interrupt_passes(load_with: Any, x: np.ndarray) -> None:
    method = load_with(running(lambda a: fail(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        method.execute([x, x])


def test_a_call_from_within_is_refused(load_with: Any, x: np.ndarray) -> None:
    method: Method = load_with(running(lambda a: method.execute([x, x])))
    with pytest.raises(BackendError, match="second instance"):
        method.execute([x, x])


def test_two_methods_run_at_the_same_time(load_with: Any, x: np.ndarray) -> None:
    meeting = threading.Barrier(2)

    def run(arguments: list[np.ndarray]) -> list[np.ndarray]:
        meeting.wait(timeout=30)  # only passes while the other method runs, too
        return [arguments[0] + arguments[1]]

    methods = [load_with(running(run)), load_with(running(run))]
    with ThreadPoolExecutor(2) as pool:
        for (y,) in pool.map(lambda method: method.execute([x, x]), methods):
            np.testing.assert_array_equal(y, 2 * x)
