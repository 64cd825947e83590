"""What follows from the definition of an operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgewise.edge.spellings import spellings
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.operators.document import Document, constraints_of
from edgewise.partition.accuracy import Accuracies, Accuracy
from edgewise.partition.constraints import equals
from edgewise.quantize.patterns import Elementwise, SameScale

aten = torch.ops.aten

SPELLED: dict[Any, set[Any]] = {
    aten.abs.default: {aten.abs.default, aten.abs_.default},
    aten.add.Tensor: {aten.add.Tensor, aten.add_.Tensor},
    aten.pow.Scalar: {aten.pow.Scalar},  # pow_.Scalar has the number as its exponent
    aten.hardtanh.default: {
        aten.hardtanh.default,
        aten.hardtanh_.default,
        aten.relu6.default,
        aten.relu6_.default,
    },
    aten.unsqueeze_copy.default: {aten.unsqueeze_copy.default, aten.unsqueeze.default},
    aten.slice_copy.Tensor: {
        aten.slice_copy.Tensor,
        aten.slice.Tensor,
        aten.narrow.default,
        aten.narrow_copy.default,
    },
    aten._softmax.default: {aten._softmax.default, aten.softmax.int},
}


@pytest.mark.parametrize("target", SPELLED, ids=str)
def test_an_operator_of_the_edge_dialect_is_spelt_in_these_ways(target: Any) -> None:
    assert set(spellings(target)) == SPELLED[target]


class Definition(OperatorDefinition[str]):
    def accuracies(self) -> Accuracies:
        return {"int8": Accuracy(steps=1, reference="PT2E")}


def table(*definitions: Definition) -> OperatorTable[..., Definition]:
    made = OperatorTable(lambda definition: definition)
    for definition in definitions:
        made.define(definition)
    return made


ABS = Definition("abs", (aten.abs.default,), "abs", quantization=Elementwise(operands=1))
CAT = Definition("cat", (aten.cat.default,), "cat", (equals("dim", 1),), keep=True)
ADD = Definition(
    "add",
    (aten.add.Tensor, aten.add.Scalar),
    "add",
    quantization={aten.add.Tensor: Elementwise(), aten.rsub.Tensor: Elementwise()},
)
EQUAL = Definition("eq", (aten.eq.Tensor,), "eq", quantization=Elementwise(real=False))


def test_a_quantizer_sees_what_torch_export_calls_it() -> None:
    assert table(ABS, CAT, ADD, EQUAL).patterns() == {
        aten.abs.default: Elementwise(operands=1),
        aten.abs_.default: Elementwise(operands=1),
        aten.add.Tensor: Elementwise(),
        aten.add_.Tensor: Elementwise(),
        aten.rsub.Tensor: Elementwise(),
        aten.eq.Tensor: Elementwise(real=False),  # eq_ writes zeros and ones among real numbers
    }


def test_composite_operators_are_kept_if_they_are_asked_for() -> None:
    assert table(ABS, CAT).kept() == [aten.cat.default]


def test_an_operator_has_one_definition_and_one_quantization() -> None:
    with pytest.raises(ValueError, match=r"one definition; got two for aten\.abs\.default"):
        table(ABS, Definition("again", (aten.abs.default,), ""))
    other = Definition("other", ("own.other",), "", quantization={aten.abs_.default: SameScale()})
    with pytest.raises(ValueError, match=r"one quantization; got two for aten\.abs_\.default"):
        table(ABS, other).patterns()


def test_the_table_in_words() -> None:
    columns = {"constraints": constraints_of}
    document = Document(table(CAT, ABS), "Head\n\n", columns, lambda one: "int8", "\nEnd\n")
    assert document.markdown() == (
        "Head\n\n| operator | operators of torch | constraints |\n|---|---|---|\n"
        "| abs | `abs.default` |  |\n| cat | `cat.default` | dim=1 |\n\nEnd\n"
    )
    first, second = document.facts()
    assert (first.name, first.operators, first.types) == ("abs", ["abs.default"], "int8")
    assert second.rules == ["dim=1"]
    assert "1 step" in second.accuracy
