"""The steps of a combination, each a function of content that runs in a process of its own.

load, data -> build -> evaluate, measure. Each is told what earlier ones found: digests and names
of files in the store. Results are plain data.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import torch

from edgewise.scale import metrics as metric
from edgewise.scale.fingerprint import Fingerprint
from edgewise.scale.models import restore, save
from edgewise.scale.sources import made_of, resolve
from edgewise.scale.store import Store
from edgewise.scale.task import Context

Arguments = Mapping[str, Any]
_WARM = 3
_LEAST, _MOST = 10, 2000
"""Calls whose time is taken."""


def load(arguments: Arguments, context: Context) -> dict[str, Any]:
    """A model, made once and kept in the store. `model`: the fingerprint of its content."""
    return save(arguments, context)


def data(arguments: Arguments, context: Context) -> dict[str, Any]:
    """Reads a data set through. `data`: the fingerprint of its content."""
    found = Fingerprint()
    count = 0
    for item in samples(arguments, context):
        if count == 0:
            _check_item(arguments, item)
        found.add(item)
        count += 1
    if count == 0:
        raise ValueError(f"[{arguments['source']}] data must hold at least one batch; got none")
    return {"data": str(found), "batches": count}


def samples(arguments: Arguments, context: Context) -> Iterator[Any]:
    """The items of a data set, one by one: batches to calibrate with, or (inputs, target)."""
    if arguments["source"].startswith("store:"):
        import io

        file = Store(context.store).read(arguments["source"].removeprefix("store:"))
        made = torch.load(io.BytesIO(file), weights_only=False)
    else:
        made = made_of(arguments["source"], arguments.get("arguments", {}), context.root)
    return itertools.islice(iter(made), arguments.get("limit"))


def build(arguments: Arguments, context: Context) -> dict[str, Any]:
    """Exports, quantizes, lowers and writes a program, and its report; columns of a row."""
    from edgewise.lowering.compiling import compile

    model, inputs = restore(arguments["model"], context)
    quantize = arguments["quantize"]
    calibration = arguments.get("calibration")
    if quantize["scheme"] is not None and isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    start = time.perf_counter()
    program = compile(
        model,
        inputs,
        backend=arguments["backend"],
        quantize=quantize["scheme"],
        calibration=samples(calibration, context) if calibration else None,
        keep_float=quantize.get("keep_float", ()),
        group_size=quantize.get("group_size"),
        verbose=False,
    )
    file = program.buffer
    seconds = time.perf_counter() - start
    report = program.delegation_report()
    store = Store(context.store)
    name = store.add("programs", file, ".pte")
    return {
        "size_bytes": len(file),
        "delegates": len(report.delegates),
        **{f"delegated_{q}": report.share(q) for q in ("nodes", "macs", "bytes")},
        "refused": _refused(report),
        **_estimates(report),
        "lower_seconds": seconds,
        "program": name,
        "report": _write_report(store, name, program),
    }


def evaluate(arguments: Arguments, context: Context) -> dict[str, Any]:
    """Figures of a program over a data set, run on the native runtime or a simulator."""
    import edgewise

    chosen = {name: _metric(name, context) for name in arguments["metrics"]}
    wants_reference = any(map(metric.needs_reference, chosen.values()))
    reference = _reference(arguments, context) if wants_reference else None
    program = edgewise.load(Store(context.store).read(arguments["program"]), threads=1)
    pairs = samples(arguments["data"], context)
    count = metric.add_pairs(chosen.values(), program, pairs, reference)
    figures = {k: float(v) for one in chosen.values() for k, v in one.result().items()}
    # JSON has neither infinity nor NaN.
    figures_or_none = {k: v if math.isfinite(v) else None for k, v in figures.items()}
    return {"figures": figures_or_none, "samples": count}


def measure(arguments: Arguments, context: Context) -> dict[str, Any]:
    """Milliseconds of a program's call on this machine with the model's example inputs, while
    nothing else that an engine runs may run: the median and the 90th percentile."""
    import edgewise

    _, inputs = restore(arguments["model"], context)
    file = Store(context.store).read(arguments["program"])
    program = edgewise.load(file, threads=arguments["threads"])
    for _ in range(_WARM):
        program(*inputs)
    times: list[float] = []
    start = time.perf_counter()
    least = arguments["seconds"]
    while len(times) < _LEAST or (len(times) < _MOST and time.perf_counter() - start < least):
        before = time.perf_counter()
        program(*inputs)
        times.append(1e3 * (time.perf_counter() - before))
    times.sort()
    return {
        "latency_ms": times[len(times) // 2],
        "latency_p90_ms": times[int(len(times) * 0.9)],
        "calls": len(times),
    }


def sensitivity(arguments: Arguments, context: Context) -> dict[str, Any]:
    """The modules of a model that is to be quantized, the most sensitive first."""
    from edgewise.accuracy.sensitivity import simulate
    from edgewise.accuracy.suggesting import rank_modules
    from edgewise.quantize.calibration import as_batch
    from edgewise.quantize.schemes import scheme_of
    from edgewise.registry import quantizer_for

    model, inputs = restore(arguments["model"], context)
    if isinstance(model, torch.export.ExportedProgram):
        raise TypeError("[search] the model must be a module; got an exported program")
    quantize = arguments["quantize"]
    calibration = arguments.get("calibration")
    batches = [as_batch(i) for i, _ in samples({**arguments["data"], "limit": 16}, context)]
    simulation = simulate(
        model,
        inputs,
        scheme_of(quantize["scheme"], quantize.get("group_size")),
        quantizer_for(arguments["backend"]),
        batches,
        samples(calibration, context) if calibration else None,
        quantize.get("keep_float", ()),
    )
    found = rank_modules(model, simulation)
    return {"modules": [[one.module, one.type, one.share] for one in found]}


def _metric(name: str, context: Context) -> metric.Metric:
    if name in metric.METRICS:
        return metric.as_metric(name)
    return metric.as_metric(resolve(name, context.root), name.rpartition(":")[2])


def _reference(arguments: Arguments, context: Context) -> Any:
    model, _ = restore(arguments["model"], context)
    module = model.module() if isinstance(model, torch.export.ExportedProgram) else model.eval()

    return metric.arrays_of(lambda *inputs: module(*map(torch.as_tensor, inputs)))


def _check_item(arguments: Arguments, item: Any) -> None:
    if arguments.get("pairs") and not (isinstance(item, (tuple, list)) and len(item) == 2):
        raise ValueError(
            f"[{arguments['source']}] evaluation data must be pairs (inputs, target); got "
            f"{type(item).__name__}; try (inputs, None) for metrics that need no target"
        )


def _write_report(store: Store, program_name: str, program: Any) -> str:
    """The page about a program, named like it: paths of this machine may be in it."""
    from edgewise.report import Subject, render

    path = PurePosixPath(program_name)
    name = f"reports/{path.stem}.html"
    store.write(name, render([Subject(path.name, program.record())]).encode())
    return name


def _refused(report: Any) -> str:
    """Of what no backend took: the most frequent operator and reason."""
    counts: dict[str, int] = {}
    for node in report.refused:
        for refusal in node.refusals:
            text = f"{node.operator}: {refusal}"
            counts[text] = counts.get(text, 0) + 1
    return max(counts, key=lambda text: counts[text], default="")


def _estimates(report: Any) -> dict[str, float | None]:
    """Of all NPU programs together: cycles, and milliseconds at the compiler's clock."""
    figures = [found.figures for found in report.estimates.values()]
    cycles = [one["cycles"] for one in figures if "cycles" in one]
    rates = [one["inferences per second"] for one in figures if one.get("inferences per second")]
    return {
        "npu_cycles": sum(cycles) if cycles else None,
        "npu_ms": sum(1e3 / rate for rate in rates) if rates else None,
    }
