"""Backends written in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from edgewise.registry import backend_of
from edgewise.runtime import _native

__all__ = ["BackendFactory", "DelegateFunction", "register_backend", "register_own"]

DelegateFunction = Callable[[list[Any]], Sequence[Any]]
BackendFactory = Callable[[bytes, dict[str, bytes], Callable[[str], bytes]], DelegateFunction]


def register_own(names: Iterable[str]) -> None:
    """Registers those of `names` that nobody has registered and an installed backend can run."""
    for name in set(names) - set(_native.backend_names()):
        backend = backend_of(name)
        factory = backend.runtime_factory() if backend is not None else None
        if factory is not None:
            register_backend(name, factory)


def register_backend(name: str, factory: BackendFactory) -> None:
    """Registers a backend that runs the delegates of that id, for the life of the process.

    `factory(payload, compile_specs, named_data)` is called for each delegate when its
    method is loaded. `named_data(key)` gives a blob of the program; it may be called for as
    long as the method lives. The factory returns `run(arguments)`, which is called for each
    execution with copies of the delegate's inputs followed by its outputs (whose contents
    mean nothing; None where memory is not known yet), and returns its outputs only: arrays
    of the type and rank that the program gives, of any strides. They are copied.

    Under `edgewise.profile()`, if `run` has an attribute `profiled`, that is called in its place as
    `run.profiled(arguments, record)`. It does the same and tells what its parts took:
    `record(name, begin, end, nodes=[], counters={})`, with times of `time.monotonic_ns()`,
    positions of the payload's operations, and numbers by name.

    An exception in either becomes a BackendError whose `__cause__` it is.

    Raises:
        InvalidArgumentError: the name is taken.
        TypeError: the factory cannot be called.
    """
    if not callable(factory):
        raise TypeError(f"[register_backend] factory must be callable; got {factory!r}")
    _native.register_backend(name, factory)
