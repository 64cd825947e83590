"""States of observers: what each has seen, and how two that saw different data become one.

Extremes merge exactly. Histograms are brought to the range of both by sharing out each bin's
count evenly over its width: a value is then counted at most one bin, of the wider histogram,
from where one process would have counted it. Everything is in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from edgewise.quantize import observers
from edgewise.quantize._torchao import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from edgewise.quantize.masks import ScoresObserver

MERGED = (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    observers.HistogramObserver,
    observers.MinMaxObserver,
    observers.PerChannelMinMaxObserver,
    ScoresObserver,
)
"""Torchao's, and the schemes' own."""

State = dict[str, torch.Tensor]
"""`min`, `max`, and of a histogram `counts`; empty if nothing was seen."""


def observers_of(modules: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
    """The observers with a state, each once, by its first name.

    TypeError for those whose state depends on the order of what they saw.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, module in modules.items():
        if id(module) in seen or not hasattr(module, "calculate_qparams"):
            continue
        seen.add(id(module))
        if isinstance(module, PlaceholderObserver):
            continue
        if type(module) not in MERGED:
            if not hasattr(module, "min_val"):
                continue  # fixed: nothing is found out
            raise TypeError(
                f"[calibrate] observers must have states that can be merged; got "
                f"{type(module).__name__} at {name}, which depends on the order of the data; "
                f"try MinMaxObserver, PerChannelMinMaxObserver or HistogramObserver"
            )
        found[name] = module
    return found


def reset(observer: Any) -> None:
    """As if it had seen nothing."""
    if isinstance(observer, HistogramObserver):
        observer.histogram.zero_()
        observer.min_val.fill_(float("inf"))
        observer.max_val.fill_(float("-inf"))
    else:
        observer.reset_min_max_vals()


def state_of(observer: Any) -> State:
    low, high = observer.min_val.detach().clone(), observer.max_val.detach().clone()
    if low.numel() == 0 or bool((low > high).all()):
        return {}
    state = {"min": low, "max": high}
    if isinstance(observer, HistogramObserver):
        state["counts"] = observer.histogram.detach().double()
    return state


def set_state(observer: Any, state: State) -> None:
    """ValueError for a state of another observer."""
    if not state:
        reset(observer)
        return
    if isinstance(observer, HistogramObserver):
        if state["counts"].numel() != observer.bins:
            raise ValueError(
                f"[calibrate] a histogram must have {observer.bins} bins; got "
                f"{state['counts'].numel()}"
            )
        observer.histogram.copy_(state["counts"])
    for name, value in (("min_val", state["min"]), ("max_val", state["max"])):
        buffer = getattr(observer, name)
        buffer.resize_(value.shape)
        buffer.copy_(value)


def merged(one: State, other: State) -> State:
    """Of all data that both saw. Does not depend on which is which, but for rounding."""
    if not one or not other:
        return one or other
    state = {
        "min": torch.minimum(one["min"], other["min"]),
        "max": torch.maximum(one["max"], other["max"]),
    }
    if "counts" in one:
        state["counts"] = _counts(one, state) + _counts(other, state)
    return state


def _counts(state: State, wider: State) -> torch.Tensor:
    """The counts in bins of the wider range."""
    counts = state["counts"]
    low, high = float(state["min"]), float(state["max"])
    first, last = float(wider["min"]), float(wider["max"])
    if (low, high) == (first, last):
        return counts
    bins = counts.numel()
    edges = np.linspace(first, last, bins + 1)
    if low == high:
        found = torch.zeros_like(counts)
        bucket = min(bins - 1, int((low - first) / (last - first) * bins))
        found[bucket] = counts.sum()
        return found
    # How much lies below each edge: linear between the edges of the narrower bins.
    below = np.concatenate([[0.0], counts.cumsum(0).numpy()])
    narrower = np.linspace(low, high, bins + 1)
    return torch.from_numpy(np.diff(np.interp(edges, narrower, below)))
