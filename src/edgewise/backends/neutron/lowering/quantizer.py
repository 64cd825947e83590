"""What the Neutron NPU computes in 8-bit integers, for torchao's PT2E flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node

from edgewise.quantize.arithmetic_steps import split_gates
from edgewise.quantize.composites import (
    ARITHMETIC,
    MOVES,
    RECURRENT,
    SLICES,
    VOLUMES,
    WINDOWS,
    multiply_as_linear,
)
from edgewise.quantize.config import get_symmetric_quantization_config
from edgewise.quantize.decompose import decompose
from edgewise.quantize.patterns import (
    MOVED,
    Elementwise,
    Fixed,
    Joined,
    Pattern,
    SameScale,
    Weighted,
    with_copies,
)
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.smooth_and_norms import NORMALIZATIONS, SMOOTH
from edgewise.quantize.steps import (
    drop_unused_indices,
    multiply_by_reciprocals,
    split_attention,
    split_hardsigmoid,
    split_pieces,
)

aten = torch.ops.aten


def _table() -> dict[Any, Pattern]:
    table: dict[Any, Pattern] = {
        aten.linear.default: Weighted(one_scale=True),
        aten.mm.default: Weighted(one_scale=True),
        aten.addmm.default: Weighted(one_scale=True, places=(1, 2, 0)),
        aten.prelu.default: Weighted(one_scale=True),
        aten.bmm.default: Elementwise(symmetric=True),
        aten.matmul.default: Elementwise(symmetric=True),
        aten.conv1d.padding: Weighted(),
        aten.conv2d.padding: Weighted(),
        aten.conv1d.default: Weighted(),
        aten.conv2d.default: Weighted(),
        aten.conv_transpose1d.default: Weighted(channel_axis=1),
        aten.conv_transpose2d.input: Weighted(channel_axis=1),
        aten.cat.default: Joined(),
        aten.maximum.default: Joined((0, 1)),
        aten.minimum.default: Joined((0, 1)),
        aten.sigmoid.default: Fixed(1 / 256, -128),
        aten.sigmoid_.default: Fixed(1 / 256, -128),
        aten.softmax.int: Fixed(1 / 256, -128),
        aten.tanh.default: Fixed(1 / 128, 0),
        aten.tanh_.default: Fixed(1 / 128, 0),
    }
    for name in ("add", "sub", "mul", "div"):
        packets = getattr(aten, name), getattr(aten, f"{name}_")
        table.update({packet.Tensor: Elementwise(numbers=True) for packet in packets})
    table[aten.rsub.Scalar] = Elementwise(numbers=True)
    for one in (
        aten.abs.default,
        aten.abs_.default,
        aten.exp.default,
        aten.exp_.default,
        aten.hardswish.default,
        aten.hardswish_.default,
        aten.leaky_relu.default,
        aten.leaky_relu_.default,
        aten.log.default,
        aten.log_.default,
        aten.neg.default,
        aten.neg_.default,
        aten.relu.default,
        aten.relu_.default,
        aten.rsqrt.default,
        aten.rsqrt_.default,
    ):
        table[one] = Elementwise(operands=1)
    same = (
        *MOVED,
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.amax.default,
        aten.amin.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.channel_shuffle.default,
        aten.max_pool1d.default,
        aten.mean.default,
        aten.mean.dim,
        aten.sum.default,
        aten.sum.dim_IntList,
    )
    table.update(dict.fromkeys(with_copies(same), SameScale()))
    return table


_COMPOSITES = {
    **ARITHMETIC,
    **MOVES,
    **NORMALIZATIONS,
    **RECURRENT,
    **SLICES,
    **SMOOTH,
    **VOLUMES,
    **WINDOWS,
}
"""Of smaller operators, which the table has."""

_DIVISIONS = (aten.div.Tensor, aten.div_.Tensor)
"""The NPU has none by what is computed."""


class NeutronQuantizer(TableQuantizer):
    """Quantizes what the NPU runs: activations in int8, weights in int8.

    quantizer = NeutronQuantizer()
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)

    Without a setting everything is quantized. Convolutions have a weight scale for each output
    channel, linear layers one: NXP's quantizer gives its converter nothing else, and what it does
    with more is not documented. per_channel_linear=True gives them one for each output, too.

    Factors of a product have scales of their own. (ExecuTorch fixes them to 1/256, which cuts
    everything outside of +-0.5; TFLite's MUL, which this becomes, has no such rule.)

    neutron_target_spec: accepted as ExecuTorch's has it; nothing depends on it. is_qat: for
    `prepare_qat_pt2e`.
    """

    table: ClassVar[Mapping[Any, Pattern]] = _table()
    starts_anywhere: ClassVar[bool] = True

    def __init__(
        self,
        neutron_target_spec: Any = None,
        is_qat: bool = False,
        *,
        per_channel_linear: bool = False,
    ) -> None:
        super().__init__()
        del neutron_target_spec
        self._per_channel_linear = per_channel_linear
        self.set_global(get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat))

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Operators that the NPU has not become several that it has. Called by `prepare_pt2e`."""
        super().transform_for_annotation(model)
        split_attention(model, causal=True)
        multiply_as_linear(model, self._is_static)
        decompose(model, _COMPOSITES, self._is_static)
        split_gates(model)
        split_hardsigmoid(model)
        drop_unused_indices(model)
        split_pieces(model)
        multiply_by_reciprocals(model)
        return model

    def _annotate(self, node: Node, pattern: Pattern) -> str | None:
        if node.target in _DIVISIONS and isinstance(node.args[1], Node):
            return "the NPU divides by constants only"
        if self._per_channel_linear and node.target == aten.linear.default:
            pattern = Weighted()
        return super()._annotate(node, pattern)


__all__ = ["NeutronQuantizer"]
