"""What is inside of delegates' payloads, as far as backends' formats tell. Takes no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgewise.inspect.record import TensorRecord
from edgewise.registry import backend_of


@dataclass(frozen=True)
class PayloadValue:
    """A tensor of a payload's graph."""

    tensor: TensorRecord
    constant: str | None = None
    """Key of the named data that it holds, or a number for data inside of the payload; None
    for what is computed."""
    quantization: str = ""
    """What stored integers mean: "scale 0.02, zero point 3", "32 scales along dimension 0"."""


@dataclass(frozen=True)
class PayloadNode:
    """An operation: numbers of the values that it reads and writes."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    handle: int = -1


@dataclass(frozen=True)
class Payload:
    """A delegate's graph. inputs, outputs: values by the delegate call's arguments."""

    nodes: tuple[PayloadNode, ...]
    values: Mapping[int, PayloadValue]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def open_payload(backend: str, data: bytes | memoryview) -> Payload | None:
    """None for a backend whose payloads are not graphs. ValueError if the bytes are damaged."""
    found = backend_of(backend)
    return found.payload_graph(data) if found is not None else None
