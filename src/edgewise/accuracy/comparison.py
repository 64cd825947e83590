"""What `compare` returns: a table, JSON, a picture."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgewise.accuracy.advice import advice
from edgewise.accuracy.chart import Point, draw
from edgewise.accuracy.comparison_tables import Table, tables
from edgewise.accuracy.figures import Earlier, Layer, Line, Output
from edgewise.accuracy.tables import aligned, location, short_share
from edgewise.files import write_text

_DRAWN = 8
"""Layers whose histograms are kept."""


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
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of `edgewise.compile` that quantized the program."""
    calibrated: int | None = None
    """With so many batches, if it is known."""
    earlier: Earlier | None = None

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

    def lines(self, limit: int | None = None) -> list[Line]:
        """The source lines whose layers add most noise, the worst first."""
        groups: dict[str, list[Layer]] = {}
        for layer in self.worst():
            groups.setdefault(layer.source, []).append(layer)
        whole = sum(layer.added_noise for layer in self.worst())
        found = []
        for source, layers in groups.items():
            added = sum(layer.added_noise for layer in layers)
            found.append(
                Line(
                    source,
                    tuple(dict.fromkeys(layer.operator for layer in layers)),
                    tuple(dict.fromkeys(layer.module for layer in layers)),
                    len(layers),
                    added,
                    1.0 if added == whole else added / whole,
                )
            )
        return sorted(found, key=lambda line: -line.added_noise)[:limit]

    def advice(self) -> list[str]:
        """What to try, the likeliest first; empty for float programs and for good ones."""
        return advice(self.layers, self.sqnr_db, self.settings, self.calibrated)

    def beside(self, other: Comparison, label: str) -> Comparison:
        """This one, with the decibels of another program of the same model as those before."""
        earlier = Earlier(
            label,
            {output.name: output.sqnr_db for output in other.outputs},
            {layer.name: layer.sqnr_db for layer in other.layers},
        )
        return replace(self, earlier=earlier)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """For notebooks: as `table`."""
        from edgewise import notebook

        parts = [notebook.heading(self.title())]
        parts += [
            (notebook.heading(title) if title else "")
            + notebook.table([head.lstrip("!") for head in heads], rows)
            for title, heads, rows in self.tables(10)
        ]
        tried = self.advice()
        if tried:
            parts += [notebook.heading("What to try"), notebook.table([""], [(x,) for x in tried])]
        return notebook.block(*parts)

    def table(self, limit: int = 10) -> str:
        """The outputs, the layers and the lines that add most noise, and what to try."""

        lines = [self.title()]
        for title, heads, rows in self.tables(limit):
            lines += [title] if title else []
            lines += aligned([tuple(head.lstrip(">!") for head in heads), *rows])
        if self.hook_error > 1e-4:
            lines.append(self.warning())
        tried = self.advice()
        return "\n".join([*lines, *(["what to try"] if tried else []), *(f"  {x}" for x in tried)])

    def tables(self, limit: int) -> list[Table]:
        """Outputs, layers (at most `limit`), values and source lines, for text."""
        return tables(
            self.outputs, self.worst(limit), len(self.layers), self.lines(5), self.earlier
        )

    def warning(self) -> str:
        """What to say where watching changed the outputs."""
        return (
            f"returning values from the middle changed the outputs by "
            f"{short_share(self.hook_error)} of the largest: layers' figures are estimates"
        )

    def title(self) -> str:
        """How many batches were compared."""
        return f"{self.batches} batch{'es' * (self.batches != 1)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data. `sqnr_db` is None where nothing differs. Histograms are those of the layers
        that add most noise."""
        drawn = {layer.name for layer in self.worst(_DRAWN)}
        earlier = None
        if self.earlier is not None:
            earlier = {
                "label": self.earlier.label,
                "outputs": {n: plain({"_db": v})["_db"] for n, v in self.earlier.outputs.items()},
                "layers": {n: plain({"_db": v})["_db"] for n, v in self.earlier.layers.items()},
            }
        return {
            "batches": self.batches,
            "hook_error": self.hook_error,
            "tap_error": self.hook_error,  # the earlier name, for one version
            "settings": dict(self.settings),
            "outputs": [plain(asdict(o)) for o in self.outputs],
            "layers": [
                plain(asdict(layer if layer.name in drawn else replace(layer, histogram=None)))
                for layer in self.layers
            ],
            "lines": [plain(asdict(line)) for line in self.lines()],
            "advice": self.advice(),
            "earlier": earlier,
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


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row for JSON, which has no infinities: a ratio without noise is None, anything else
    that is infinite the largest number."""
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            exact = key.endswith("_db") and value > 0
            row[key] = None if exact else math.copysign(sys.float_info.max, value)
    return row
