"""What Neutron's definitions of operators say, and constraints that several share.

`backends.neutron.operators` fills the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.compile_spec import CustomDelegationOptions
from edgewise.backends.neutron.lowering.context import Lowering, Real
from edgewise.backends.neutron.lowering.quantized import Cluster, Quant
from edgewise.backends.neutron.targets import NeutronTarget
from edgewise.edge.graph import arguments, dtype_name, fake, is_getitem
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.partition import constraints
from edgewise.partition.accuracy import Accuracies, Accuracy
from edgewise.partition.constraints import Constraint, equals, rank
from edgewise.partition.spec import Refusal

STEP: Accuracies = {"int8": Accuracy(steps=1, reference="PT2E")}
"""A step of the result's scale: both sides round, and a factor of 31 bits stands for the scales."""
EXACT: Accuracies = {"int8": Accuracy(steps=0, reference="PT2E")}


@dataclass(frozen=True)
class Rules:
    """What the constraints depend on: the chip, the converter's age, the user's options.

    padded_channels: whether the converter pads channels to a multiple of the target's `macs`
    itself. Those before NXP's single package (2026) did not.
    """

    target: NeutronTarget
    options: CustomDelegationOptions
    padded_channels: bool = True


@dataclass(frozen=True)
class Query(constraints.Query):
    """A question to a constraint: this node, with these arguments, in this cluster."""

    constants: IntegerConstants
    cluster: Cluster
    rules: Rules

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        value = self.node.meta["val"]
        first = value[0] if isinstance(value, (tuple, list)) else value
        return tuple(first.shape)

    def shape_of(self, name: str) -> tuple[int, ...]:
        return tuple(fake(self.args[name]).shape)

    @property
    def result(self) -> Quant:
        """How the cluster's result is quantized."""
        return Quant.of(self.cluster.outputs[0])

    def quant(self, node: Any) -> Quant | None:
        """How an operand is quantized; None if it is computed in the cluster."""
        return Quant.of(node) if is_dequantize(node) else None


Lower = Callable[[Lowering, Node, dict[str, Any]], Real]


def _nothing(args: dict[str, Any]) -> Sequence[int]:
    return ()


def along_dim(args: dict[str, Any]) -> Sequence[int]:
    return (int(args["dim"]),)


@dataclass(frozen=True)
class NeutronOperator(OperatorDefinition[Lower]):
    """An operator that the NPU runs.

    moves: it only moves or chooses elements: of a dequantized tensor what is stored. clamps: it
    cuts values. Both may stand between another operator and its quantization. idle: it may
    compute nothing at all, so that a partition needs more.
    """

    moves: bool = False
    clamps: bool = False
    idle: bool = False
    images: bool = False
    """Whether it wants images as NHWC."""
    along: Callable[[dict[str, Any]], Sequence[int]] = _nothing
    """The dimensions in which a result's element is made of others than the operands' at its index,
    or moved, where sizes do not tell it."""
    bounds: Accuracies | None = field(default=None, compare=False)
    """Where the accuracy is not that of what computes, or of what moves."""

    def accuracies(self) -> Accuracies:
        """Of LiteRT's reference kernels, which the NPU follows, against the PT2E reference."""
        if self.bounds is not None:
            return self.bounds
        return EXACT if self.moves or self.clamps else STEP

    def refusals(self, query: Query) -> list[Refusal]:
        return [r for c in self.constraints if (r := c.refusal(query)) is not None]


TABLE = OperatorTable(NeutronOperator)
define = TABLE.define


def query_of(node: Node, constants: IntegerConstants, cluster: Cluster, rules: Rules) -> Query:
    return Query(node, arguments(node), constants, cluster, rules)


# --- constraints that several definitions share ----------------------------------------------


constant = partial(constraints.constant, hint="")


def integer_weight(name: str, *, per_channel: bool = True) -> Constraint:
    """The named argument is stored as int8 with zero points of 0."""

    def check(q: Query) -> str | None:
        node = q.args[name]
        found = q.constants.integers(node) if node in q.constants else None
        if found is None:
            return f"{name} in floating point"
        if found.data.dtype != torch.int8:
            return f"{name} in {dtype_name(found.data.dtype)}"
        if bool(found.zero_points.any()):
            return f"{name} with a zero point of {int(found.zero_points.reshape(-1)[0])}"
        if found.axis is not None and not per_channel:
            return f"{name} with a scale for each channel"
        return None

    scales = "" if per_channel else ", one scale"
    return Constraint(
        f"{name} in int8, symmetric{scales}", check, "NeutronQuantizer, which quantizes it so"
    )


