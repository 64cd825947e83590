"""Layers of a comparison at the nodes of a record that compute them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgewise.inspect.record import NodeRecord

_SAME = {"conv1d": "convolution", "conv2d": "convolution", "conv3d": "convolution"}
_SAME.update({"relu6": "hardtanh", "addmm": "linear", "flatten": "view", "reshape": "view"})


class Layers:
    """`Comparison.to_dict()` by module and operator.

    A comparison names nodes of the float export, a record those of the program: decomposed,
    and spelled as backends like it. Of a chain that is one operation ("conv2d batch_norm relu")
    the figures are at its first operator.
    """

    def __init__(self, comparison: Mapping[str, Any]) -> None:
        self._comparison = comparison
        earlier = comparison.get("earlier")
        self._earlier = earlier if isinstance(earlier, Mapping) else {}
        self._waiting: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for layer in comparison.get("layers", ()):
            first = (layer.get("operator") or "").split(" ")[0]
            self._waiting.setdefault(layer.get("module", ""), []).append((_base(first), layer))

    def of(self, node: NodeRecord) -> dict[str, Any] | None:
        """The figures of the node, each layer once, in order; None if there are none."""
        waiting = self._waiting.get(node.module, [])
        names = [_base(o) for o in (node.operator, node.decomposed_from) if o]
        found = next((one for one in waiting if one[0] in names), None)
        if found is None and names and node.module and len(waiting) == 1:
            found = waiting[0]  # a module of one operator, which was spelled otherwise
        if found is None:
            return None
        waiting.remove(found)
        layer = found[1]
        return {
            "db": figure(layer.get("sqnr_db")),
            "added": figure(layer.get("added_noise")),
            "error": figure(layer.get("max_error")),
            "exact": figure(layer.get("sqnr_db")) is None,
            "was": self._was("layers", layer.get("name")),
        }

    def _was(self, of: str, name: Any) -> float | None:
        """Decibels of the program before."""
        told = self._earlier.get(of)
        return figure(told.get(name)) if isinstance(told, Mapping) else None

    def summary(self) -> dict[str, Any] | None:
        """Outputs and layers for the chart; None without a comparison."""
        if not self._comparison:
            return None
        return {
            "batches": figure(self._comparison.get("batches")) or 0,
            "outputs": [
                [
                    o.get("name"),
                    *(figure(o.get(key)) for key in ("sqnr_db", "cosine", "max_error")),
                    self._was("outputs", o.get("name")),
                ]
                for o in self._comparison.get("outputs", ())
            ],
            "layers": [
                [
                    x.get("name"),
                    x.get("module"),
                    x.get("operator"),
                    figure(x.get("sqnr_db")),
                    self._was("layers", x.get("name")),
                    figure(x.get("added_noise")) or 0,
                    str(x.get("source") or ""),
                ]
                for x in self._comparison.get("layers", ())
            ],
            "before": str(self._earlier.get("label") or "") if self._earlier else None,
            "lines": [
                [
                    str(x.get("source") or ""),
                    _texts(x.get("operators")),
                    figure(x.get("share")) or 0,
                ]
                for x in _mappings(self._comparison.get("lines"))[:8]
            ],
            "histograms": _histograms(self._comparison.get("layers", ())),
            "advice": _texts(self._comparison.get("advice")),
        }


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _histograms(layers: Any) -> list[dict[str, Any]]:
    """Of the layers that have one, the noisiest first."""
    found = []
    for layer in sorted(_mappings(layers), key=lambda x: -(figure(x.get("added_noise")) or 0)):
        told = layer.get("histogram")
        if not isinstance(told, Mapping):
            continue
        counts = [[figure(n) or 0 for n in told.get(key) or ()] for key in ("wanted", "got")]
        found.append(
            {
                "module": layer.get("module"),
                "op": layer.get("operator"),
                "low": figure(told.get("low")) or 0,
                "high": figure(told.get("high")) or 0,
                "wanted": counts[0],
                "got": counts[1],
                "peak": figure(layer.get("peak")) or 0,
                "db": figure(layer.get("sqnr_db")),
            }
        )
    return found


def figure(value: Any) -> float | None:
    """A figure of a file as a figure; None for anything else, which the page leaves out."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if plain and math.isfinite(value) else None


def _base(operator: str) -> str:
    """`aten.conv2d.default` -> `convolution`: without namespace, overload, mark of in place."""
    parts = operator.split(".")
    name = (parts[1] if len(parts) > 1 else operator).rstrip("_").removesuffix("_copy")
    return _SAME.get(name, name)
