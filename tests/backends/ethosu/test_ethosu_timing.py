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


class _Normed(torch.nn.Module):
    """No weights before its first sum over channels."""

    def forward(self, x: Any) -> Any:
        return torch.softmax(x, -1) * torch.nn.functional.layer_norm(x, (64,))


WIDE = {
    "normalization": (_Normed(), (1, 40, 64)),
    "attention": (torch.nn.MultiheadAttention(64, 4, batch_first=True), (1, 32, 64)),
    "recurrent": (torch.nn.LSTM(16, 32, batch_first=True), (1, 6, 16)),
}
"""Networks that compute in 32 bits what normalizes, in chains of kernels."""


@pytest.mark.parametrize("target", ["ethos-u85-128", "ethos-u85-256", "ethos-u85-512"])
@pytest.mark.parametrize("name", WIDE)
def test_wide_operands_and_chains(name: str, target: str) -> None:
    torch.manual_seed(0)
    model, shape = WIDE[name]
    x = torch.randn(shape)
    inputs = (x, x, x) if name == "attention" else (x,)
    program = edgewise.compile(
        model.eval(), inputs, backend=target, quantize="int8", calibration=[inputs], verbose=False
    )
    (estimate,) = program.delegation_report().estimates.values()
    (npu,) = programs(bytes(program.buffer))
    cycles = timeline(npu.commands).cycles
    assert cycles == pytest.approx(estimate.figures["cycles"], rel=0.45)


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
