"""What XNNPACK computes in 8-bit integers, for torchao's PT2E flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments
from edgewise.quantize.patterns import (
    Elementwise,
    Fixed,
    Joined,
    Pattern,
    SameScale,
    Weighted,
    always,
)
from edgewise.quantize.quantizer import TableQuantizer

aten = torch.ops.aten


def _is_one_group(node: Node) -> bool:
    """XNNPACK has no depthwise kernel that quantizes its input while it runs."""
    return bool(arguments(node)["groups"] == 1)


def _table() -> dict[Any, Pattern]:
    table: dict[Any, Pattern] = {
        aten.linear.default: Weighted(dynamic=always),
        aten.conv1d.default: Weighted(),
        aten.conv2d.default: Weighted(dynamic=_is_one_group),
        aten.conv_transpose1d.default: Weighted(channel_axis=1),
        aten.conv_transpose2d.input: Weighted(channel_axis=1),
        aten.cat.default: Joined(),
        aten.hardsigmoid.default: Fixed(1 / 256, -128),
        aten.hardsigmoid_.default: Fixed(1 / 256, -128),
        aten.sigmoid.default: Fixed(1 / 256, -128),
        aten.tanh.default: Fixed(1 / 128, 0),
    }
    for name in ("add", "sub", "mul"):
        operator = getattr(aten, name), getattr(aten, f"{name}_")
        table.update({packet.Tensor: Elementwise() for packet in operator})
    # Of one operand: XNNPACK looks the result up in a table of 256 (silu: sigmoid, then a product).
    for one in (
        aten.hardswish.default,
        aten.hardswish_.default,
        aten.gelu.default,
        aten.elu.default,
        aten.leaky_relu.default,
        aten.leaky_relu_.default,
        aten.silu.default,
        aten.silu_.default,
    ):
        table[one] = Elementwise(operands=1)
    for same in (
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.avg_pool2d.default,
        aten.clamp.default,
        aten.clone.default,
        aten.constant_pad_nd.default,
        aten.contiguous.default,
        aten.dropout.default,
        aten.expand.default,
        aten.flatten.using_ints,
        aten.hardtanh.default,
        aten.hardtanh_.default,
        aten.max_pool2d.default,
        aten.mean.dim,
        aten.pad.default,
        aten.permute.default,
        aten.relu.default,
        aten.relu_.default,
        aten.relu6.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.upsample_bilinear2d.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_nearest2d.default,
        aten.upsample_nearest2d.vec,
        aten.view.default,
    ):
        table[same] = SameScale()
    return table


class XNNPACKQuantizer(TableQuantizer):
    """Quantizes what XNNPACK runs in integers.

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    """

    table: ClassVar[Mapping[Any, Pattern]] = _table()


__all__ = ["XNNPACKQuantizer"]
