"""What `compare` returns: a table, JSON, a picture."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgewise.accuracy.chart import Point, draw
from edgewise.accuracy.tables import aligned, location, short_db, short_share
from edgewise.files import write_text


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


@dataclass(frozen=True)
class Comparison:
    """A lowered program, run natively, next to the float model."""

    outputs: list[Output]
    layers: list[Layer]
    batches: int
    unmatched: list[str] = field(default_factory=list)
    """Nodes of the program that no node of the float export was found for."""
    hook_error: float = 0.0
    """By how much returning values from the middle changed the outputs, relative to the
    largest. Layers' figures are only as good as that; outputs' do not depend on it."""

    @property
    def tap_error(self) -> float:
        """Deprecated: the earlier name of `hook_error`."""
        warnings.warn("tap_error is now hook_error", DeprecationWarning, stacklevel=2)
        return self.hook_error

    @property
    def sqnr_db(self) -> float:
        """The worst output's."""
        return min(output.sqnr_db for output in self.outputs)

    def worst(self, limit: int | None = None) -> list[Layer]:
        """The layers that add most noise, the worst first."""
        lossy = [layer for layer in self.layers if layer.added_noise > 0]
        return sorted(lossy, key=lambda layer: -layer.added_noise)[:limit]

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """For notebooks: the outputs, then the layers that add most noise."""
        from edgewise import notebook

        heads = [">SQNR dB", ">cosine", ">largest error"]
        parts = [
            notebook.heading(f"{self.batches} batch{'es' * (self.batches != 1)}"),
            notebook.table(["output", *heads], [(o.name, *_figures(o)) for o in self.outputs]),
        ]
        worst = self.worst(10)
        if worst:
            rows = [
                (
                    short_share(one.added_noise),
                    *_figures(one),
                    one.operator,
                    one.module or "-",
                    location(one.source),
                )
                for one in worst
            ]
            parts.append(notebook.table([">adds", *heads, "operator", "module", "source"], rows))
        return notebook.block(*parts)

    def table(self, limit: int = 10) -> str:
        """The outputs, then the layers that add most noise."""
        rows = [("output", "SQNR dB", "cosine", "largest error")]
        rows += [(o.name, *_figures(o)) for o in self.outputs]
        lines = [f"{self.batches} batch{'es' * (self.batches != 1)}", *aligned(rows)]
        worst = self.worst(limit)
        if worst:
            lines.append(
                f"layers that add most noise ({len(worst)} of {len(self.layers)}; "
                f"all: to_json, to_svg)"
            )
            heads = ("adds", "SQNR dB", "cosine", "largest error", "operator", "module", "source")
            layers: list[tuple[str, ...]] = [heads]
            for one in worst:
                where = (one.operator, one.module or "-", location(one.source).split(os.sep)[-1])
                layers.append((short_share(one.added_noise), *_figures(one), *where))
            lines += aligned(layers)
        if self.hook_error > 1e-4:
            lines.append(
                f"returning values from the middle changed the outputs by "
                f"{short_share(self.hook_error)} of the largest: layers' figures are estimates"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data. `sqnr_db` is None where nothing differs."""
        return {
            "batches": self.batches,
            "hook_error": self.hook_error,
            "tap_error": self.hook_error,  # the earlier name, for one version
            "outputs": [plain(asdict(o)) for o in self.outputs],
            "layers": [plain(asdict(layer)) for layer in self.layers],
            "unmatched": self.unmatched,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """All of it; also written to `path` if given."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        if path is not None:
            write_text(path, text)
        return text

    def to_svg(self, path: str | Path | None = None) -> str:
        """A picture of the ratio along the layers; also written to `path` if given."""
        worst = {layer.name for layer in self.worst(5)}
        of_module = Counter(layer.module for layer in self.layers)
        points = [
            Point(
                _label(layer, of_module[layer.module] == 1),
                layer.sqnr_db,
                f"{layer.name} ({layer.operator}) {location(layer.source)}",
                layer.name in worst,
            )
            for layer in self.layers
        ]
        points += [Point(f"output {o.name}", o.sqnr_db, "output", False) for o in self.outputs]
        text = draw("Signal-to-quantization-noise ratio by layer", points)
        if path is not None:
            write_text(path, text)
        return text


def _label(layer: Layer, is_alone: bool) -> str:
    """The module; where it has several layers, with the operator."""
    if not layer.module:
        return layer.name
    return layer.module if is_alone else f"{layer.module} {layer.operator}"


def _figures(row: Output | Layer) -> tuple[str, str, str]:
    return short_db(row.sqnr_db), f"{row.cosine:.6f}", f"{row.max_error:.3g}"


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row for JSON, which has no infinities: a ratio without noise is None, anything else
    that is infinite the largest number."""
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            exact = key.endswith("_db") and value > 0
            row[key] = None if exact else math.copysign(sys.float_info.max, value)
    return row
