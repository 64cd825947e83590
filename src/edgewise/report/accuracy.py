"""Layers of a comparison at the nodes of a record that compute them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewise.inspect.record import NodeRecord

_SAME = {"conv1d": "convolution", "conv2d": "convolution", "conv3d": "convolution"}
_SAME.update({"relu6": "hardtanh", "addmm": "linear", "flatten": "view", "reshape": "view"})
_NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")
_PRODUCTS = ("convolution", "linear")


class Layers:
    """`Comparison.to_dict()` by module, line and operator.

    A comparison names nodes of the float export, a record those of the program: decomposed,
    and spelled as backends like it.
    """

    def __init__(self, comparison: Mapping[str, Any]) -> None:
        self._comparison = comparison
        self._waiting: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for layer in comparison.get("layers", ()):
            module, operator = layer.get("module", ""), _base(layer.get("operator", ""))
            if operator in _NORMS:  # folded into the product before it
                module = module.rpartition(".")[0]
            self._waiting.setdefault((module, operator), []).append(layer)

    def of(self, node: NodeRecord) -> dict[str, Any] | None:
        """The figures of the node, each layer once, in order; None if there are none."""
        names = [(node.module, _base(o)) for o in (node.operator, node.decomposed_from) if o]
        if names and names[0][1] in _PRODUCTS:
            names += [(node.module.rpartition(".")[0], norm) for norm in _NORMS]
        for name in names:
            waiting = self._waiting.get(name)
            if waiting:
                layer = waiting.pop(0)
                return {
                    "db": layer.get("sqnr_db"),
                    "added": layer.get("added_noise"),
                    "error": layer.get("max_error"),
                    "exact": layer.get("sqnr_db") is None,
                }
        return None

    def summary(self) -> dict[str, Any] | None:
        """Outputs and layers for the chart; None without a comparison."""
        if not self._comparison:
            return None
        return {
            "batches": self._comparison.get("batches", 0),
            "outputs": [
                [o.get("name"), o.get("sqnr_db"), o.get("cosine"), o.get("max_error")]
                for o in self._comparison.get("outputs", ())
            ],
            "layers": [
                [x.get("name"), x.get("module"), x.get("operator"), x.get("sqnr_db")]
                for x in self._comparison.get("layers", ())
            ],
        }


def _base(operator: str) -> str:
    """`aten.conv2d.default` -> `convolution`: without namespace, overload, mark of in place."""
    parts = operator.split(".")
    name = (parts[1] if len(parts) > 1 else operator).rstrip("_").removesuffix("_copy")
    return _SAME.get(name, name)
