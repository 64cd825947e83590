"""What the Neutron NPU computes in 8-bit integers, for torchao's PT2E flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node

from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.operators.convolution import beyond_window
from edgewise.backends.neutron.operators.resize import is_resampled
from edgewise.backends.neutron.operators.softmax import above_limits
from edgewise.backends.neutron.targets import TARGETS, NeutronTarget
from edgewise.edge.graph import arguments
from edgewise.quantize.arithmetic_steps import (
    softmax_along_last,
    split_deviations,
    split_gates,
)
from edgewise.quantize.composites import (
    ARITHMETIC,
    MOVES,
    RECURRENT,
    SLICES,
    VOLUMES,
    WINDOWS,
    expand_operands,
    multiply_as_linear,
)
from edgewise.quantize.config import get_symmetric_quantization_config
from edgewise.quantize.constant_indices import gather_by_products, take_by_slices
from edgewise.quantize.decompose import decompose
from edgewise.quantize.known_choices import choose_by_products
from edgewise.quantize.masks import (
    MASK_SPEC,
    add_finite_masks,
    mask_of,
    pad_rows,
    padded_rows,
    scores_spec,
)
from edgewise.quantize.patterns import Fixed, Pattern, SameScale, Weighted
from edgewise.quantize.quantizer import TableQuantizer, fixed_result, mark, quantize_alike
from edgewise.quantize.resampling import multiply_by_weights
from edgewise.quantize.roots import split_roots
from edgewise.quantize.smooth_and_norms import (
    NORMALIZATIONS,
    REDUCTIONS,
    SMOOTH,
    VARIANCES,
)
from edgewise.quantize.steps import (
    batch_pools,
    drop_unused_indices,
    multiply_by_reciprocals,
    split_attention,
    split_hardsigmoid,
    split_pieces,
)
from edgewise.quantize.transposed import Geometry, polyphase

aten = torch.ops.aten


def _has(transposed: Geometry) -> bool:
    return transposed.groups == 1 and beyond_window(transposed) is None


_COMPOSITES = {
    **ARITHMETIC,
    **MOVES,
    **NORMALIZATIONS,
    **polyphase(_has),
    **RECURRENT,
    **SLICES,
    **SMOOTH,
    **VARIANCES,
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

    neutron_target_spec: a target or its name, or ExecuTorch's; rows of a softmax are padded to a
    multiple of its multiply-accumulates (8 without one, as imxrt700 has). is_qat: for
    `prepare_qat_pt2e`.
    """

    table: ClassVar[Mapping[Any, Pattern]] = TABLE.patterns()
    starts_anywhere: ClassVar[bool] = True

    def __init__(
        self,
        neutron_target_spec: Any = None,
        is_qat: bool = False,
        *,
        per_channel_linear: bool = False,
    ) -> None:
        super().__init__()
        self._target = _described(neutron_target_spec)
        self._per_channel_linear = per_channel_linear
        self._scores: set[Node] = set()
        self.set_global(get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat))

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Operators that the NPU has not become several that it has. Called by `prepare_pt2e`."""
        super().transform_for_annotation(model)
        self._allow_other_layouts(model)
        split_attention(model, causal=True, computed=True)
        add_finite_masks(model)
        multiply_as_linear(model, self._is_static)
        take_by_slices(model, self._is_static)
        gather_by_products(model, self._is_static)
        choose_by_products(model, self._is_static)
        multiply_by_weights(model, is_resampled, self._is_static)
        expand_operands(model, self._is_static)
        split_deviations(model)
        decompose(model, _COMPOSITES, self._is_static)
        split_roots(model)
        decompose(model, REDUCTIONS, self._is_static)  # of which roots are known not to be negative
        split_gates(model)
        split_hardsigmoid(model)
        drop_unused_indices(model)
        batch_pools(model)
        split_pieces(model)
        softmax_along_last(model, lambda n: self._is_static(n) and not _is_of_channels(n))
        macs = self._target.macs
        assert macs is not None
        pad_rows(model, macs, self.table, self._is_static, self._takes_softmax)
        multiply_by_reciprocals(model)
        return model

    def _takes_softmax(self, shape: Sequence[int], dim: int) -> bool:
        return above_limits(shape, dim, self._target) is None

    def _annotate(self, node: Node, pattern: Pattern) -> str | None:
        if node.target in _DIVISIONS and isinstance(node.args[1], Node):
            return "the NPU divides by constants, and by what cannot be negative"
        if self._per_channel_linear and node.target == aten.linear.default:
            pattern = Weighted()
        if self._is_static(node) and self._annotate_scores(node, pattern):
            return None
        return super()._annotate(node, pattern)

    def _annotate_rest(self, model: GraphModule) -> None:
        """What is left out of a padded row saturates where the others' weights end."""
        for padded, dim in padded_rows(model).items():
            config = self._selection.of(padded)
            scores = padded.args[0]
            if config is not None and config.input_activation is not None:
                assert isinstance(scores, Node)
                spec = scores_spec(config.input_activation, config.is_qat, dim)
                quantize_alike(scores, config.input_activation, spec)

    def _annotate_scores(self, node: Node, pattern: Pattern) -> bool:
        """Of scores and their mask, and of the softmax that reads them; whether it is one."""
        config = self._selection.of(node)
        assert config is not None
        source, mask = node.args[0], mask_of(node)
        spec = scores_spec(config.input_activation, config.is_qat)
        if mask is not None and isinstance(source, Node):
            operand = spec if source in self._scores else config.input_activation
            mark([node], {source: operand, mask: MASK_SPEC}, spec)
            self._scores.add(node)
            return True
        if source not in self._scores or not isinstance(source, Node):
            return False
        if isinstance(pattern, Fixed):
            mark([node], {source: spec}, fixed_result(pattern, config.input_activation))
            return True
        if isinstance(pattern, SameScale):
            self._scores.add(node)
        return False


def _is_of_channels(softmax: Node) -> bool:
    """Whether the softmax is along an image's channels, which the NPU has."""
    rank: int = softmax.meta["val"].dim()
    return rank == 4 and int(arguments(softmax)["dim"]) % rank == 1


def _described(target: Any) -> NeutronTarget:
    """A target, of its name or ExecuTorch's description; imxrt700 where its figures are unknown."""
    found = getattr(target, "neutron_target", target)
    known = TARGETS.get(str(getattr(found, "name", found)))
    return known if known and known.macs else TARGETS["imxrt700"]


__all__ = ["NeutronQuantizer"]
