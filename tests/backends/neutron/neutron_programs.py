"""What tests of programs share: quantized, lowered, what is said of them, how far they are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

import edgewise
from edgewise.backends.neutron import (
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.format.file import read
from edgewise.lowering import ExecutorchProgramManager
from edgewise.quantize.flow import quantize
from edgewise.runtime import load


class Net(nn.Module):
    """A residual, pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.head(self.pool(self.second(x) + x).flatten(1))


INPUT = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def quantized(
    model: nn.Module, *inputs: torch.Tensor, quantizer: Any = NeutronQuantizer, **options: Any
) -> ExportedProgram:
    torch.manual_seed(0)
    batches = [inputs, *(tuple(torch.randn_like(x) for x in inputs) for _ in range(3))]
    return quantize(
        model.eval(),
        inputs,
        "int8",
        quantizer,
        calibration=batches,
        progress=False,
        **options,
    )


def partitioner(*given: Any, config: str = "imxrt700", **options: Any) -> NeutronPartitioner:
    options.setdefault("neutron_converter_flavor", "reference")
    return NeutronPartitioner(generate_neutron_compile_spec(config, **options), *given)


def lowered(program: ExportedProgram, *with_: Any) -> ExecutorchProgramManager:
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[*with_] or [partitioner()])
    return edge.to_executorch()


def backends(made: ExecutorchProgramManager) -> list[str]:
    return [d.id for d in read(bytes(made.buffer)).program.execution_plan[0].delegates]


def reasons(made: ExecutorchProgramManager) -> str:
    return "\n".join(
        f"{n.operator}: {r} try {r.hint}"
        for n in made.delegation_report().refused
        for r in n.refusals
    )


def steps_off(program: ExportedProgram, made: ExecutorchProgramManager, *inputs: Any) -> int:
    """The largest difference to the PT2E reference, in steps of the result's scale."""
    scale = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1].args[1]
    expected = program.module()(*inputs).detach().numpy()
    found = load(bytes(made.buffer))(*inputs)
    assert tuple(found.shape) == expected.shape
    return int(np.abs(np.rint((np.asarray(found) - expected) / scale)).max())
