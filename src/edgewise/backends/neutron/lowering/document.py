"""The operator table as Markdown, made from the definitions of operators.

python -m edgewise.backends.neutron.lowering.document > docs/neutron-operators.md
"""

from __future__ import annotations

from edgewise.backends.neutron.lowering.table import NeutronOperator
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.targets import TARGETS, NeutronTarget
from edgewise.operators.document import Document, accuracy_of, constraints_of, table

_HEAD = """# Operators of the Neutron backend

Made from the definitions in `edgewise.backends.neutron.operators` by
`python -m edgewise.backends.neutron.lowering.document`; a test fails if it is stale.

For every operator: static shapes, tensors with elements, activations in int8 (-128..127) with one
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

_HEADS = ("config", "core", "subsystem", "macs", "pipes")


def _between(definition: NeutronOperator) -> list[str]:
    kinds = {"moves": definition.moves, "clamps": definition.clamps, "idle": definition.idle}
    return [name for name, is_so in kinds.items() if is_so]


def _target(target: NeutronTarget) -> tuple[str, ...]:
    figures = ("-" if n is None else str(n) for n in (target.macs, target.pipes))
    return f"`{target.name}`", target.core, "yes" if target.subsystem else "no", *figures


DOCUMENT = Document(
    TABLE,
    _HEAD,
    {
        "between": lambda op: ", ".join(_between(op)) or "computes",
        "constraints": constraints_of,
        "TFLite": lambda op: op.also,
        "accuracy": accuracy_of,
    },
    types=lambda op: "int8",
    appendix=_TARGETS + table(_HEADS, map(_target, TARGETS.values())),
)


if __name__ == "__main__":
    print(DOCUMENT.markdown(), end="")
