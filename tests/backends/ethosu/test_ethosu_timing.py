"""The cycle model next to Vela's estimates, and its trace file."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ethosu", reason="extra [ethosu]")

import edgewise  # noqa: E402
from edgewise.backends.ethosu.disassemble import programs  # noqa: E402
from edgewise.backends.ethosu.simulator.timing import DMA, NPU, WAITING, timeline  # noqa: E402
from edgewise.backends.ethosu.simulator.trace import trace  # noqa: E402
from examples.models import MODELS  # noqa: E402

NAMES = ("resnet8", "ds_cnn", "mobilenet_v1_025", "autoencoder")
TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


def made(name: str, target: str) -> tuple[Any, float]:
    spec = MODELS[name]
    x = spec.example_inputs(1)
    program = edgewise.compile(
        spec.build(0), x, backend=target, quantize="int8", calibration=[x], verbose=False
    )
    (estimate,) = program.delegation_report().estimates.values()
    (npu,) = programs(bytes(program.buffer))
    return timeline(npu.commands), estimate.figures["cycles"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_within_a_tenth_of_vela(name: str, target: str) -> None:
    found, estimated = made(name, target)
    assert found.cycles == pytest.approx(estimated, rel=0.1)


def test_lanes_and_trace() -> None:
    found, _ = made("ds_cnn", "ethos-u55-128")
    for lane in (NPU, DMA, WAITING):
        spans = [span for span in found.spans if span.lane == lane]
        assert spans
        assert all(a.end <= b.begin for a, b in itertools.pairwise(spans))
    assert found.busy(NPU) + found.busy(WAITING) == found.cycles
    events = [e for e in json.loads(trace([found]))["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(found.spans)
    last = max(e["ts"] + e["dur"] for e in events)
    assert last == pytest.approx(found.cycles / found.clock * 1e6)
