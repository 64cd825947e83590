"""The operator table: each row's TOSA graph in the reference model equals the PT2E program, and
what Vela makes of the graph equals the reference model bit by bit, in the simulator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from ethosu_cases import ACCEPTED, FUNCTIONS, POSITIVE, QD, REFUSED, Case, Quantized
from ethosu_reference import SPECS, assert_simulated, compare, partitioned, parts

import edgewise
from closeness import assert_bounded
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner
from edgewise.backends.ethosu.lowering.accuracy import ONE_SCALE
from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.quant import Quant, ScaleOutOfReach, table_int8
from edgewise.backends.ethosu.lowering.tosa import INT16, INT32, INT48, Dry
from edgewise.backends.ethosu.operators import TABLE
from support import run_ours


def flat(table: dict) -> list:
    return [
        pytest.param(row, case, id=f"{row}: {name}" if name else row)
        for row, cases in table.items()
        for name, case in cases.items()
    ]


def declared(name: str, case: Case) -> int:
    """The steps that the row says an element may be off."""
    (row,) = [row for row in TABLE.definitions if row.name == name]
    one_scale = case.same and ONE_SCALE in row.accuracies()
    return row.accuracies()[ONE_SCALE if one_scale else f"int{case.bits}"].steps or 0


@pytest.mark.parametrize(("row", "case"), flat(ACCEPTED))
def test_accepted(row: str, case: Case) -> None:
    module = Quantized(case)
    program = torch.export.export(module, module.inputs)
    for family in case.families:
        result = partitioned(program, family)
        assert not result.refusals, result.refusals
        (part,) = parts(result)
        if family in (case.families[0], "U85"):
            found = compare(part, seeds=1, family=family)
            assert found.steps <= declared(row, case), found
        assert_simulated(found, SPECS[family])


OF_ANY_SIZE = ("add", "mul", "conv2d", "linear", "mean", "sum", "softmax", "log_softmax", "gelu")


@pytest.mark.parametrize("size", [1e-9, 1e5])
@pytest.mark.parametrize("row", OF_ANY_SIZE)
def test_inputs_of_any_size(row: str, size: float) -> None:
    """Nothing outgrows the integers on the way, or becomes nothing."""
    case = dataclasses.replace(next(iter(ACCEPTED[row].values())), size=size)
    module = Quantized(case)
    result = partitioned(torch.export.export(module, module.inputs), case.families[0])
    assert not result.refusals, result.refusals
    found = compare(parts(result)[0], seeds=1, family=case.families[0])
    assert found.steps <= declared(row, case), found


def test_shifts_to_the_right_are_refused() -> None:
    b = Builder("U55", Dry())
    value = b.tosa.input((2, 3), INT32, (0, 1))
    assert b.binary("LOGICAL_LEFT_SHIFT", value, b.number(1, value)).dims == (2, 3)
    with pytest.raises(ValueError, match="shifts to the right are rescales"):
        b.binary("ARITHMETIC_RIGHT_SHIFT", value, b.number(1, value), round=False)


@pytest.mark.parametrize(
    ("kind", "fits", "too_large"), [(INT32, 2.0**28, 2.0**29), (INT48, 8191.0, 8192.0)]
)
def test_scales_without_a_shift_are_refused(kind: str, fits: float, too_large: float) -> None:
    b = Builder("U85", Dry())
    value = b.tosa.input((2, 3), kind, (0, 1))
    assert b.rescale(value, [fits], INT16).dtype == INT16
    with pytest.raises(ScaleOutOfReach, match="must be below"):
        b.rescale(value, [too_large], INT16)


WIDE = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
TABLES_16 = {**FUNCTIONS, **POSITIVE}


def wide(function: Any) -> Quantized:
    """At each of the 65536 stored numbers, from -3 to 3."""
    module = Quantized(Case(function, ((2**16,),), bits=16))
    module.inputs, module.scales = (WIDE,), [3 / 2**15]
    return module


def within_domain(function: Any, stored: torch.Tensor, scale: float) -> torch.Tensor:
    """Zeros for numbers that stand for the border of the domain (see the test of borders): there
    the program computes NaN."""
    real = stored.float() * scale
    near = ~(function(real + scale / 2).isnan() & function(real - scale / 2).isnan())
    return torch.where(function(real).isnan() & near, 0, stored)


@pytest.mark.parametrize("name", TABLES_16)
def test_functions_of_16_bits_at_every_number(name: str) -> None:
    """Within what the row declares."""
    module = wide(TABLES_16[name])
    (part,) = parts(partitioned(torch.export.export(module, module.inputs), "U55"))
    values = compare(part, seeds=1, inputs=[within_domain(TABLES_16[name], WIDE, module.scales[0])])
    assert values.steps <= declared(name, module.case), values


class Narrowed(torch.nn.Module):
    """A function of 16-bit numbers, quantized with 8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real = QD.dequantize_per_tensor.default(x, 1e-4, 0, -(2**15), 2**15 - 1, torch.int16)
        result = torch.sigmoid(real)
        return QD.quantize_per_tensor.default(result, 1 / 255, -128, -128, 127, torch.int8)


def test_functions_of_16_bits_give_8_bits() -> None:
    (part,) = parts(partitioned(torch.export.export(Narrowed(), (WIDE,)), "U55"))
    values = compare(part, seeds=1, inputs=[WIDE])
    assert values.steps <= 1, values


BORDERS_8 = {
    # function, scale and zero point of its operand; stored, and the exact result
    "acos": (torch.acos, 2 / 255, 0, {-128: np.pi, 127: 0.0887}),
    "acos, beyond": (torch.acos, 2 / 255, 0, {-127: 3.0527}),
    "acosh": (torch.acosh, 2 / 255, -255, {-128: 0.0, 127: 1.7627}),
    "asin": (torch.asin, 1 / 127, 0, {0: 0.0, 127: np.pi / 2}),
    "sqrt": (torch.sqrt, 4 / 255, -128, {-128: 0.0, 127: 2.0}),
    "log of less than nothing": (torch.log, 4 / 255, 0, {-1: 0.0, 100: 0.4503}),
}


@pytest.mark.parametrize("name", BORDERS_8)
def test_tables_at_the_border_of_a_domain(name: str) -> None:
    """A stored number beyond it stands for the border if that is less than half a step away."""
    function, scale, zero, known = BORDERS_8[name]
    source = Quant(scale, zero, -128, 127, torch.int8)
    result = Quant(4 / 255, -128, -128, 127, torch.int8)
    table = table_int8(source, result, function)
    for stored, exact in known.items():
        assert abs((int(table[stored + 128]) + 128) * result.scale - exact) <= result.scale


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
    assert sorted(ACCEPTED) == sorted(row.name for row in TABLE.definitions)
