"""Backends written in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from edgewise.runtime import _native

__all__ = ["BackendFactory", "DelegateFunction", "provide", "register_backend"]

ON_THE_HOST = {
    "NeutronBackend": "edgewise.backends.neutron.reference",
}
"""By id, the modules whose `factory` runs delegates of other machines on this one."""

DelegateFunction = Callable[[list[Any]], Sequence[Any]]
BackendFactory = Callable[[bytes, dict[str, bytes], Callable[[str], bytes]], DelegateFunction]


def register_backend(name: str, factory: BackendFactory) -> None:
    """Registers a backend that runs the delegates of that id, for the life of the process.

    `factory(payload, compile_specs, named_data)` is called for each delegate when its
    method is loaded. `named_data(key)` gives a blob of the program; it may be called for as
    long as the method lives. The factory returns `run(arguments)`, which is called for each
    execution with copies of the delegate's inputs followed by its outputs (whose contents
    mean nothing; None where memory is not known yet), and returns its outputs only: arrays
    of the type and rank that the program gives, of any strides. They are copied.

    An exception in either becomes a BackendError whose `__cause__` it is.

    Raises:
        InvalidArgumentError: the name is taken.
        TypeError: the factory cannot be called.
    """
    if not callable(factory):
        raise TypeError(f"[register_backend] factory must be callable; got {factory!r}")
    _native.register_backend(name, factory)


def provide(names: Iterable[str]) -> None:
    """Registers what can stand in for backends that are not there, where a delegate needs it."""
    for name in set(names) & ON_THE_HOST.keys() - set(_native.backend_names()):
        register_backend(name, import_module(ON_THE_HOST[name]).factory)
