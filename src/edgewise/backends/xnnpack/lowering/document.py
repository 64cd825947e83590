"""The operator table as Markdown, made from the rows.

python -m edgewise.backends.xnnpack.lowering.document > docs/xnnpack-operators.md
"""

from __future__ import annotations

from collections.abc import Callable

from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.table import OpRow
from edgewise.backends.xnnpack.rows import all_rows
from edgewise.backends.xnnpack.rows.quantization import QUANTIZED, accuracies
from edgewise.partition.accuracy import shown
from edgewise.partition.table_document import table_of_rows

_HEAD = f"""# Operators of the XNNPACK backend

Made from the rows of `edgewise.backends.xnnpack.rows` by
`python -m edgewise.backends.xnnpack.lowering.document`; a test fails if it is stale.

For every row: sizes may be symbolic (`torch.export.Dim`) unless a rule says that they are
static, tensors have elements and at most {MAX_RANK} dimensions, and at least one operand is
computed. A node that breaks a rule is refused, with the rule and what was found in the
delegation report, and runs on the runtime's own kernels.

"Accuracy" bounds the error of every element, against PyTorch in float64. "ulp": units in the last
place of the exact result. "eps terms": the type's epsilon times the sum of the magnitudes of the
terms, which for a sum are its summands, and in general x dy/dx for each input and parameter x:
what is lost where they cancel. A number alone is absolute. In float32 numbers below 1.2e-38 count
as zero, where they are read and where they are written. Integers are compared with what
dequantizing, computing in float32 and quantizing gives. Tests hold every row to its bound.

"Special values" says where a row gives something else than PyTorch for NaN, infinities, zeros and
the largest numbers, on some CPU; tests run the elementwise rows at such values with SSE4, AVX2 and
AVX-512. Products of matrices, convolutions and pooling may pass over a NaN or make it an
infinity. A program that computes with NaN on purpose should leave those operators out of
`configs`.

Weights in 8 or 4 bits under activations in floating point stay integers in the file. Linear
layers in float32 with a scale for each output channel run so on both runtimes. Of convolutions,
of linear layers in float16 or with 4-bit weights in groups, this project's runtime expands the
weights to float32 when it loads the file; ExecuTorch's refuses the file, and the delegation
report says so.

"""
_COLUMNS: dict[str, Callable[[OpRow], str]] = {
    "data types": lambda row: ", ".join(str(t).removeprefix("torch.") for t in row.dtypes),
    "quantized": lambda row: QUANTIZED.get(row.name, ""),
    "constraints": lambda row: "; ".join(c.rule for c in row.constraints),
    "computed as": lambda row: row.also,
    "accuracy": lambda row: shown(accuracies(row)),
    "special values": lambda row: "; ".join(d.text for d in row.deviations),
}


def markdown() -> str:
    return _HEAD + table_of_rows(all_rows(), _COLUMNS)


if __name__ == "__main__":
    print(markdown(), end="")
