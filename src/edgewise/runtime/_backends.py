"""Backends of the user's own: written in Python, or loaded from a shared library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from edgewise.registry import BackendFactory, backend_of
from edgewise.runtime import _native

__all__ = [
    "load_backends",
    "register_backend",
    "register_own",
]


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

    Under `edgewise.profile()`, if `run` has an attribute `profiled`, that is called instead, as
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


def load_backends(path: str | Path) -> list[str]:
    """Loads a shared library of C++ backends for the life of the process. Returns their ids.

    Such a library registers them with EDGEWISE_REGISTER_BACKEND of edgewise/backend_library.h.
    Programs that are loaded afterwards run the delegates of these ids.

    Raises:
        NotFoundError: the library cannot be loaded.
        InvalidArgumentError: it registers no backends, or one whose id is taken.
        UnsupportedError: it was built for another release or by another compiler.
    """
    return _native.load_backends(os.fsencode(os.path.abspath(path)))
