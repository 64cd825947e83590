"""What Ethos-U computes in integers, for torchao's PT2E flow."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from typing_extensions import Self

from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.quant import is_mask
from edgewise.backends.ethosu.operators import TABLE
from edgewise.backends.ethosu.operators.resample import is_resampled
from edgewise.edge.graph import arguments
from edgewise.quantize._torchao import (
    FixedQParamsQuantizationSpec,
    QuantizationConfig,
    QuantizationSpec,
)
from edgewise.quantize.arithmetic_steps import (
    put_copies,
    put_whole,
    split_clamps,
    split_deviations,
    split_divisions,
    split_gates,
    split_masked_puts,
)
from edgewise.quantize.branches import choose_of_branches
from edgewise.quantize.composites import (
    ARITHMETIC,
    MOVES,
    RECURRENT,
    VOLUMES,
    WINDOWS,
    multiply_as_linear,
)
from edgewise.quantize.config import get_symmetric_quantization_config
from edgewise.quantize.constant_indices import gather_by_products
from edgewise.quantize.decompose import decompose
from edgewise.quantize.known_choices import choose_by_products
from edgewise.quantize.masks import add_infinite_masks, is_computed_mask, steps_of_mask
from edgewise.quantize.observers import HistogramObserver
from edgewise.quantize.patterns import Pattern, Weighted, is_float
from edgewise.quantize.quantizer import TableQuantizer, mark
from edgewise.quantize.resampling import multiply_by_weights
from edgewise.quantize.steps import (
    batch_pools,
    is_kept,
    replace_calls,
    split_attention,
    split_pieces,
    step,
)
from edgewise.quantize.transposed import Geometry, polyphase

aten = torch.ops.aten

_COMPOSITES = {
    **ARITHMETIC,
    **MOVES,
    **RECURRENT,
    **VOLUMES,
    **WINDOWS,
    aten.addmm.default: None,
}
"""Of smaller operators, which the table has."""


_ZERO_OR_ONE = FixedQParamsQuantizationSpec(
    dtype=torch.int8,
    scale=1 / 255,
    zero_point=-128,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
)


def _masked_softmax(node: Node) -> Node | None:
    """What alone reads a sum with zeros and minus infinities, if it is a softmax."""
    mask = node.args[1] if node.target is aten.add.Tensor else None
    users = list(node.users)
    if not isinstance(mask, Node) or len(users) != 1 or users[0].target is not aten.softmax.int:
        return None
    if is_computed_mask(mask):
        return users[0]
    if mask.op != "get_attr":
        return None
    values = attrgetter(str(mask.target))(node.graph.owning_module)
    return users[0] if is_mask(values) else None


_TRANSPOSED = (aten.conv_transpose1d.default, aten.conv_transpose2d.input)
_INDEXED = {
    aten.embedding.default: 1,
    aten.gather.default: 2,
    aten.index.Tensor: 1,
    aten.index_put.default: 1,
    aten.index_put_.default: 1,
    aten.index_select.default: 2,
}
"""Where the indices are."""


def _use_int32(model: GraphModule, gathers: bool) -> None:
    """The NPU's indices have 32 bits: they are converted behind it and, where it gathers, before
    it."""

    def largest(node: Node) -> Node:
        made = step(node, aten.argmax.default, *node.args)
        return step(node, aten.to.dtype, step(node, aten.to.dtype, made, torch.int32), torch.int64)

    def converted(index: Node) -> Node:
        if index.op == "get_attr" or index.meta["val"].dtype != torch.int64:
            return index
        return step(node, aten.to.dtype, index, torch.int32)

    replace_calls(model, aten.argmax.default, largest)
    for node in [n for n in model.graph.nodes if gathers and n.target in _INDEXED]:
        position = _INDEXED[node.target]
        with model.graph.inserting_before(node):
            node.update_arg(position, map_arg(node.args[position], converted))
    model.recompile()


class EthosUQuantizer(TableQuantizer):
    """Quantizes what the NPU runs, all of it: nothing is computed in floating point there.

    quantizer = EthosUQuantizer(compile_spec).set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)

    Without a setting all is quantized with 8 bits, weights by channel.
    """

    table: ClassVar[Mapping[Any, Pattern]] = TABLE.patterns()
    starts_anywhere: ClassVar[bool] = True
    absorbs_gates: ClassVar[bool] = False

    def __init__(self, compile_spec: EthosUCompileSpec | None = None) -> None:
        super().__init__()
        if compile_spec is not None and not isinstance(compile_spec, EthosUCompileSpec):
            raise TypeError(
                f"[EthosUQuantizer] compile_spec must be an EthosUCompileSpec; "
                f"got {type(compile_spec).__name__}"
            )
        self.compile_spec = compile_spec
        self._io: QuantizationConfig | None = None
        self.set_global(get_symmetric_quantization_config(is_per_channel=True))

    def set_io(self, quantization_config: QuantizationConfig | None) -> Self:
        """For the model's inputs and outputs of real numbers. None, the default: an input is
        quantized as what reads it asks, an output as what computes it."""
        self._io = self._checked(quantization_config)
        return self

    def _annotate_io(self, model: GraphModule) -> None:
        if self._io is None:
            return
        for node in model.graph.nodes:
            if node.op == "placeholder" and node.users and is_float(node):
                mark([node], {}, self._io.input_activation)
            elif node.op == "output":
                results = [n for n in node.all_input_nodes if is_float(n)]
                mark([node], dict.fromkeys(results, self._io.output_activation), None)

    def _annotate(self, node: Node, pattern: Pattern) -> str | None:
        """A mask of minus infinities belongs to the softmax behind it; transposed convolutions in
        groups have one scale."""
        if node.target in _TRANSPOSED and arguments(node)["groups"] > 1:
            return super()._annotate(node, Weighted(one_scale=True))
        config = self._selection.of(node)
        if is_kept(node) and self._is_static(node):
            mark(steps_of_mask(node), {node.all_input_nodes[0]: _ZERO_OR_ONE}, None)
            return None
        masked = _masked_softmax(node)
        scores = node.args[0] if node.args else None
        activation = None if config is None else config.input_activation
        if masked is None or activation is None or not isinstance(scores, Node):
            return super()._annotate(node, pattern)
        assert config is not None
        mark([node, masked], {scores: activation}, config.output_activation)
        return None

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Composite operators become steps that the table has: recurrent layers, attention,
        gates, divisions by what is computed, clamps by tensors, pieces; on U85 branches a choice of
        both. Called by `prepare_pt2e`. What is to stay in floating point stays whole."""
        family = self.compile_spec.processor.family if self.compile_spec else "U55"
        is_u85 = family == "U85"
        if is_u85:  # others cannot choose
            choose_of_branches(model)
        super().transform_for_annotation(model)
        self._allow_other_layouts(model)
        put_copies(model)
        put_whole(model)
        _use_int32(model, gathers=is_u85)
        split_attention(model, causal=True, computed=True)
        add_infinite_masks(model, self._is_static)
        multiply_as_linear(model, self._is_static)
        multiply_by_weights(model, lambda call: is_resampled(call, family), self._is_static)
        decompose(model, _COMPOSITES, self._is_static)
        decompose(model, polyphase(_u85_has if is_u85 else _u55_has), self._is_static)
        if not is_u85:
            gather_by_products(model, self._is_static)
            choose_by_products(model, self._is_static)
            decompose(model, polyphase(lambda geometry: False), self._is_16_bits)
        split_gates(model)
        split_deviations(model)
        split_divisions(model)
        split_clamps(model)
        split_masked_puts(model)
        batch_pools(model)
        split_pieces(model)
        return model

    def _is_16_bits(self, node: Node) -> bool:
        config = self._selection.of(node)
        activation = None if config is None else config.input_activation
        return activation is not None and activation.dtype == torch.int16


def _u85_has(transposed: Geometry) -> bool:
    return set(transposed.dilation) == {1}


def _u55_has(transposed: Geometry) -> bool:
    strides = set(transposed.stride)
    return _u85_has(transposed) and len(strides) == 1 and max(strides) <= 2


def get_symmetric_a16w8_quantization_config(is_per_channel: bool = True) -> QuantizationConfig:
    """16-bit activations around zero, symmetric 8-bit weights."""
    weight = get_symmetric_quantization_config(is_per_channel).weight
    activation = QuantizationSpec(
        dtype=torch.int16,
        quant_min=-32767,
        quant_max=32767,
        qscheme=torch.per_tensor_symmetric,
        is_dynamic=False,
        observer_or_fake_quant_ctr=HistogramObserver,
    )
    return QuantizationConfig(
        input_activation=activation, output_activation=activation, weight=weight, bias=None
    )


__all__ = ["EthosUQuantizer", "get_symmetric_a16w8_quantization_config"]
