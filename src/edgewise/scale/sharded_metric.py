"""A metric that `quantize="auto"` asks of each program that it tries, computed by many workers.

budget = edgewise.Budget(metric=ShardedMetric("top1", pairs), drop=0.005)
edgewise.compile(model, inputs, quantize="auto", calibration=batches, budget=budget)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from edgewise.scale.engine import Engine
from edgewise.scale.local import LocalEngine
from edgewise.scale.metrics import METRICS, add_pairs, arrays_of, as_metric, needs_reference
from edgewise.scale.shards import PRELOAD, evaluate

_LESS_IS_BETTER = ("mae", "mse")


class ShardedMetric:
    """Says how good what runs a model is, as `edgewise.Budget` wants it: larger is better.

    metric: as of `edgewise.scale.evaluate`; the errors "mae" and "mse" count as negative. data:
    pairs (inputs, target), held in memory. engine: None: processes of this machine, which are
    kept for all programs. shard: pairs that are sent at once. figure: which one, of a metric that
    has several. The float model is evaluated here, programs by the engine's workers.
    ValueError for a metric that needs the float model, or without data.
    """

    def __init__(
        self,
        metric: Any,
        data: Iterable[Any],
        *,
        engine: Engine | None = None,
        shard: int = 64,
        figure: str | None = None,
    ) -> None:
        if needs_reference(as_metric(metric)):
            needless = [name for name, make in METRICS.items() if not needs_reference(make())]
            raise ValueError(
                f"[ShardedMetric] a metric must need outputs and targets only; got {metric!r}; "
                f"try {', '.join(needless)}, or Budget(sqnr_db=...)"
            )
        self._metric, self._data = metric, list(data)
        if not self._data:
            raise ValueError("[ShardedMetric] data must hold at least one pair; got none")
        self._engine, self._shard, self._figure = engine, shard, figure
        self._sign = -1.0 if metric in _LESS_IS_BETTER else 1.0

    def __call__(self, run: Callable[..., Any]) -> float:
        """run: a model of torch, or what has the `.pte` file's bytes as its `buffer`."""
        buffer = getattr(run, "buffer", None)
        if buffer is None or callable(buffer):
            figures = self._here(run)
        else:
            figures = evaluate(
                buffer, self._data, self._metric, engine=self._workers(), shard=self._shard
            )
        return self._sign * self._one(figures)

    def _here(self, run: Callable[..., Any]) -> dict[str, float]:
        total = as_metric(self._metric)
        add_pairs([total], arrays_of(run), self._data)
        return dict(total.result())

    def _workers(self) -> Engine:
        if self._engine is None:
            self._engine = LocalEngine(preload=PRELOAD)
            weakref.finalize(self, self._engine.close)
        return self._engine

    def _one(self, figures: dict[str, float]) -> float:
        if self._figure is None and len(figures) == 1:
            return next(iter(figures.values()))
        if self._figure not in figures:
            raise ValueError(
                f"[ShardedMetric] figure must be one of {', '.join(map(repr, figures))}; "
                f"got {self._figure!r}"
            )
        return figures[self._figure]


__all__ = ["ShardedMetric"]
