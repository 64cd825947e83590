"""What is said of a program's outputs: metrics whose states can be merged."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

EXACT_DB = 200.0
"""Stands for no noise at all."""


class Metric(Protocol):
    """Fed batch by batch; states of shards are merged. Must be picklable.

    `needs_reference` (default false): `add` is also given the float model's outputs.
    """

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        """outputs: as the model returns them, of numpy arrays. target: the data's."""

    def merge(self, other: Any) -> None:
        """Adds another's state, of data that come later."""

    def result(self) -> Mapping[str, float]:
        """Named figures."""


def _first(value: Any) -> Any:
    while isinstance(value, (tuple, list)):
        value = value[0]
    if isinstance(value, Mapping):
        return _first(next(iter(value.values())))
    return np.asarray(value)


class Top:
    """Share of rows whose target is among the `k` largest of the first output, in percent."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.right = self.total = 0

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        scores, wanted = _first(outputs), np.asarray(target).reshape(-1)
        scores = scores.reshape(-1, scores.shape[-1])
        if len(scores) != len(wanted):
            raise ValueError(
                f"[top{self.k}] there must be a target for each row; got {len(wanted)} "
                f"for {len(scores)}"
            )
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.k]
        self.right += int((best == wanted[:, None]).any(1).sum())
        self.total += len(wanted)

    def merge(self, other: Top) -> None:
        self.right += other.right
        self.total += other.total

    def result(self) -> dict[str, float]:
        return {f"top{self.k} %": 100 * self.right / self.total if self.total else math.nan}


class Agreement(Top):
    """Share of rows whose largest score is where the float model's is, in percent."""

    needs_reference = True

    def __init__(self) -> None:
        super().__init__(1)

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        wanted = _first(reference)
        super().add(outputs, wanted.reshape(-1, wanted.shape[-1]).argmax(1), None)

    def result(self) -> dict[str, float]:
        return {"agreement %": super().result()["top1 %"]}


class SignalToNoise:
    """Power of the float model's first output by that of the difference, in decibels, within
    `EXACT_DB`: files of results have no infinity."""

    needs_reference = True

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        wanted = _first(reference).astype(np.float64)
        self.signal += float(np.square(wanted).sum())
        self.noise += float(np.square(_first(outputs).astype(np.float64) - wanted).sum())

    def merge(self, other: SignalToNoise) -> None:
        self.signal += other.signal
        self.noise += other.noise

    def result(self) -> dict[str, float]:
        if self.noise == 0:
            return {"SQNR dB": EXACT_DB}
        if not self.signal or not math.isfinite(self.noise):
            return {"SQNR dB": -EXACT_DB}
        ratio = 10 * math.log10(self.signal / self.noise)
        return {"SQNR dB": max(-EXACT_DB, min(EXACT_DB, ratio))}


class Error:
    """Mean of the absolute or squared difference of the first output and the target."""

    def __init__(self, name: str, power: int) -> None:
        self.name, self.power = name, power
        self.total = 0.0
        self.count = 0

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        got = _first(outputs).astype(np.float64)
        inner = _first(target) if isinstance(target, (tuple, Mapping)) else target
        wanted = np.asarray(inner, np.float64)
        if got.shape != wanted.shape:
            raise ValueError(
                f"[{self.name}] targets must have the output's shape {list(got.shape)}; got "
                f"{list(wanted.shape)}"
            )
        self.total += float((np.abs(got - wanted) ** self.power).sum())
        self.count += got.size

    def merge(self, other: Error) -> None:
        self.total += other.total
        self.count += other.count

    def result(self) -> dict[str, float]:
        return {self.name: self.total / self.count if self.count else math.nan}


class Mean:
    """The mean over batches of what a function of outputs and target returns."""

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self.name, self.function = name, function
        self.totals: dict[str, float] = {}
        self.batches = 0

    def add(self, outputs: Any, target: Any, reference: Any) -> None:
        value = self.function(outputs, target)
        named = value if isinstance(value, Mapping) else {self.name: value}
        for name, number in named.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(number)
        self.batches += 1

    def merge(self, other: Mean) -> None:
        for name, total in other.totals.items():
            self.totals[name] = self.totals.get(name, 0.0) + total
        self.batches += other.batches

    def result(self) -> dict[str, float]:
        return {name: total / self.batches for name, total in self.totals.items()}


METRICS: dict[str, Callable[[], Metric]] = {
    "top1": lambda: Top(1),
    "top5": lambda: Top(5),
    "agreement": Agreement,
    "sqnr": SignalToNoise,
    "mae": lambda: Error("MAE", 1),
    "mse": lambda: Error("MSE", 2),
}
"""By the name that plans have. `agreement` and `sqnr` compare with the float model and need no
targets."""


def as_metric(metric: Any, name: str = "metric") -> Metric:
    """A new one: of a name, of a class or factory without arguments, or of a function of outputs
    and target. ValueError for a name that there is none of."""
    if isinstance(metric, str):
        if metric not in METRICS:
            raise ValueError(
                f"[metric] a metric must be one of {', '.join(METRICS)}, or a function; "
                f"got {metric!r}"
            )
        return METRICS[metric]()
    if isinstance(metric, type):
        made: Metric = metric()
        return made
    if hasattr(metric, "add") and hasattr(metric, "merge") and hasattr(metric, "result"):
        return copy.deepcopy(metric)  # type: ignore[no-any-return]
    return Mean(getattr(metric, "__name__", name), metric)


def needs_reference(metric: Metric) -> bool:
    return bool(getattr(metric, "needs_reference", False))


def add_pairs(
    metrics: Collection[Metric],
    run: Callable[..., Any],
    pairs: Iterable[Any],
    reference: Callable[..., Any] | None = None,
) -> int:
    """Feeds metrics with what `run` and the float model give, in numpy arrays; how many batches
    there were. TypeError for data that are no pairs."""
    count = 0
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"[evaluate] data must be pairs (inputs, target); got {type(pair).__name__}; "
                f"try zip(inputs, targets)"
            )
        inputs, target = pair
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        outputs = run(*given)
        wanted = reference(*given) if reference else None
        for metric in metrics:
            metric.add(outputs, target, wanted)
        count += 1
    return count


def arrays_of(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model of torch, for what compares arrays."""
    import torch
    from torch.utils import _pytree as pytree

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, model(*inputs))

    return run
