"""The operator table: each row's TOSA graph in the reference model equals the PT2E program, and
what Vela makes of the graph equals the reference model bit by bit, in the simulator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ethosu_cases import ACCEPTED, REFUSED, Case, Quantized
from ethosu_reference import SPECS, compare, partitioned, parts

import edgewise
from closeness import assert_bounded
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, vela
from edgewise.backends.ethosu.accuracy import ONE_SCALE
from edgewise.backends.ethosu.builder import Builder
from edgewise.backends.ethosu.rows import all_rows
from edgewise.backends.ethosu.simulator import Simulator
from edgewise.backends.ethosu.tosa import INT32, Dry
from support import run_ours


def flat(table: dict) -> list:
    return [
        pytest.param(row, case, id=f"{row}: {name}" if name else row)
        for row, cases in table.items()
        for name, case in cases.items()
    ]


def declared(name: str, case: Case) -> int:
    """The steps that the row says an element may be off."""
    (row,) = [row for row in all_rows() if row.name == name]
    one_scale = case.same and ONE_SCALE in row.accuracy
    return row.accuracy[ONE_SCALE if one_scale else f"int{case.bits}"].steps or 0


@pytest.mark.parametrize(("row", "case"), flat(ACCEPTED))
def test_accepted(row: str, case: Case) -> None:
    module = Quantized(case)
    program = torch.export.export(module, module.inputs)
    for family in case.families:
        result = partitioned(program, family)
        assert not result.refusals, result.refusals
        (part,) = parts(result)
        if family == case.families[0]:
            found = compare(part, seeds=1)
            assert found.steps <= declared(row, case), found
        simulator = Simulator(vela.compile_tosa(found.tosa, SPECS[family]).program)
        for got, want in zip(simulator.run(found.inputs), found.outputs, strict=True):
            np.testing.assert_array_equal(got.reshape(want.shape), want, family)


def test_shifts_to_the_right_are_refused() -> None:
    b = Builder(Dry())
    value = b.tosa.input((2, 3), INT32, (0, 1))
    assert b.binary("LOGICAL_LEFT_SHIFT", value, b.number(1, value)).dims == (2, 3)
    with pytest.raises(ValueError, match="shifts to the right are rescales"):
        b.binary("ARITHMETIC_RIGHT_SHIFT", value, b.number(1, value), round=False)


@pytest.mark.parametrize("row", ["softmax", "layer_norm", "rms_norm", "group_norm"])
@pytest.mark.parametrize("family", SPECS)
def test_fixed_point_in_the_simulator(row: str, family: str) -> None:
    """Of long chains of 32-bit operators: what Vela makes of them computes the same."""
    case = next(iter(ACCEPTED[row].values()))
    module = Quantized(case)
    program = torch.export.export(module, module.inputs)
    partitioner = EthosUPartitioner(EthosUCompileSpec(SPECS[family]))
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner])
    ((found,),) = run_ours(edge.to_executorch().buffer, module.inputs)
    bound = torch.full(found.shape, float(declared(row, case)))
    assert_bounded(found, module(*module.inputs), bound, inputs=module.inputs)


@pytest.mark.parametrize(("operator", "case"), flat(REFUSED))
def test_refused(operator: str, case: Case) -> None:
    module = Quantized(case)
    program = torch.export.export(module, module.inputs)
    for family in case.families:
        result = partitioned(program, family)
        nodes = result.tagged_exported_program.graph.nodes
        (node,) = [n for n in nodes if str(n.target) == operator]
        assert any(case.reason in str(r) for r in result.refusals[node.name])
        assert not result.partition_tags


def test_every_row_has_an_accepted_case() -> None:
    assert sorted(ACCEPTED) == sorted(row.name for row in all_rows())
