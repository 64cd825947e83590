"""What XNNPACK computes in 8-bit integers, for torchao's PT2E flow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.composites import RECURRENT, recurrent_steps
from edgewise.quantize.decompose import decompose
from edgewise.quantize.patterns import (
    MOVED,
    Elementwise,
    Fixed,
    Joined,
    Pattern,
    SameScale,
    Weighted,
    always,
    with_copies,
)
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.steps import numbers_as_constants, split_pieces

aten = torch.ops.aten

MOST = 256
"""Steps of a recurrent layer that are written out; each has some twenty operators."""

_TRANSPOSED = (aten.conv_transpose1d.default, aten.conv_transpose2d.input)


def _not_dynamic(node: Node) -> str | None:
    """Why XNNPACK has no kernel that quantizes a convolution's input while it runs."""
    args = arguments(node)
    weight = args["weight"].meta["val"]
    # Of a transposed convolution dimension 1 holds the outputs: a kernel of its own, always.
    transposed = node.target in _TRANSPOSED
    if not transposed and args["groups"] > 1 and weight.shape[1] == 1:
        return "XNNPACK has no depthwise kernel that quantizes activations while it runs"
    return None


def _not_by_window(node: Node) -> str | None:
    """Why XNNPACK has no kernel for the pooling: it divides by what the window has."""
    args = arguments(node)
    if args["ceil_mode"]:
        return "XNNPACK averages no windows that reach beyond the image; got ceil_mode=True"
    divisor = args.get("divisor_override")
    kernel = args["kernel_size"]
    size = math.prod(kernel if len(kernel) == 2 else [kernel[0]] * 2)
    if divisor is None or (divisor == size and args["count_include_pad"]):
        return None
    return f"XNNPACK divides by the window's size; got divisor_override={divisor}"


def _table() -> dict[Any, Pattern]:
    table: dict[Any, Pattern] = {
        aten.linear.default: Weighted(not_dynamic=always),
        aten.conv1d.default: Weighted(not_dynamic=_not_dynamic),
        aten.conv2d.default: Weighted(not_dynamic=_not_dynamic),
        aten.conv1d.padding: Weighted(not_dynamic=_not_dynamic),
        aten.conv2d.padding: Weighted(not_dynamic=_not_dynamic),
        aten.cat.default: Joined(),
        aten.hardsigmoid.default: Fixed(1 / 256, -128),
        aten.hardsigmoid_.default: Fixed(1 / 256, -128),
        aten.sigmoid.default: Fixed(1 / 256, -128),
        aten.sigmoid_.default: Fixed(1 / 256, -128),
        aten.tanh.default: Fixed(1 / 128, 0),
        aten.tanh_.default: Fixed(1 / 128, 0),
    }
    table.update(dict.fromkeys(_TRANSPOSED, Weighted(channel_axis=1, not_dynamic=_not_dynamic)))
    for name in ("add", "sub", "mul"):
        operator = getattr(aten, name), getattr(aten, f"{name}_")
        table.update({packet.Tensor: Elementwise() for packet in operator})
    # Of one operand: XNNPACK looks the result up in a table of 256 (silu: sigmoid, then a product).
    for one in (
        aten.hardswish.default,
        aten.hardswish_.default,
        aten.gelu.default,
        aten.elu.default,
        aten.elu_.default,
        aten.leaky_relu.default,
        aten.leaky_relu_.default,
        aten.silu.default,
        aten.silu_.default,
    ):
        table[one] = Elementwise(operands=1)
    same = (
        *MOVED,
        aten.channel_shuffle.default,
        aten.expand.default,
        aten.expand_as.default,
        aten.flip.default,
        aten.relu.default,
        aten.relu_.default,
        aten.repeat.default,
        aten.roll.default,
        aten.upsample_bilinear2d.default,
        aten.upsample_nearest2d.default,
    )
    table.update(dict.fromkeys(with_copies(same), SameScale()))
    for average in (
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.mean.default,
        aten.mean.dim,
    ):
        table[average] = SameScale(starts=True)
    for pooling in (aten.avg_pool1d.default, aten.avg_pool2d.default):
        table[pooling] = SameScale(starts=True, against=_not_by_window)
    return table


class XNNPACKQuantizer(TableQuantizer):
    """Quantizes what XNNPACK runs in integers.

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    """

    table: ClassVar[Mapping[Any, Pattern]] = _table()
    computes_floats: ClassVar[bool] = True
    dtypes: ClassVar[Sequence[torch.dtype]] = (torch.float32, torch.float16)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Recurrent layers become a linear layer and gates for each step; numbers as operands
        tensors, which have scales; pieces slices, each with a scale of its own. Called by
        `prepare_pt2e`."""
        super().transform_for_annotation(model)
        decompose(model, RECURRENT, lambda n: self._is_quantized(n) and recurrent_steps(n) <= MOST)
        numbers_as_constants(model, self._is_static)
        split_pieces(model, self._is_static)
        return model


__all__ = ["XNNPACKQuantizer"]
