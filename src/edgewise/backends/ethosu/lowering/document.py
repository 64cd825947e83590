"""The operator table as Markdown, made from the definitions of operators.

python -m edgewise.backends.ethosu.lowering.document > docs/ethosu-operators.md
"""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.table import ANY, FUNCTION, MAX_RANK, STORED, EthosUOperator
from edgewise.backends.ethosu.operators import TABLE
from edgewise.operators.document import Document, accuracy_of, constraints_of

_HEAD = f"""# Operators of the Ethos-U backend

Made from the definitions in `edgewise.backends.ethosu.operators` by
`python -m edgewise.backends.ethosu.lowering.document`; a test fails if it is stale.

For every operator: static shapes, at least one element, at most {MAX_RANK} dimensions, integers of
8 bits (16 where the column says so) with one scale. "operands" says what stands before the
operator: *dequantized* operands (or constants); *a function* of one dequantized tensor, whose
functions in a row become one table; or *any* value that the NPU computes.

"accuracy" bounds every element, in steps of the result's scale, by the type of the operands:
against the PT2E reference, which dequantizes, computes in float32 and quantizes. "one scale" is
where operands and result have the same one.

"""
_READS = {STORED: "dequantized", FUNCTION: "a function", ANY: "any"}


def _types(definition: EthosUOperator) -> str:
    only = f" ({', '.join(definition.only)})" if definition.only else ""
    return ("int8, int16" if definition.int16 else "int8") + only


DOCUMENT = Document(
    TABLE,
    _HEAD,
    {
        "operands": lambda op: _READS[op.reads],
        "bits": lambda op: "8, 16" if op.int16 else "8",
        "targets": lambda op: f"{', '.join(op.only)}: {op.why}" if op.only else "all",
        "constraints": constraints_of,
        "computed as": lambda op: op.also,
        "accuracy": accuracy_of,
    },
    types=_types,
)

if __name__ == "__main__":
    print(DOCUMENT.markdown(), end="")
