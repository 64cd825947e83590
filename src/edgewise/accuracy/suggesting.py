"""Which few modules to keep in float: chosen by simulation, measured on what is lowered."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import edgewise
from edgewise.accuracy.comparing import compare, native
from edgewise.accuracy.metrics import decibels
from edgewise.accuracy.sensitivity import Simulation, simulate
from edgewise.accuracy.suggestion import Measured, Sensitivity, Suggestion
from edgewise.lowering import ExecutorchProgramManager
from edgewise.quantize.calibration import as_batch
from edgewise.quantize.schemes import scheme_of
from edgewise.registry import quantizer_for

_POOL = 8
"""Modules that are tried again once others are float: those that mattered most alone."""


def suggest(
    model: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    *,
    quantize: str,
    calibration: Iterable[Any] | None = None,
    batches: Iterable[Any] | None = None,
    target_db: float | None = None,
    limit: int = 4,
    keep_float: Sequence[str] = (),
    group_size: int | None = None,
) -> Suggestion:
    """What keeping 0 to `limit` modules in float brings and costs; at most half of them.

    Each module's sensitivity is found in a simulation; module after module is then chosen
    for the noise that is gone with it, and every step is compiled and run natively.
    `.keep_float` is for `edgewise.compile(..., keep_float=...)`: the first step that reaches
    `target_db`, without a target the first one within a decibel of the best.

    quantize, calibration, group_size: as for `edgewise.compile`. batches: inputs to measure
    with; None for the calibration data, or else the example inputs. keep_float: modules that
    stay in float in any case.
    """
    given: Any = model
    if not isinstance(given, torch.nn.Module):
        raise TypeError(
            f"[suggest] model must be the float torch.nn.Module; got {type(given).__name__}; "
            f"try the module that it was exported from"
        )
    if limit < 0:
        raise ValueError(f"[suggest] limit must be at least 0; got {limit}")
    example = as_batch(example_inputs)
    scheme = scheme_of(quantize, group_size)
    seen = None if calibration is None else [as_batch(batch) for batch in calibration]
    measured_on = [as_batch(b) for b in batches] if batches is not None else seen or [example]
    if not measured_on:
        raise ValueError("[suggest] batches must hold at least one; got none")
    always = list(keep_float)

    def step(kept: Sequence[str]) -> Measured:
        program = edgewise.compile(
            model,
            example,
            quantize=quantize,
            calibration=seen,
            keep_float=[*always, *kept],
            group_size=group_size,
            verbose=False,
        )
        ratio = compare(model, program, measured_on, layers=False).sqnr_db
        return Measured([*always, *kept], ratio, *_cost(program, measured_on[0]))

    simulation = simulate(model, example, scheme, quantizer_for(), measured_on, seen, always)
    sensitivities = rank_modules(model, simulation)
    steps = [step(())]
    chosen: list[str] = []
    limit = min(limit, len(sensitivities) // 2)
    while len(chosen) < limit and not _reached(steps, target_db):
        best = _next(simulation, sensitivities, chosen)
        if best is None:
            break
        chosen.append(best)
        steps.append(step(chosen))
    plain = edgewise.compile(model, example, verbose=False)
    return Suggestion(
        scheme=quantize,
        steps=steps,
        sensitivities=sensitivities,
        float_bytes=(cost := _cost(plain, measured_on[0]))[0],
        float_ms=cost[1],
        target_db=target_db,
    )


def _reached(steps: Sequence[Measured], target_db: float | None) -> bool:
    return target_db is not None and steps[-1].sqnr_db >= target_db


def rank_modules(model: torch.nn.Module, simulation: Simulation) -> list[Sensitivity]:
    """The most sensitive first."""
    before = simulation.noise(())
    found = []
    for name in simulation.candidates:
        after = simulation.noise([name])
        gain = decibels(after) - decibels(before) if before else 0.0
        share = 1 - after / before if before else 0.0
        kind = type(model.get_submodule(name)).__name__
        found.append(Sensitivity(name, kind, gain, share))
    return sorted(found, key=lambda one: -one.share)


def _next(
    simulation: Simulation, sensitivities: Sequence[Sensitivity], chosen: Sequence[str]
) -> str | None:
    pool = [one.module for one in sensitivities if one.module not in chosen][:_POOL]
    if not chosen or len(pool) < 2:
        return pool[0] if pool else None
    return min(pool, key=lambda name: simulation.noise([*chosen, name]))


def _cost(program: ExecutorchProgramManager, inputs: Sequence[Any]) -> tuple[int, float]:
    """The file's bytes and the median call's milliseconds."""
    file = program.buffer
    run = native(file, program, "forward")
    run(inputs)
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < 20 or (time.perf_counter() - start < 0.5 and len(seconds) < 500):
        before = time.perf_counter()
        run(inputs)
        seconds.append(time.perf_counter() - before)
        if time.perf_counter() - start > 10:
            break
    return len(file), 1e3 * statistics.median(seconds)
