"""The operator table as Markdown, made from the rows.

python -m edgewise.backends.neutron.lowering.document > docs/neutron-operators.md
"""

from __future__ import annotations

from collections.abc import Callable

from edgewise.backends.neutron.lowering.table import OpRow
from edgewise.backends.neutron.rows import all_rows
from edgewise.backends.neutron.targets import TARGETS, NeutronTarget
from edgewise.partition.accuracy import shown
from edgewise.partition.table_document import table, table_of_rows

_HEAD = """# Operators of the Neutron backend

Made from the rows of `edgewise.backends.neutron.rows` by
`python -m edgewise.backends.neutron.lowering.document`; a test fails if it is stale.

For every row: static shapes, tensors with elements, activations in int8 (-128..127) with one
scale, one computing operator between dequantizations and quantizations. "between" says what may
stand beside it there: *moves* before or behind it, *clamps* behind it. What is *idle* is no reason
for a partition of its own, for it may compute nothing. What was dequantized may be quantized anew:
that is an ADD of zero.

"accuracy" bounds every element, in steps of the result's scale: what LiteRT's reference kernels
make of the TFLite operators, against the PT2E reference, which dequantizes, computes in float32
and quantizes. Operators in a row may add up.

"""

_TARGETS = """
## Targets

The figures are the converter's if one is installed, else these; `-` is known to NXP's converter
only, and lowering for the target needs it. "macs" divides the channels that the rules speak of.

"""


_COLUMNS: dict[str, Callable[[OpRow], str]] = {
    "between": lambda row: ", ".join(_between(row)) or "computes",
    "constraints": lambda row: "; ".join(c.rule for c in row.constraints),
    "TFLite": lambda row: row.tflite,
    "accuracy": lambda row: shown(row.accuracy),
}


def markdown() -> str:
    heads = ("config", "core", "subsystem", "macs", "pipes")
    targets = table(heads, map(_target, TARGETS.values()))
    return _HEAD + table_of_rows(all_rows(), _COLUMNS) + _TARGETS + targets


def _between(row: OpRow) -> list[str]:
    kinds = {"moves": row.moves, "clamps": row.clamps, "idle": row.idle}
    return [name for name, is_so in kinds.items() if is_so]


def _target(target: NeutronTarget) -> tuple[str, ...]:
    figures = ("-" if n is None else str(n) for n in (target.macs, target.pipes))
    return f"`{target.name}`", target.core, "yes" if target.subsystem else "no", *figures


if __name__ == "__main__":
    print(markdown(), end="")
