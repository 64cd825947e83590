"""When the parts of a delegate run on its device, for the page: by a model, not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgewise.inspect.reading import delegate_payloads
from edgewise.registry import backend_of


def timelines(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """By method: of each delegate whose backend has a model of its device, the delegate's number
    and what `edgewise.registry.Backend.timeline` tells.

    target: the device. cycles; clock: Hz; lanes: by name the cycles that it is busy, and [begin,
    end, what, command] of each stretch, the last the offset of its first command, as in
    `edgewise.inspect.layers.Layer.commands`. Or problem: why there is no timeline. OSError,
    ValueError: as `read_contents`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for method, number, delegate_id, data in delegate_payloads(path):
        backend = backend_of(delegate_id)
        told = backend.timeline(data) if backend is not None else None
        if told is not None:
            found.setdefault(method, []).append({"delegate": number, **told})
    return found
