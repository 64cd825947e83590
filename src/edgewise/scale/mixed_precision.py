"""Which modules of one model to keep in float, by parallel trials.

    found = edgewise.scale.search(model, inputs, quantize="int8", calibration=batches,
                                  evaluation=batches, target_db=30)
    edgewise.compile(model, inputs, quantize="int8", calibration=batches,
                     keep_float=found.keep_float)

The same search as that of a plan's setting (`searching`), for a model and data in memory.
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgewise.edge.export import evaluating
from edgewise.registry import DEFAULT
from edgewise.scale.drive import Drive, Job
from edgewise.scale.engine import Engine
from edgewise.scale.models import keep
from edgewise.scale.plan import Combination, DataSpec, ModelSpec, Plan, Search, Setting
from edgewise.scale.searching import Found, Trial, choose
from edgewise.scale.store import Store
from edgewise.scale.sweeping import engine_for
from edgewise.scale.tasks import StageFailed, Tasks, known_data, one


@dataclass(frozen=True)
class SearchResult:
    """keep_float: for `edgewise.compile`. reached: whether the target was, or none was asked.
    trials: in the order of their sets. buffer: the chosen program's file."""

    keep_float: tuple[str, ...]
    reached: bool
    trials: tuple[Trial, ...]
    buffer: bytes

    def table(self) -> str:
        """A line for each trial: modules in float, signal to noise in dB, file."""
        lines = ["float  SQNR dB  file kB  last module added"]
        for trial in self.trials:
            ratio = "-" if trial.sqnr_db is None else f"{trial.sqnr_db:.1f}"
            size = "-" if trial.size_bytes is None else f"{trial.size_bytes / 1000:.0f}"
            note = f" (given up after {trial.stopped} batches)" if trial.stopped else ""
            chosen = " <- chosen" if trial.keep_float == self.keep_float else ""
            last = trial.keep_float[-1] if trial.keep_float else "none"
            text = trial.error or f"{last}{note}{chosen}"
            lines.append(f"{len(trial.keep_float):5}  {ratio:>7}  {size:>7}  {text}")
        return "\n".join(lines)


def search(
    model: torch.nn.Module,
    example_inputs: Any,
    *,
    quantize: str,
    evaluation: Iterable[Any],
    calibration: Iterable[Any] | None = None,
    backend: str = DEFAULT,
    target_db: float | None = None,
    limit: int = 6,
    keep_float: Sequence[str] = (),
    group_size: int | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    ray: str | None = None,
    workers: int | None = None,
) -> SearchResult:
    """The fewest modules in float, at most `limit`, for `target_db` decibels of signal to noise.

    Modules are ranked by their sensitivity; sets of the first 0, 1, 2, ... are compiled and run
    at once, three by three, on the workers; one that is 3 dB below the target on a quarter of
    the data is stopped there. Without a target: as good as it gets within a decibel.

    example_inputs, calibration, evaluation: as batches for `edgewise.compile`; both sets are held
    in memory. out: a folder, or a location of fsspec, that keeps programs and results for the
    next search; None: nothing is kept. engine, ray, workers: as for `sweep`. The model's class
    must be importable by its name on the workers: TypeError else. ValueError for options that do
    not fit each other; RuntimeError if no trial came through.
    """
    from edgewise.quantize.calibration import as_batch
    from edgewise.quantize.schemes import scheme_of

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"[search] model must be a torch.nn.Module; got {type(model).__name__}")
    if limit < 1:
        raise ValueError(f"[search] limit must be at least 1; got {limit}")
    if scheme_of(quantize, group_size).needs_calibration and calibration is None:
        raise ValueError(f"[search] {quantize} needs calibration data; got none")
    pairs = [(as_batch(batch), None) for batch in evaluation]
    if not pairs:
        raise ValueError("[search] evaluation must hold at least one batch; got none")
    place = (
        tempfile.TemporaryDirectory(prefix="edgewise-search-") if out is None else nullcontext(out)
    )
    with place as path:
        store = Store(path)
        seen = None if calibration is None else [as_batch(batch) for batch in calibration]
        setting = Setting(
            "search", quantize, group_size, tuple(keep_float), Search(target_db, limit)
        )
        name = type(model).__name__
        spec = ModelSpec(name, "", evaluation=(_kept_data(store, "evaluation", pairs),))
        calibrated = None if seen is None else _kept_data(store, "calibration", seen)
        combination = Combination(spec, backend, setting, calibrated)
        if combination.impossible:
            raise ValueError(f"[search] {combination.impossible}; got {quantize}")
        kept = _kept_model(store, model, as_batch(example_inputs))
        plan = Plan((spec,), (backend,), (setting,), latency=None, root=os.getcwd(), name=name)
        with engine_for(plan, store, engine, ray, workers) as chosen:
            drive: Drive[SearchResult] = Drive(chosen, store)
            try:
                (result,) = drive.run([_job(Tasks(plan), combination, kept, store)])
            except StageFailed as failed:
                raise RuntimeError(f"[search] {failed.stage}: {failed.outcome.error}") from None
        return result


def _job(tasks: Tasks, combination: Combination, model: Any, store: Store) -> Job[SearchResult]:
    calibration = yield from known_data(tasks, combination.calibration, pairs=False)
    found: Found = yield from choose(tasks, combination, model, calibration)
    built = yield from one("build", tasks.build(found.combination, model, calibration))
    return SearchResult(
        found.combination.setting.keep_float,
        found.reached,
        found.trials,
        store.read(built["program"]),
    )


def _kept_data(store: Store, name: str, items: Sequence[Any]) -> DataSpec:
    """In the store, known by its content: nothing reads it through again."""
    buffer = io.BytesIO()
    torch.save(list(items), buffer)
    file = store.add("data", buffer.getvalue(), ".pt")
    digest = Path(file).stem
    return DataSpec(name, f"store:{file}", limit=len(items), version=digest)


def _kept_model(store: Store, model: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    outside = sorted(
        {type(m).__qualname__ for m in model.modules() if type(m).__module__ == "__main__"}
    )
    if outside:
        raise TypeError(
            f"[search] the model's classes must be importable by workers; got {outside[0]}, "
            f"which is defined in the running script; try to move it to a module of its own"
        )
    try:
        with evaluating(model):
            return keep(store, model, inputs)
    except (pickle.PicklingError, AttributeError, TypeError) as failure:
        raise TypeError(
            f"[search] the model must be one that pickle can write, for the workers; got "
            f"{failure}; try a class at the top of a module"
        ) from failure
