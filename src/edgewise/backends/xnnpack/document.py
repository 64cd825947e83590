"""The operator table as Markdown, made from the rows.

python -m edgewise.backends.xnnpack.document > docs/xnnpack-operators.md
"""

from __future__ import annotations

from edgewise.backends.xnnpack.graph import MAX_RANK
from edgewise.backends.xnnpack.rows import all_rows
from edgewise.backends.xnnpack.rows.quantization import QUANTIZED
from edgewise.backends.xnnpack.table import OpRow

_HEAD = f"""# Operators of the XNNPACK backend

Made from the rows of `edgewise.backends.xnnpack.rows` by
`python -m edgewise.backends.xnnpack.document`; a test fails if it is stale.

For every row: sizes may be symbolic (`torch.export.Dim`) unless a rule says that they are
static, tensors have elements and at most {MAX_RANK} dimensions, and at least one operand is
computed. A node that breaks a rule is refused, with the rule and what was found in the
delegation report, and runs on the runtime's own kernels.

NaN and infinities are XNNPACK's: minima, maxima, clamps, pooling and products may pass over a
NaN or make it an infinity, `sqrt` of infinity and `rsqrt` of zero and infinity are NaN on some
CPUs, `log` takes denormal numbers for zero. A program that computes with NaN on purpose should
leave those operators out of `configs`.

Weights in 8 or 4 bits under activations in floating point stay integers in the file. Linear
layers in float32 with a scale for each output channel run so on both runtimes. Of convolutions,
of linear layers in float16 or with 4-bit weights in groups, this project's runtime expands the
weights to float32 when it loads the file; ExecuTorch's refuses the file, and the delegation
report says so.

| operator | operators of torch | data types | quantized | constraints | computed as |
|---|---|---|---|---|---|
"""


def markdown() -> str:
    return _HEAD + "".join(_line(row) for row in sorted(all_rows(), key=lambda r: r.name))


def _line(row: OpRow) -> str:
    targets = ", ".join(f"`{t}`".replace("aten.", "") for t in row.targets)
    types = ", ".join(str(t).removeprefix("torch.") for t in row.dtypes)
    rules = "; ".join(c.rule for c in row.constraints)
    quantized = QUANTIZED.get(row.name, "")
    cells = (row.name, targets, types, quantized, rules, row.also)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    print(markdown(), end="")
