"""What a sweep does: frozen, checked, and the combinations that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewise.quantize.schemes import scheme_of
from edgewise.registry import NO_BACKEND, backend_for, scheme_problem
from edgewise.scale.task import Limits


@dataclass(frozen=True)
class DataSpec:
    """Batches that a function yields: inputs to calibrate with, or pairs (inputs, target).

    source: "file.py:function" or "package.module:function". arguments: of the function.
    limit: batches that are taken; None: all. version: stands for the content, which is then
    not read for its fingerprint; "": it is read.
    """

    name: str
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    version: str = ""


@dataclass(frozen=True)
class ModelSpec:
    """A model: "file.py:function" that returns a module, or (module, inputs); or a ".pt2" file.

    inputs: a function that returns the example inputs. calibration, evaluation: its data.
    """

    name: str
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None
    calibration: tuple[DataSpec, ...] = ()
    evaluation: tuple[DataSpec, ...] = ()


@dataclass(frozen=True)
class Search:
    """Which modules to keep in float, found by trials: at most `limit` of them, for a ratio of
    `target_db` decibels; None: as good as it gets within a decibel."""

    target_db: float | None = None
    limit: int = 6


@dataclass(frozen=True)
class Setting:
    """How to quantize. scheme: of `edgewise.quantize.SCHEMES`; None: not at all."""

    name: str
    scheme: str | None
    group_size: int | None = None
    keep_float: tuple[str, ...] = ()
    search: Search | None = None

    @property
    def needs_calibration(self) -> bool:
        return self.scheme is not None and scheme_of(self.scheme).needs_calibration


@dataclass(frozen=True)
class Latency:
    """How long a program is called, and with how many threads."""

    threads: int = 1
    seconds: float = 0.5


@dataclass(frozen=True)
class Combination:
    """One row of the result."""

    model: ModelSpec
    backend: str
    setting: Setting
    calibration: DataSpec | None

    @property
    def name(self) -> str:
        parts = [self.model.name, self.backend, self.setting.name]
        return " · ".join([*parts, self.calibration.name] if self.calibration else parts)

    @property
    def on_npu(self) -> bool:
        found = backend_for(self.backend)
        return found is not None and found.is_simulated

    @property
    def impossible(self) -> str:
        """Why it cannot be lowered, as far as that is known beforehand; else ""."""
        scheme = self.setting.scheme
        if self.backend == NO_BACKEND and scheme is not None:
            return "no backend, no quantizer"
        problem = scheme_problem(self.backend, scheme) if scheme is not None else ""
        if problem:
            found = backend_for(self.backend)
            known = (found and found.schemes) or ()
            return f"{problem}: only {', '.join(known)}" if known else problem
        if self.setting.needs_calibration and self.calibration is None:
            return f"{scheme} needs calibration data"
        return ""


_LIMITS = Limits(seconds=1800)


@dataclass(frozen=True)
class Plan:
    """Models x backends x settings x calibration sets.

    root: the folder that paths start from. out: where results go. latency: None: not measured.
    skip: combinations left out: mappings of model, backend, quantize to names.
    """

    models: tuple[ModelSpec, ...]
    backends: tuple[str, ...]
    settings: tuple[Setting, ...]
    metrics: tuple[str, ...] = ()
    latency: Latency | None = Latency()
    limits: Limits = _LIMITS
    skip: tuple[Mapping[str, str], ...] = ()
    out: str = "results"
    root: str = "."
    name: str = "sweep"

    @property
    def combinations(self) -> list[Combination]:
        """In the order of the plan; each once, calibration sets only where they matter."""
        found = []
        for model, backend, setting in itertools.product(self.models, self.backends, self.settings):
            if any(_matches(rule, model, backend, setting) for rule in self.skip):
                continue
            sets: tuple[DataSpec | None, ...] = (None,)
            if setting.needs_calibration and model.calibration:
                sets = model.calibration
            found += [Combination(model, backend, setting, one) for one in sets]
        return found


def _matches(rule: Mapping[str, str], model: ModelSpec, backend: str, setting: Setting) -> bool:
    names = {"model": model.name, "backend": backend, "quantize": setting.name}
    return all(names[key] == value for key, value in rule.items())
