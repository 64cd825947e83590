"""The operator table in words, for `edgewise ops`."""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.table import OpRow
from edgewise.backends.xnnpack.rows import all_rows
from edgewise.backends.xnnpack.rows.quantization import QUANTIZED, accuracies
from edgewise.partition.rows import facts_of
from edgewise.registry import OperatorFacts


def operator_facts() -> list[OperatorFacts]:
    """As `edgewise.registry.Backend.operators`."""
    return [
        facts_of(row, _types(row), accuracies(row), row.also)
        for row in sorted(all_rows(), key=lambda row: row.name)
    ]


def _types(row: OpRow) -> str:
    types = [str(one).removeprefix("torch.") for one in row.dtypes]
    quantized = QUANTIZED.get(row.name)
    return ", ".join([*types, quantized] if quantized else types)
