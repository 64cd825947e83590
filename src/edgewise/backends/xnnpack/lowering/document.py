"""The operator table as Markdown, made from the definitions of operators.

python -m edgewise.backends.xnnpack.lowering.document > docs/xnnpack-operators.md
"""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.table import XnnpackOperator
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.edge.graph import dtype_name
from edgewise.operators.document import Document, accuracy_of, constraints_of

_HEAD = f"""# Operators of the XNNPACK backend

Made from the definitions in `edgewise.backends.xnnpack.operators` by
`python -m edgewise.backends.xnnpack.lowering.document`; a test fails if it is stale.

For every operator: sizes may be symbolic (`torch.export.Dim`) unless a rule says that they are
static, tensors have elements and at most {MAX_RANK} dimensions, and at least one operand is
computed. A node that breaks a rule is refused, with the rule and what was found in the
delegation report, and runs on the runtime's own kernels.

"Accuracy" bounds the error of every element, against PyTorch in float64. "ulp": units in the last
place of the exact result. "eps terms": the type's epsilon times the sum of the magnitudes of the
terms, which for a sum are its summands, and in general x dy/dx for each input and parameter x:
what is lost where they cancel. A number alone is absolute. In float32 numbers below 1.2e-38 count
as zero, where they are read and where they are written. Integers are compared with what
dequantizing, computing in float32 and quantizing gives. Tests hold every operator to its bound.

"Special values" says where an operator gives something else than PyTorch for NaN, infinities, zeros
and the largest numbers, on some CPU; tests run the elementwise operators at such values with SSE4,
AVX2 and AVX-512. Products of matrices, convolutions and pooling may pass over a NaN or make it an
infinity. A program that computes with NaN on purpose should leave those operators out of
`configs`.

Weights in 8 or 4 bits under activations in floating point stay integers in the file. Linear
layers in float32 with a scale for each output channel run so on both runtimes. Of convolutions,
of linear layers in float16 or with 4-bit weights in groups, this project's runtime expands the
weights to float32 when it loads the file; ExecuTorch's refuses the file, and the delegation
report says so.

"""


def _types(definition: XnnpackOperator) -> str:
    types = [dtype_name(one) for one in definition.dtypes]
    return ", ".join([*types, definition.integers] if definition.integers else types)


DOCUMENT = Document(
    TABLE,
    _HEAD,
    {
        "data types": lambda op: ", ".join(dtype_name(t) for t in op.dtypes),
        "quantized": lambda op: op.integers,
        "constraints": constraints_of,
        "computed as": lambda op: op.also,
        "accuracy": accuracy_of,
        "special values": lambda op: "; ".join(d.text for d in op.deviations),
    },
    types=_types,
)

if __name__ == "__main__":
    print(DOCUMENT.markdown(), end="")
