"""The operator table in words, for `edgewise ops`."""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.table import OpRow
from edgewise.backends.ethosu.rows import all_rows
from edgewise.partition.rows import facts_of
from edgewise.registry import OperatorFacts


def operator_facts() -> list[OperatorFacts]:
    """As `edgewise.registry.Backend.operators`."""
    return [
        facts_of(row, _types(row), row.accuracy, row.also)
        for row in sorted(all_rows(), key=lambda row: row.name)
    ]


def _types(row: OpRow) -> str:
    only = f" ({', '.join(row.only)})" if row.only else ""
    return ("int8, int16" if row.int16 else "int8") + only