def is_main(node: Node) -> bool:
    """Whether the node computes something: of these a cluster has one at most."""
    definition = TABLE.of(node)
    return not is_getitem(node) and (
        definition is None or not (definition.moves or definition.clamps)
    )


def _feeds_another(q: Query) -> bool:
    """Whether the result is an operand of the cluster's main operator, not of a quantization."""
    pending, members = [q.node], set(q.cluster.nodes)
    while pending:
        users = [u for u in pending.pop().users if u in members]
        if any(is_main(u) for u in users):
            return True
        pending += users
    return False


def _same_quantization(q: Query) -> str | None:
    quants = [Quant.of(n) for n in q.node.all_input_nodes if is_dequantize(n)]
    different = [quant for quant in quants if quant != q.result]
    return f"{different[0]} and {q.result}" if different and not _feeds_another(q) else None


SAME_QUANTIZATION = Constraint(
    "operands and result quantized alike",
    _same_quantization,
    "NeutronQuantizer, which shares the scale",
)


def fine_operand(power: int) -> Constraint:
    """Smaller steps than 2**power are too fine for the integers of LiteRT's kernel, which ends."""

    def check(q: Query) -> str | None:
        quant = q.quant(q.args["self"])
        return None if quant is None or quant.scale >= 2.0**power else f"{quant}"

    hint = "a model whose activations are not that small"
    return Constraint(f"an operand with a scale of at least 2**{power}", check, hint)


def coarse_result(power: int) -> Constraint:
    """Of a result whose steps are that much finer than the operand's LiteRT's kernel makes nothing:
    it ends, or its integers overflow."""

    def check(q: Query) -> str | None:
        quant = q.quant(q.args["self"])
        good = quant is None or q.result.scale > quant.scale * 2.0**-power
        return None if good else f"{q.result} of {quant}"

    hint = "calibration data that reach more of the operator's range"
    return Constraint(f"a result with a scale above the operand's / 2**{power}", check, hint)


def coarse_product(left: str, right: str) -> Constraint:
    """2**10: sums of products of 14 bits, at least 128 of them, times the factor have 31 bits."""

    def check(q: Query) -> str | None:
        scales = [_largest_scale(q, q.args[name]) for name in (left, right)]
        if None in scales:
            return None
        product = math.prod(scale for scale in scales if scale is not None)
        good = product <= q.result.scale * 2.0**10
        return None if good else f"{q.result} of products of {product:g}"

    hint = "calibration data of which the result is not always nearly zero"
    return Constraint("a result with a scale of at least its products' / 2**10", check, hint)


def _largest_scale(q: Query, node: Any) -> float | None:
    """None if it is computed in the cluster, or given in floating point. A number has its own."""
    if isinstance(node, int | float):
        return abs(node) / 127
    if not is_dequantize(node):
        return None
    args = arguments(node)
    scales = args.get("scales", args.get("scale"))
    scales = q.constants.tensor(scales) if isinstance(scales, Node) else torch.tensor(scales)
    return float(scales.max())


def padded(q: Query, sizes: Sequence[int]) -> str | None:
    """Where the converter may not pad: a size that is no multiple of the target's macs."""
    macs = q.rules.target.macs
    if q.rules.padded_channels or q.rules.options.allow_padded_channels or macs is None:
        return None
    odd = [size for size in sizes if size % macs]
    return f"{odd[0]}, and {macs} for {q.rules.target.name}" if odd else None


PADDED_HINT = (
    "a newer converter (eiq_neutron_sdk), or CustomDelegationOptions(allow_padded_channels=True)"
)


__all__ = [
    "PADDED_HINT",
    "SAME_QUANTIZATION",
    "TABLE",
    "Constraint",
    "Lower",
    "NeutronOperator",
    "Query",
    "Rules",
    "along_dim",
    "constant",
    "define",
    "equals",
    "integer_weight",
    "is_main",
    "padded",
    "query_of",
    "rank",
]
