"""Every row: what it lowers to, run in LiteRT's reference kernels, against the PT2E reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from neutron_cases import ACCEPTED, REFUSED, Shape
from torch import nn
from torch.export import ExportedProgram

import edgewise
from edgewise.backends.neutron import (
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.lowering import ExecutorchProgramManager
from edgewise.quantize.flow import quantize
from edgewise.runtime import load

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert


def quantized(make: Callable[[], nn.Module], shapes: tuple[Shape, ...]) -> ExportedProgram:
    torch.manual_seed(0)
    batches = [tuple(torch.randn(s) for s in shapes) for _ in range(4)]
    return quantize(
        make().eval(), batches[0], "int8", NeutronQuantizer, calibration=batches, progress=False
    )


def lowered(program: ExportedProgram, **options: Any) -> ExecutorchProgramManager:
    spec = generate_neutron_compile_spec(
        "imxrt700", neutron_converter_flavor="reference", **options
    )
    partitioner = NeutronPartitioner(spec)
    return edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()


CHAINS = {"log", "flatten-linear", "neg-relu"}
WRAPS = {"sum"}
"""LiteRT's reference kernel does not cut what is outside of int8."""


def steps_off(
    program: ExportedProgram, lowered: ExecutorchProgramManager, shapes: Any, saturates: bool
) -> int:
    """The largest difference to the PT2E reference, in steps of the result's scale."""
    scale = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1].args[1]
    reference = program.module()
    run = load(bytes(lowered.buffer))
    generator = torch.Generator().manual_seed(1)
    worst = 0
    for size in (1.0, 3.0) if saturates else (0.2,):
        inputs = [size * torch.randn(s, generator=generator) for s in shapes]
        found = run(*(x.numpy() for x in inputs))
        steps = (found - reference(*inputs).detach().numpy()) / scale
        worst = max(worst, int(np.abs(np.rint(steps)).max()))
    return worst


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    make, shapes = ACCEPTED[name]
    program = quantized(make, shapes)
    made = lowered(program)
    report = made.delegation_report()
    left = {n.operator for n in report.refused}
    assert left <= {
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_tensor.default",
    }, str(report)
    operators = {"bmm-linear": 4}.get(name, 3 if name in CHAINS else 1)
    assert steps_off(program, made, shapes, saturates=name not in WRAPS) <= operators


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, shapes, message = REFUSED[name]
    made = lowered(quantized(make, shapes))
    reasons = [str(r) for n in made.delegation_report().refused for r in n.refusals]
    assert any(re.search(message, r) for r in reasons), reasons
