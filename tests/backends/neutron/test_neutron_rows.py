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
from closeness import assert_bounded
from edgewise.backends.neutron import (
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.rows import all_rows
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


WRAPS = {"sum"}
"""LiteRT's reference kernel does not cut what is outside of int8."""


ROWS = {str(target): row for row in all_rows() for target in row.targets}


def declared(lowered: ExecutorchProgramManager) -> int:
    """The steps that an element may be off by the rows of all operators together, each of whose
    results is an operand of the next."""
    nodes = [n for n in lowered.delegation_report().nodes if n.partition and n.operator in ROWS]
    return sum(ROWS[n.operator].accuracy["int8"].steps or 0 for n in nodes)


def assert_within_steps(
    program: ExportedProgram, lowered: ExecutorchProgramManager, shapes: Any, saturates: bool
) -> None:
    """Each element is near enough to the PT2E reference, in steps of the result's scale."""
    scale = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1].args[1]
    reference = program.module()
    run = load(bytes(lowered.buffer))
    generator = torch.Generator().manual_seed(1)
    steps = declared(lowered)
    for size in (1.0, 3.0) if saturates else (0.2,):
        inputs = [size * torch.randn(s, generator=generator) for s in shapes]
        want = reference(*inputs).detach()
        found = torch.from_numpy(np.ascontiguousarray(run(*(x.numpy() for x in inputs))))
        bound = torch.full(want.shape, (steps + 1e-3) * scale)
        why = f"{steps} steps of {scale:g}"
        assert_bounded(found.reshape(want.shape), want, bound, inputs=inputs, why=why)


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
    assert_within_steps(program, made, shapes, saturates=name not in WRAPS)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, shapes, message = REFUSED[name]
    made = lowered(quantized(make, shapes))
    reasons = [str(r) for n in made.delegation_report().refused for r in n.refusals]
    assert any(re.search(message, r) for r in reasons), reasons
