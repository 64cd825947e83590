"""Calibration and accuracy over data in shards: many workers, one result.

    edgewise.scale.calibrate(prepared, batches)
    edgewise.scale.evaluate("model.pte", samples, "top1")

Data come from any iterable, which is read once and never held whole, or from a dataset of Ray
Data, whose blocks stay where they are.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from edgewise.scale.engine import Engine, run_all
from edgewise.scale.local import LocalEngine
from edgewise.scale.metrics import Metric, add_pairs, as_metric, needs_reference
from edgewise.scale.task import Context, Task

PRELOAD = ("torch", "edgewise.quantize._torchao", "edgewise.scale.portable", "edgewise.runtime")
ToItem = Callable[[Mapping[str, Any]], Any]
"""From a batch of Ray Data, arrays by column, to what an iterable would yield."""


def calibrate(
    prepared_model: Any,
    dataset: Any,
    *,
    engine: Engine | None = None,
    shard: int = 16,
    to_item: ToItem | None = None,
    batch_size: int = 1,
) -> int:
    """Lets a model of `prepare_pt2e` see all data; how many batches there were.

    Its observers then hold what they held before and what copies of them saw on the shards:
    extremes exactly as in one process; histograms as in `edgewise.scale.observers`, the ends of
    their range exactly. dataset: batches, each a tuple, or a tensor for one input; or a dataset
    of Ray Data, in batches of `batch_size` rows that `to_item` makes batches of (without it: a
    tensor for each column, in order). shard: batches that are sent at once. engine: None:
    processes of this machine. TypeError for observers that cannot be merged, ValueError without
    data, RuntimeError if a shard fails.
    """
    from torch.fx import GraphModule

    from edgewise.scale.observers import merged, observers_of, set_state, state_of
    from edgewise.scale.portable import pack

    if not isinstance(prepared_model, GraphModule):
        raise TypeError(
            f"[calibrate] prepared_model must come from prepare_pt2e; got "
            f"{type(prepared_model).__name__}; "
            f"try prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)"
        )
    observers = observers_of(dict(prepared_model.named_modules()))
    states = {name: state_of(observer) for name, observer in observers.items()}
    count = 0
    answers = _each_shard(
        "calibrate", pack(prepared_model), dataset, engine, shard, to_item, batch_size
    )
    for batches, found in answers:
        count += batches
        states = {name: merged(state, found[name]) for name, state in states.items()}
    if count == 0:
        raise ValueError("[calibrate] data must hold at least one batch; got none")
    for name, observer in observers.items():
        set_state(observer, states[name])
    return count


def evaluate(
    program: Any,
    dataset: Any,
    metric: Any,
    *,
    engine: Engine | None = None,
    shard: int = 64,
    to_item: ToItem | None = None,
    batch_size: int = 1,
) -> dict[str, float]:
    """The metric's figures over all data; the program runs natively on each shard.

    program: a file's path or bytes, or what `edgewise.compile` returned. dataset: pairs (inputs,
    target); or a dataset of Ray Data, in batches of `batch_size` rows that `to_item` makes pairs
    of. metric: a name of `edgewise.scale.METRICS` that needs no float model, a function of
    outputs and target, or a `Metric`; what is not in edgewise must be importable by its name on
    the workers. ValueError without data, RuntimeError if a shard fails.
    """
    total = as_metric(metric)
    if needs_reference(total):
        raise ValueError(
            f"[evaluate] a metric must need outputs and targets only; got {metric!r}, which "
            f"needs the float model; try edgewise.inspect.compare, or a sweep"
        )
    common = pickle.dumps({"program": _bytes(program), "metric": total})
    count = 0
    for batches, state in _each_shard(
        "evaluate", common, dataset, engine, shard, to_item, batch_size
    ):
        count += batches
        total.merge(state)
    if count == 0:
        raise ValueError("[evaluate] data must hold at least one batch; got none")
    return dict(total.result())


def calibrate_shard(common: bytes, batches: Iterable[Any]) -> tuple[int, Any]:
    """In a worker: how many batches, and what the observers saw."""
    from edgewise.quantize.calibration import as_batch
    from edgewise.scale.observers import state_of
    from edgewise.scale.portable import Portable

    run = Portable(common)
    count = 0
    for batch in batches:
        run(*as_batch(batch))
        count += 1
    return count, {n: state_of(o) for n, o in run.observers.items()}


def evaluate_shard(common: bytes, pairs: Iterable[Any]) -> tuple[int, Metric]:
    """In a worker: how many batches, and the metric's state."""
    import edgewise

    held = pickle.loads(common)  # noqa: S301 (of the call that asked, in its cluster)
    metric: Metric = held["metric"]
    program = edgewise.load(held["program"], threads=1)
    return add_pairs([metric], program, pairs), metric


