"""Faults of edgewise are told as such: with the stage, the node, the user's line, their cause."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import edgewise
import edgewise.backends.ethosu.operators  # fills the table
import edgewise.backends.neutron.operators  # fills the table
from edgewise.backends.ethosu.operators import TABLE as ETHOSU_TABLE
from edgewise.backends.neutron.operators import TABLE as NEUTRON_TABLE
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.backends.xnnpack.operators import TABLE as XNNPACK_TABLE
from edgewise.cli.errors import DEFECT, failure_of
from edgewise.errors import EdgewiseError, InternalError
from edgewise.partition import DelegationSpec, Partitioner, PartitionResult
from support import export

FAULTS = (TypeError("fault"), KeyError("fault"), ValueError("fault"), AttributeError("fault"))
INPUTS = (torch.randn(2, 8),)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) + x)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail


def told(error: Exception, stage: str, line: bool = True) -> str:
    place = rf"\[\w+: aten\.\S+, \S*{re.escape(__file__.rpartition('/')[2])}:\d+\] " if line else ""
    return rf"(?s){place}.*{stage}.* must not fail; got {type(error).__name__}: .*fault.*report"


@pytest.mark.parametrize("error", FAULTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    ("rows", "backend", "quantize"),
    [
        (XNNPACK_TABLE.by_target, "xnnpack", None),
        (ETHOSU_TABLE.by_target, "ethos-u55-128", "int8"),
        (NEUTRON_TABLE.by_target, "neutron-imxrt700-reference", "int8"),
    ],
    ids=["xnnpack", "ethosu", "neutron"],
)
def test_a_fault_in_a_row(
    rows: dict, backend: str, quantize: str | None, error: Exception, monkeypatch: Any
) -> None:
    target = torch.ops.aten.add.Tensor
    monkeypatch.setitem(rows, target, replace(rows[target], lower=raising(error)))
    calibration = [INPUTS] if quantize else None
    with pytest.raises(InternalError, match=told(error, "lowering")) as raised:
        edgewise.compile(
            Model(),
            INPUTS,
            backend=backend,
            quantize=quantize,
            calibration=calibration,
            verbose=False,
        )
    assert raised.value.__cause__ is error
    assert failure_of(raised.value).code == DEFECT


def test_a_parameter_that_a_node_does_not_have(monkeypatch: Any) -> None:
    """It is found when the payload is written, long after the row gave it."""
    target = torch.ops.aten.relu.default

    def lower(to: Any, node: torch.fx.Node, args: Any) -> Any:
        return to.b.unary("ELU", to.operand(node.args[0]), fault=1.0)

    row = replace(XNNPACK_TABLE.by_target[target], lower=lower)
    monkeypatch.setitem(XNNPACK_TABLE.by_target, target, row)
    with pytest.raises(InternalError, match=told(TypeError(), "writing ELU for XNNPACK")):
        edgewise.compile(Model(), INPUTS, verbose=False)


@pytest.mark.parametrize("error", FAULTS, ids=lambda e: type(e).__name__)
def test_a_fault_in_the_trial_of_symbolic_sizes(error: Exception, monkeypatch: Any) -> None:
    """Is no advice to export with static shapes."""
    target = torch.ops.aten.relu.default
    row = replace(XNNPACK_TABLE.by_target[target], lower=raising(error))
    monkeypatch.setitem(XNNPACK_TABLE.by_target, target, row)
    program = export(Model(), INPUTS, dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(InternalError, match=told(error, r"to_\w+")) as raised:
        edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    assert raised.value.__cause__ is error


STAGES = {
    "to_edge": "edgewise.edge.to_edge.normalize",
    "to_backend": "edgewise.partition.running.lower_partitions",
    "XnnpackBackend.preprocess": "edgewise.backends.xnnpack.lowering.backend.serialize",
    "to_executorch": "edgewise.emit.emit.StructuredEmitter.emit",
}


@pytest.mark.parametrize("error", FAULTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_in_a_stage(stage: str, error: Exception, monkeypatch: Any) -> None:
    monkeypatch.setattr(STAGES[stage], raising(error))
    with pytest.raises(InternalError, match=told(error, stage, line=False)) as raised:
        edgewise.compile(Model(), INPUTS, verbose=False)
    assert raised.value.__cause__ is error


def test_a_fault_in_a_quantizer(monkeypatch: Any) -> None:
    monkeypatch.setattr(XNNPACKQuantizer, "_annotate", raising(FAULTS[0]))
    with pytest.raises(InternalError, match=told(FAULTS[0], "annotate")):
        edgewise.compile(Model(), INPUTS, quantize="int8", calibration=[INPUTS], verbose=False)


def test_what_is_the_users_stays_as_it_is() -> None:
    class Own(Partitioner):
        def partition(self, exported_program: Any) -> PartitionResult:
            raise TypeError("mine")

    def check(node: Any) -> bool:
        raise KeyError("mine")

    program = export(Model(), INPUTS)
    with pytest.raises(TypeError, match=r"^mine$"):
        edgewise.to_edge_transform_and_lower(program, partitioner=[Own()])
    with pytest.raises(KeyError, match="mine"):
        edgewise.to_edge(program).to_executorch(
            edgewise.ExecutorchBackendConfig(external_constants=check)
        )


def test_own_conditions_stay_as_they_are() -> None:
    program = export(Model(), INPUTS)

    class Other(Partitioner):
        def partition(self, exported_program: Any) -> PartitionResult:
            return PartitionResult(program, {"a": DelegationSpec("Nothing")})

    with pytest.raises(EdgewiseError, match="tagged; got another one"):
        edgewise.to_edge_transform_and_lower(program, partitioner=[Other()])
