"""What delegates' payloads hold, as graphs. Imports no torch; reads the peer's payloads, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewise.registry import backend_of, backends

Blobs = Mapping[str, memoryview]
"""A program's named data."""


@dataclass(frozen=True)
class DelegateTensor:
    """A value inside a delegate."""

    name: str
    dtype: str
    shape: list[int]
    role: str
    """"input", "output", "constant" or "internal"."""
    quantization: str = ""
    """"per channel of dimension 0", "per tensor, 0.02 and zero point -128"; empty for none."""
    nbytes: int = 0
    """Of a constant in the file; 0 for others."""
    key: str = ""
    """Of a constant: the name of its data in the program, if it has one."""


@dataclass(frozen=True)
class DelegateNode:
    """An operator inside a delegate, in the order of execution."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DelegateGraph:
    """A payload, read. facts: figures that are of no node, by name."""

    format: str
    nodes: list[DelegateNode] = field(default_factory=list)
    tensors: list[DelegateTensor] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def read_payload(backend: str, payload: memoryview, named: Blobs) -> DelegateGraph:
    """The graph of a payload. ValueError if it breaks its format, or the backend is not known."""
    found = backend_of(backend)
    if found is None:
        known = ", ".join(one.delegate_id for one in backends())
        raise ValueError(f"[payload] known are the payloads of {known}; got {backend!r}")
    try:
        return found.read_payload(payload, named)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as cause:
        # Numbers in a damaged payload that point to nothing.
        raise ValueError(f"[{backend}] the payload must be whole; got {cause!r}") from cause
