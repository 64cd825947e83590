"""The operator table as Markdown, made from the rows.

python -m edgewise.backends.ethosu.lowering.document > docs/ethosu-operators.md
"""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.table import ANY, FUNCTION, MAX_RANK, STORED, OpRow
from edgewise.backends.ethosu.rows import all_rows
from edgewise.partition.accuracy import shown

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

| operator | operators of torch | operands | bits | targets | constraints | computed as | accuracy |
|---|---|---|---|---|---|---|---|
"""
_READS = {STORED: "dequantized", FUNCTION: "a function", ANY: "any"}


def markdown() -> str:
    return _HEAD + "".join(_line(row) for row in sorted(all_rows(), key=lambda r: r.name))


def _line(row: OpRow) -> str:
    targets = ", ".join(f"`{t}`".replace("aten.", "") for t in row.targets)
    families = f"{', '.join(row.only)}: {row.why}" if row.only else "all"
    rules = "; ".join(c.rule for c in row.constraints)
    bits = "8, 16" if row.int16 else "8"
    bounds = shown(row.accuracy)
    cells = (row.name, targets, _READS[row.reads], bits, families, rules, row.also, bounds)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    print(markdown(), end="")