_STEPS: dict[str, Callable[[bytes, Iterable[Any]], tuple[int, Any]]] = {
    "calibrate": calibrate_shard,
    "evaluate": evaluate_shard,
}


def run_shard(arguments: Mapping[str, Any], context: Context) -> tuple[int, Any]:
    """A task: a step on the batches that came with it."""
    import torch

    batches = torch.load(io.BytesIO(context.attachments["batches"]), weights_only=False)
    return _STEPS[arguments["step"]](context.attachments["common"], batches)


def _each_shard(
    step: str,
    common: bytes,
    dataset: Any,
    engine: Engine | None,
    size: int,
    to_item: ToItem | None,
    batch_size: int,
) -> Iterator[tuple[int, Any]]:
    if type(dataset).__module__.startswith("ray.data"):
        yield from _of_ray_data(step, common, dataset, to_item, size, batch_size)
        return
    with LocalEngine(preload=PRELOAD) if engine is None else nullcontext(engine) as chosen:
        shared = chosen.share(common)

        def tasks() -> Iterator[Task]:
            for index, batches in enumerate(_chunks(dataset, size)):
                yield Task(
                    "edgewise.scale.shards:run_shard",
                    {"step": step, "index": index, "common": shared.digest},
                    {"common": shared, "batches": _saved(batches)},
                    label=f"{step} shard {index}",
                )

        for index, outcome in enumerate(run_all(chosen, tasks())):
            if not outcome.ok:
                raise RuntimeError(
                    f"[{step}] shard {index} must come through; got {outcome.status}: "
                    f"{outcome.error}"
                )
            yield outcome.value


def _of_ray_data(
    step: str, common: bytes, dataset: Any, to_item: ToItem | None, size: int, batch_size: int
) -> Iterator[tuple[int, Any]]:
    """Blocks are worked on where they are, by Ray Data's own tasks; Ray repeats what is lost."""
    import ray

    reference = ray.put(common)

    def on_block(batch: Mapping[str, Any]) -> dict[str, Any]:
        import numpy

        made = to_item or _columns
        rows = len(next(iter(batch.values())))
        parts = (
            {name: column[start : start + batch_size] for name, column in batch.items()}
            for start in range(0, rows, batch_size)
        )
        answer = _STEPS[step](ray.get(reference), (made(part) for part in parts))
        return {"answer": numpy.array([pickle.dumps(answer)], dtype=object)}

    answers = dataset.map_batches(on_block, batch_size=size * batch_size, batch_format="numpy")
    for row in answers.iter_rows():
        yield pickle.loads(row["answer"])  # noqa: S301 (made by the worker above)


def _columns(batch: Mapping[str, Any]) -> Any:
    import torch

    return tuple(torch.as_tensor(column.copy()) for column in batch.values())


def _chunks(dataset: Iterable[Any], size: int) -> Iterator[Sequence[Any]]:
    if size < 1:
        raise ValueError(f"[shards] a shard must hold at least one batch; got {size}")
    items = iter(dataset)
    while chunk := list(islice(items, size)):
        yield chunk


def _saved(batches: Sequence[Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    # Views would be sent with the whole that they look at.
    own = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, list(batches))
    torch.save(own, buffer)
    return buffer.getvalue()


def _bytes(program: Any) -> bytes:
    if isinstance(program, (bytes, bytearray, memoryview)):
        return bytes(program)
    if isinstance(program, (str, os.PathLike)):
        return Path(program).read_bytes()
    return bytes(program.buffer)
