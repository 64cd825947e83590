"""Shared by all tests. Helpers that are no fixtures are in support.py."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from edgewise.passes import Verifier, watching
from qat_patterns import leave_out_absent_convolutions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `examples` is not installed

# The same examples every time, and no limit that a busy machine could miss.
settings.register_profile(
    "edgewise",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("edgewise")


# Pytest would listen to torch's structured trace, which then is written for each export: a quarter
# of its time.
setattr(logging.getLogger("torch.__trace"), "addHandler", lambda handler: None)  # noqa: B010


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported by now stays: collections of garbage need not walk over a million objects
    of torch's, nor each phase of each test be told to its eighty loggers."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and not getattr(logger, "propagate", True):
            setattr(logger, "addHandler", lambda handler: None)  # noqa: B010


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Tables of cases make their layers when they are imported: the same weights every time."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


LONG = ("scale", "faults", "docs", "examples", "interop", "fuzz", "llm", "random_programs")
"""Folders with files that take long, and wait for other processes for much of it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: one that begins last keeps a single worker busy while the others rest.

    Tests with the markers `peer` and `browser` are skipped where these are not installed.
    """
    from importlib.util import find_spec
    from shutil import which

    here = Path(__file__).parent
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(here).parts[0], len(LONG)))

    missing = {}
    if find_spec("executorch") is None:
        missing["peer"] = "executorch is not installed (extra `peer`)"
    if not (which("chromium") and which("chromedriver") and find_spec("selenium")):
        missing["browser"] = "Chromium is not installed (Debian: chromium, chromium-driver)"
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            0
        )  # `torch.manual_seed` notes who asks, for each device
        yield


@pytest.fixture(autouse=True)
def _quick_training() -> None:
    leave_out_absent_convolutions()


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as in a pipe: whoever runs the tests may say how wide a terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def make_pte() -> Callable[..., bytes]:
    """`make_pte(module, example_inputs, partitioner="xnnpack") -> bytes` of a `.pte` file.

    partitioner: "xnnpack", None for the runtime's own kernels, or partitioners.
    dynamic_shapes, config and the options of `to_edge_transform_and_lower` by keyword.
    """
    from support import lower

    def make(module: torch.nn.Module, inputs: Any, **options: Any) -> bytes:
        return lower(module, inputs, **options).buffer

    return make


@pytest.fixture(autouse=True)
def _verified() -> Iterator[None]:
    """Passes do what they declare and leave valid graphs."""
    with watching(Verifier()):
        yield
