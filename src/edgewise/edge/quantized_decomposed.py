"""The calls between which PT2E leaves what is quantized, and what they say of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from typing_extensions import Self

from edgewise.edge.graph import arguments, is_call, op_name

QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
DEQUANTIZE_CHANNELS = "quantized_decomposed.dequantize_per_channel.default"


def is_quantize(node: Any) -> bool:
    """With one scale."""
    return isinstance(node, Node) and is_call(node) and op_name(node) == QUANTIZE


def is_dequantize(node: Any) -> bool:
    """Of a computed tensor or a constant; with one scale, or one for each channel."""
    if not isinstance(node, Node) or not is_call(node):
        return False
    return op_name(node) in (DEQUANTIZE, DEQUANTIZE_CHANNELS)


@dataclass(frozen=True)
class Quantized:
    """A real number is `scale * (stored - zero_point)`, stored within `low..high` in `dtype`."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    @classmethod
    def of(cls, node: Node) -> Self:
        """Of a quantize or dequantize call with one scale."""
        args = arguments(node)
        bounds = int(args["quant_min"]), int(args["quant_max"])
        return cls(float(args["scale"]), int(args["zero_point"]), *bounds, args["dtype"])
