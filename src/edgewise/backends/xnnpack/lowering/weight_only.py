"""Products in floating point whose weights are integers in the file.

XNNPACK's kernels for that are those of linear layers in float32 with a scale for each output
channel. All others this project's runtime multiplies itself: weights of linear layers become
float32 on the way, those of convolutions when the file is loaded. ExecuTorch's runtime refuses
such a payload, so the delegation report says of each such node that it runs here only.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.dynamic_quant import is_dynamic_product
from edgewise.backends.xnnpack.lowering.precision import ConfigPrecisionType, precision
from edgewise.backends.xnnpack.lowering.quant import BLOCK_MULTIPLE, PerBlock, PerTensor, Quant
from edgewise.backends.xnnpack.lowering.quantized_constants import (
    QuantizedConstants,
    is_dequantizer,
)
from edgewise.edge.graph import fake

aten = torch.ops.aten

EXPANDED = (
    "on this runtime only: weights stay integers in the file and become float32 when the runtime "
    "loads or reads them"
)
"""The note in the report."""

UNQUANTIZED = (
    "activations stay in floating point: XNNPACK has no kernel for 8-bit weights in groups"
)
"""Further said of products whose activations would be quantized at run time."""

PADDED = (
    "groups of weights are filled with zeros up to a multiple of 32, which XNNPACK's kernels need: "
    "the same result, and a larger file"
)
"""Said of 4-bit weights in groups of other sizes."""

PLAIN = (
    "weights are floating point in the file: neither XNNPACK nor this runtime has products with "
    "the scales that they have"
)
"""Said of products whose quantized weights are expanded when they are lowered."""

_LINEAR = aten.linear.default
_CONVOLUTION = aten.convolution.default


def is_expanded(node: Node, constants: QuantizedConstants) -> bool:
    """Whether only this runtime has kernels for the node's weights."""
    if node.target not in (_LINEAR, _CONVOLUTION):
        return False
    weight = node.args[1]
    if not isinstance(weight, Node) or weight.op == "placeholder" or weight not in constants:
        return False
    stored = constants.stored_as(weight)
    if stored is None:
        return False
    quant = stored.quant
    if precision(node, constants) != ConfigPrecisionType.FP32 and not is_unquantized(node, quant):
        return False
    is_linear = node.target is _LINEAR
    is_wide = fake(node).dtype == torch.float32
    if isinstance(quant, PerTensor):
        symmetric = quant.zero_point == 0 and quant.dtype == torch.int8
        return bool(symmetric and not (is_linear and is_wide))
    if isinstance(quant, PerBlock):
        return is_linear and quant.size % BLOCK_MULTIPLE == 0
    if is_linear:
        return quant.axis == 0 and not is_wide
    transposed = node.args[6]
    return quant.axis == (1 if transposed else 0)


def is_plain(node: Node, constants: QuantizedConstants) -> bool:
    """Whether the node's weights are integers in the program, and floating point in the file."""
    if node.target not in (_LINEAR, _CONVOLUTION):
        return False
    weight = node.args[1]
    if not isinstance(weight, Node) or not is_dequantizer(weight) or weight not in constants:
        return False
    if precision(node, constants) != ConfigPrecisionType.FP32 or is_expanded(node, constants):
        return False
    stored = constants.stored_as(weight)
    return stored is None or isinstance(stored.quant, PerBlock)


def is_unquantized(node: Node, quant: Quant) -> bool:
    """Whether activations that should be quantized at run time are not."""
    return is_dynamic_product(node) and isinstance(quant, PerBlock) and quant.bits == 8


__all__ = [
    "EXPANDED",
    "PADDED",
    "PLAIN",
    "UNQUANTIZED",
    "is_expanded",
    "is_plain",
    "is_unquantized",
]
