"""What a comparison says of outputs, layers and source lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgewise.accuracy.histogram import Histogram


@dataclass(frozen=True)
class Output:
    """How far one of the program's outputs is from the model's, over all batches."""

    name: str
    """Its position in what the model returns: `0`, or `['logits']`."""
    sqnr_db: float
    """Signal-to-quantization-noise ratio; infinite if every value is the same."""
    cosine: float
    max_error: float


@dataclass(frozen=True)
class Layer:
    """As `Output`, of a value in the middle, in the order of execution."""

    name: str
    """The node's in the float model's export."""
    operator: str
    module: str
    source: str
    sqnr_db: float
    cosine: float
    max_error: float
    added_noise: float
    """Power of the error by that of the signal, less the largest such of what it reads."""
    peak: float = 0.0
    """Largest magnitude of the float model's values by their root mean square."""
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Line:
    """What the layers of a source line add together."""

    source: str
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    layers: int
    added_noise: float
    share: float
    """Of what all layers add."""


@dataclass(frozen=True)
class Earlier:
    """Decibels of another program, made of the same model: rounding alone, say."""

    label: str
    outputs: Mapping[str, float]
    layers: Mapping[str, float]
    """By the layer's name."""
