"""The operator table in words, for `edgewise ops`."""

from __future__ import annotations

from edgewise.backends.neutron.rows import all_rows
from edgewise.partition.rows import facts_of
from edgewise.registry import OperatorFacts


def operator_facts() -> list[OperatorFacts]:
    """As `edgewise.registry.Backend.operators`."""
    return [
        facts_of(row, "int8", row.accuracy, row.tflite)
        for row in sorted(all_rows(), key=lambda row: row.name)
    ]
