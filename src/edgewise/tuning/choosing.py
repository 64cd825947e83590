"""Tries ways to quantize, from those that run fastest on, until one keeps the budget."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from edgewise.quantize.budget import COSINE, Budget
from edgewise.quantize.calibration import as_batch, as_call
from edgewise.quantize.schemes import SCHEMES
from edgewise.registry import DEFAULT, backend_for, quantizer_for
from edgewise.tuning.candidates import Candidate, candidates_for
from edgewise.tuning.choice import Choice, Trial
from edgewise.tuning.measuring import Batch, Reference, measured

if TYPE_CHECKING:
    from edgewise.lowering import ExecutorchProgramManager

_MOST = 128
"""Batches that outputs are compared on, where the budget names none."""
_RANKED_ON = 4
"""Batches that modules are ranked on."""


def choose(
    model: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    calibration: Iterable[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    backend: str = DEFAULT,
    keep_float: Sequence[str] = (),
    verbose: bool = True,
    **options: Any,
) -> tuple[ExecutorchProgramManager, Choice]:
    """The program of the first way that keeps the budget, and what was tried.

    Programs run here: on the native runtime, those of NPUs in their simulators. calibration,
    example_kwargs, keep_float, options: as for `edgewise.compile`; the data are held in memory.
    Without a budget a cosine of 0.99. If nothing keeps it, the way is taken that comes closest,
    with a warning.
    ValueError if there are no data; what compiling the first way raises.
    """
    budget = _with_condition(budget)
    seen = list(calibration)
    if not seen:
        raise ValueError(
            "[compile] quantize='auto' needs calibration data; got none; try calibration=[...] "
            "with inputs such as the model will see"
        )
    given = seen[:_MOST] if budget.batches is None else list(budget.batches)
    if not given:
        raise ValueError("[Budget] batches must hold at least one; got none")
    call = as_batch(example_inputs), dict(example_kwargs or {})
    batches = [as_call(index, batch, call[1]) for index, batch in enumerate(given)]
    return _Search(model, call, seen, batches, budget, backend, keep_float, options).run(verbose)


def _with_condition(budget: Budget | None) -> Budget:
    budget = budget or Budget()
    if budget.asks_accuracy or budget.size is not None or budget.latency is not None:
        return budget
    return replace(budget, cosine=COSINE)


class _Search:
    def __init__(
        self,
        model: torch.nn.Module,
        call: Batch,
        calibration: Sequence[Any],
        batches: Sequence[Batch],
        budget: Budget,
        backend: str,
        keep_float: Sequence[str],
        options: dict[str, Any],
    ) -> None:
        self._model, self._call, self._budget = model, call, budget
        self._calibration, self._batches = calibration, batches
        self._backend, self._options = backend, options
        self._keep_float = tuple(keep_float)
        self._ranked: list[str] | None = None

    def run(self, verbose: bool) -> tuple[ExecutorchProgramManager, Choice]:
        start = time.perf_counter()
        reference = Reference.of(self._model, self._batches, self._budget)
        trials: list[Trial] = []
        best: tuple[int, Any] | None = None
        for candidate in _shown(candidates_for(self._backend), verbose):
            longest = max((trial.seconds for trial in trials), default=0.0)
            if trials and time.perf_counter() - start + longest > self._budget.seconds:
                break
            trial, program = self._tried(candidate, reference, is_first=not trials)
            if trial is None:
                continue
            trials.append(trial)
            better = best is None or self._rank(trial) > self._rank(trials[best[0]])
            if program is not None and better:
                best = len(trials) - 1, program
            if trial.kept and self._budget.asks_accuracy:
                break
        assert best is not None  # else the first trial has raised
        chosen, program = best
        choice = Choice(tuple(trials), chosen, trials[chosen].kept, reference.metric)
        if not choice.reached:
            warnings.warn(
                f"[compile] nothing of {len(trials)} ways to quantize that were tried keeps the "
                f"budget; took {choice.trial}; try a wider one, or more seconds",
                stacklevel=4,
            )
        return program, choice

    def _tried(
        self, candidate: Candidate, reference: Reference, is_first: bool
    ) -> tuple[Trial | None, Any]:
        """None if it is a way that was tried before. What the first raises, all would."""
        import edgewise

        start = time.perf_counter()
        kept = self._keep_float
        if candidate.sensitive:
            more = self._sensitive()[: candidate.sensitive]
            if len(more) < candidate.sensitive:
                return None, None
            kept = (*kept, *more)
        methods = self._methods(candidate)
        trial = Trial(
            candidate.scheme, methods, kept if candidate.scheme else (), added=candidate.methods
        )
        try:
            options = dict(self._options)
            if candidate.scheme is not None and SCHEMES[candidate.scheme].needs_calibration:
                options["calibration"] = self._calibration
            with warnings.catch_warnings():
                if not is_first:
                    warnings.simplefilter("ignore")
                program = edgewise.compile(
                    self._model,
                    self._call[0],
                    example_kwargs=self._call[1] or None,
                    backend=self._backend,
                    verbose=False,
                    **trial.settings,
                    **options,
                )
            backend = backend_for(self._backend)
            timed = backend is not None and not backend.is_simulated
            trial = measured(trial, program, reference, self._budget, timed)
        except Exception as error:
            if is_first:
                raise
            text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return replace(trial, error=text, seconds=time.perf_counter() - start), None
        return replace(trial, seconds=time.perf_counter() - start), program

    def _methods(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Those of the scheme and the candidate's; None for the scheme's alone."""
        if not candidate.methods or candidate.scheme is None:
            return None
        from edgewise.lowering.compiling import applied_methods

        own = applied_methods(None, SCHEMES[candidate.scheme], self._backend)
        return (*own, *candidate.methods)

    def _sensitive(self) -> list[str]:
        """Modules that matter most first, at most half of them."""
        if self._ranked is None:
            from edgewise.accuracy.sensitivity import simulate
            from edgewise.accuracy.suggesting import rank_modules

            few = self._batches[:_RANKED_ON]
            simulation = simulate(
                self._model,
                self._call[0],
                SCHEMES["int8"],
                quantizer_for(self._backend),
                [(*arguments, *named.values()) for arguments, named in few],
                self._calibration,
                self._keep_float,
                self._call[1] or None,
            )
            ranked = rank_modules(self._model, simulation)
            self._ranked = [one.module for one in ranked if one.share > 0][: len(ranked) // 2]
        return self._ranked

    def _rank(self, trial: Trial) -> tuple[Any, ...]:
        """What is better is larger: keeping the budget, then its limits, then accuracy."""
        limits = (trial.size, self._budget.size), (trial.latency, self._budget.latency)
        inside = all(limit is None or (v is not None and v <= limit) for v, limit in limits)
        accuracy = trial.metric if self._budget.metric is not None else trial.cosine
        accurate = -math.inf if accuracy is None else accuracy
        return (
            trial.kept,
            inside,
            not trial.stopped,
            accurate,
            -math.inf if trial.sqnr_db is None else trial.sqnr_db,
        )


def _shown(candidates: Sequence[Candidate], verbose: bool) -> Iterator[Candidate]:
    """With a bar if standard error is a terminal."""
    if not verbose or not sys.stderr.isatty():
        yield from candidates
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("quantizing", total=len(candidates))
        for candidate in candidates:
            yield candidate
            bar.advance(task)


__all__ = ["choose"]
