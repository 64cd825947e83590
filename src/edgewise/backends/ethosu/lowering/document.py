"""The operator table as Markdown, made from the rows.

python -m edgewise.backends.ethosu.lowering.document > docs/ethosu-operators.md
"""

from __future__ import annotations

from collections.abc import Callable

from edgewise.backends.ethosu.lowering.table import ANY, FUNCTION, MAX_RANK, STORED, OpRow
from edgewise.backends.ethosu.rows import all_rows
from edgewise.partition.accuracy import shown
from edgewise.partition.table_document import table_of_rows

_HEAD = f"""# Operators of the Ethos-U backend

Made from the rows of `edgewise.backends.ethosu.rows` by
`python -m edgewise.backends.ethosu.lowering.document`; a test fails if it is stale.

For every row: static shapes, at least one element, at most {MAX_RANK} dimensions, integers of 8
bits (16 where the column says so) with one scale. "operands" says what stands before the
operator: *dequantized* operands (or constants); *a function* of one dequantized tensor, whose
functions in a row become one table; or *any* value that the NPU computes.

"accuracy" bounds every element, in steps of the result's scale, by the type of the operands:
against the PT2E reference, which dequantizes, computes in float32 and quantizes. "one scale" is
where operands and result have the same one.

"""
_READS = {STORED: "dequantized", FUNCTION: "a function", ANY: "any"}


_COLUMNS: dict[str, Callable[[OpRow], str]] = {
    "operands": lambda row: _READS[row.reads],
    "bits": lambda row: "8, 16" if row.int16 else "8",
    "targets": lambda row: f"{', '.join(row.only)}: {row.why}" if row.only else "all",
    "constraints": lambda row: "; ".join(c.rule for c in row.constraints),
    "computed as": lambda row: row.also,
    "accuracy": lambda row: shown(row.accuracy),
}


def markdown() -> str:
    return _HEAD + table_of_rows(all_rows(), _COLUMNS)


if __name__ == "__main__":
    print(markdown(), end="")
