"""One way to quantize: compiled, run, compared with the float model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from edgewise.accuracy.metrics import ErrorMetrics
from edgewise.edge.export import evaluating
from edgewise.quantize.budget import Budget
from edgewise.tuning.choice import Trial

Batch = tuple[tuple[Any, ...], dict[str, Any]]
"""Inputs by position, and by name."""
_FEW = 4
"""Batches after which a trial may be given up."""
_FAR = 3.0
"""So many times the allowed distance from a cosine of 1 is too far to go on."""
_FAR_DB = 6.0


@dataclass(frozen=True)
class Reference:
    """The float model's outputs on the batches, and its metric."""

    batches: Sequence[Batch]
    outputs: Sequence[list[Any]]
    metric: float | None

    @classmethod
    def of(cls, model: torch.nn.Module, batches: Sequence[Batch], budget: Budget) -> Reference:
        """Runs the model in evaluation mode; its modules' modes are as before."""
        with evaluating(model), torch.no_grad():
            outputs = [pytree.tree_leaves(model(*args, **named)) for args, named in batches]
            metric = None if budget.metric is None else float(budget.metric(model))
        return cls(batches, outputs, metric)


def measured(
    trial: Trial, program: Any, reference: Reference, budget: Budget, timed: bool
) -> Trial:
    """The trial with its figures, and whether it keeps the budget.

    timed: whether the program runs here as it does on the device.
    """
    import edgewise

    run = _in_tensors(edgewise.load(program.buffer))
    run.buffer = program.buffer  # type: ignore[attr-defined]  # metrics may run it elsewhere
    trial = replace(trial, size=len(program.buffer))
    if timed:
        trial = replace(trial, latency=_milliseconds(run, reference.batches[0]))
    trial = _compared(trial, run, reference, budget)
    if budget.metric is not None and not trial.stopped:
        with torch.no_grad():
            trial = replace(trial, metric=float(budget.metric(run)))
    return replace(trial, kept=keeps(trial, reference.metric, budget))


def keeps(trial: Trial, baseline: float | None, budget: Budget) -> bool:
    """Whether all of the budget's conditions hold."""
    if trial.error or trial.stopped:
        return False
    if budget.metric is not None:
        assert baseline is not None
        if trial.metric is None or not trial.metric >= baseline - budget.drop * abs(baseline):
            return False
    above = ((trial.cosine, budget.cosine), (trial.sqnr_db, budget.sqnr_db))
    below = ((trial.size, budget.size), (trial.latency, budget.latency))
    return all(
        limit is None or (value is not None and value >= limit) for value, limit in above
    ) and all(limit is None or (value is not None and value <= limit) for value, limit in below)


def _in_tensors(run: Callable[..., Any]) -> Callable[..., Any]:
    def called(*inputs: Any, **named: Any) -> Any:
        return pytree.tree_map(
            lambda leaf: torch.as_tensor(leaf) if hasattr(leaf, "__array__") else leaf,
            run(*inputs, **named),
        )

    return called


def _compared(trial: Trial, run: Callable[..., Any], reference: Reference, budget: Budget) -> Trial:
    metrics: dict[int, ErrorMetrics] = {}
    cosines: dict[int, list[torch.Tensor]] = {}
    stopped = 0
    for index, (batch, wanted) in enumerate(
        zip(reference.batches, reference.outputs, strict=True), 1
    ):
        got = pytree.tree_leaves(run(*batch[0], **batch[1]))
        for output, (one, other) in enumerate(zip(wanted, got, strict=True)):
            if isinstance(one, torch.Tensor) and one.is_floating_point():
                metrics.setdefault(output, ErrorMetrics()).add(one, other)
                cosines.setdefault(output, []).append(_cosine(one, other))
        if index == _FEW < len(reference.batches) and _too_far(metrics, cosines, budget):
            stopped = index
            break
    if not metrics:
        return trial
    return replace(
        trial,
        cosine=min(float(torch.cat(found).mean()) for found in cosines.values()),
        sqnr_db=min(one.sqnr_db for one in metrics.values()),
        stopped=stopped,
    )


def _too_far(
    metrics: dict[int, ErrorMetrics], cosines: dict[int, list[torch.Tensor]], budget: Budget
) -> bool:
    if budget.sqnr_db is not None and any(
        one.sqnr_db < budget.sqnr_db - _FAR_DB for one in metrics.values()
    ):
        return True
    if budget.cosine is None:
        return False
    least = 1 - _FAR * (1 - budget.cosine)
    return any(float(torch.cat(found).mean()) < least for found in cosines.values())


def _cosine(wanted: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Of each sample; where both are zero, they are the same."""
    one, other = (x.double().reshape(len(x) if x.dim() > 1 else 1, -1) for x in (wanted, got))
    found = torch.nn.functional.cosine_similarity(one, other, dim=1)
    return torch.where((one == 0).all(1) & (other == 0).all(1), 1.0, found)


def _milliseconds(run: Callable[..., Any], inputs: Batch) -> float:
    """The median of calls: 30 and for 50 ms, but no longer than half a second, and 3 anyway."""
    args, named = inputs
    run(*args, **named)
    seconds: list[float] = []
    start = time.perf_counter()
    spent = 0.0
    while len(seconds) < 3 or (spent < 0.5 and (len(seconds) < 30 or spent < 0.05)):
        before = time.perf_counter()
        run(*args, **named)
        after = time.perf_counter()
        seconds.append(after - before)
        spent = after - start
    return 1e3 * statistics.median(seconds)


__all__ = ["Reference", "keeps", "measured"]
