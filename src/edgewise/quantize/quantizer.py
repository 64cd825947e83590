"""A quantizer that is a table of operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node
from typing_extensions import Self

from edgewise.edge.boolean_casts import read_booleans_from_integers
from edgewise.edge.node_errors import as_users, internal_errors
from edgewise.partition.following import MOVED_IN_FLOAT
from edgewise.quantize._torchao import (
    Q_ANNOTATION_KEY,
    FakeQuantize,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationConfig,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from edgewise.quantize.arithmetic_steps import split_uneven_padding
from edgewise.quantize.composites import broadcast_operands
from edgewise.quantize.config import get_symmetric_quantization_config
from edgewise.quantize.constant_indices import join_indices
from edgewise.quantize.copies import drop_conversions, view_by_reshape
from edgewise.quantize.fold import drop_dropouts_of_weights, drop_notes, fold_constants
from edgewise.quantize.infinities import infinite_values
from edgewise.quantize.known_choices import drop_known_choices
from edgewise.quantize.left import (
    Unquantized,
    computes_real,
    has_weights,
    is_product,
    strange_dtype,
    unquantized,
    why_unknown,
)
from edgewise.quantize.masks import prepares_masks
from edgewise.quantize.patterns import (
    Elementwise,
    Fixed,
    Joined,
    Pattern,
    SameScale,
    Weighted,
    chain,
    is_float,
    made_of_weights,
)
from edgewise.quantize.selection import NodeFilter, Selection, type_name
from edgewise.quantize.sharing import refer_to_one_value
from edgewise.quantize.steps import join_padding_of_max_pools
from edgewise.quantize.written_out import recognize_activations


class TableQuantizer(Quantizer):  # type: ignore[misc]
    """Annotates what `table` knows, with the configuration that the settings select.

    The setters return the quantizer, so that calls can be chained. A configuration of
    None keeps what is named in float.
    """

    table: ClassVar[Mapping[Any, Pattern]] = {}
    starts_anywhere: ClassVar[bool] = False
    """Whether operators that keep their operand's scale are quantized behind floats, too."""
    absorbs_gates: ClassVar[bool] = True
    """Whether an operator with weights computes the hardsigmoid behind it, too."""
    computes_floats: ClassVar[bool] = False
    """Whether what is not quantized runs on the same processor, at no cost but its own."""
    dtypes: ClassVar[Sequence[torch.dtype]] = (torch.float32,)
    """What is quantized: nodes that read or compute other real numbers are left alone."""

    def __init__(self) -> None:
        super().__init__()
        self._selection = Selection()
        self._weights: frozenset[Node] = frozenset()
        self._infinite: frozenset[Node] = frozenset()
        self._masks: frozenset[Node] = frozenset()
        self.left: list[Unquantized] = []
        """What was asked for and stays in floating point, once a model was annotated."""

    def set_global(self, quantization_config: QuantizationConfig | None) -> Self:
        """For everything that no more specific setting names."""
        self._selection.for_all = self._checked(quantization_config)
        return self

    def set_module_type(
        self, module_type: type[torch.nn.Module], quantization_config: QuantizationConfig | None
    ) -> Self:
        """For modules of a class, and what is inside of them."""
        self._selection.by_type[type_name(module_type)] = self._checked(quantization_config)
        return self

    def set_module_name(
        self, module_name: str, quantization_config: QuantizationConfig | None
    ) -> Self:
        """For the module of this name (as in `named_modules`), and what is inside of it."""
        self._selection.by_name[module_name] = self._checked(quantization_config)
        return self

    def set_operator_type(
        self,
        operator_type: torch._ops.OpOverload,
        quantization_config: QuantizationConfig | None,
    ) -> Self:
        """For calls of an ATen operator. ValueError if the quantizer does not know it."""
        if operator_type not in self.table:
            raise ValueError(
                f"[{type(self).__name__}] operator_type must be one that is quantized; "
                f"got {operator_type}; try one of {', '.join(sorted(map(str, self.table)))}"
            )
        self._selection.by_operator[operator_type] = self._checked(quantization_config)
        return self

    def set_filter_function(self, filter_fn: NodeFilter) -> Self:
        """Only nodes for which it is true are quantized."""
        self._selection.accepts = as_users(filter_fn)
        return self

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Rewrites the model so that it can be annotated. Called by `prepare_pt2e`."""
        drop_notes(model)
        drop_conversions(model)
        fold_constants(model)
        if not self._selection.trains:
            drop_dropouts_of_weights(model)
        drop_known_choices(model)
        join_indices(model)
        if read_booleans_from_integers(model.graph):
            model.recompile()
        recognize_activations(model, self._is_static)
        broadcast_operands(model)
        split_uneven_padding(model, self._is_static)
        join_padding_of_max_pools(model, self._is_static)
        return model

    def _allow_other_layouts(self, model: GraphModule) -> None:
        """For quantizers that write operators out: before they do, unless views are asked for."""
        if torch.ops.aten.view.default not in self._selection.by_operator:
            view_by_reshape(model)

    def annotate(self, model: GraphModule) -> GraphModule:
        """Says of each node what is quantized around it. Called by `prepare_pt2e`."""
        with internal_errors(f"{type(self).__name__}.annotate"):
            return self._annotated(model)

    def _annotated(self, model: GraphModule) -> GraphModule:
        self.left = []
        self._weights = made_of_weights(model.graph)
        self._infinite = infinite_values(model, dict(self.table))
        self._masks = prepares_masks(model)
        self._annotate_io(model)
        for node in model.graph.nodes:
            if node.op != "call_function" or node in self._weights or _is_annotated(node):
                continue
            if node in self._masks:  # quantized where it is added
                continue
            pattern = self.table.get(node.target)
            against = self._unknown(node) if pattern is None else self._annotate(node, pattern)
            if against is not None and self._is_asked_for(node):
                self.left.append(unquantized(node, against))
        for node in model.graph.nodes:  # once everything that shares a scale is annotated
            pattern = self.table.get(node.target) if node.op == "call_function" else None
            if isinstance(pattern, Elementwise) and pattern.symmetric and _is_annotated(node):
                self._share_around_zero(node)
        self._annotate_rest(model)
        refer_to_one_value(model)
        return model

    def _annotate_io(self, model: GraphModule) -> None:
        """For quantizers that can say something of the model's inputs and outputs themselves."""

    def _annotate_rest(self, model: GraphModule) -> None:
        """For quantizers that say more once all else is annotated."""

    def validate(self, model: GraphModule) -> None:
        """Warns of settings that matched nothing."""
        self._selection.warn_of_unused(type(self).__name__)

    def _checked(self, config: QuantizationConfig | None) -> QuantizationConfig | None:
        if config is None or isinstance(config, QuantizationConfig):
            return config
        raise TypeError(
            f"[{type(self).__name__}] quantization_config must be a QuantizationConfig or None; "
            f"got {type(config).__name__}; try get_symmetric_quantization_config()"
        )

    def _share_around_zero(self, node: Node) -> None:
        config = self._selection.of(node)
        if config is not None and config.input_activation is not None:
            for operand, spec in node.meta[Q_ANNOTATION_KEY].input_qspec_map.items():
                quantize_alike(operand, config.input_activation, spec)

    def _is_asked_for(self, node: Node) -> bool:
        """Whether the settings ask for more of the node than it gets: static scales for whatever
        computes real numbers, all else for products."""
        config = self._selection.of(node)
        if config is None or not computes_real(node):
            return False
        activation = config.input_activation
        if activation is None or activation.is_dynamic:
            return has_weights(node) or is_product(node)
        return True

    def _is_static(self, node: Node) -> bool:
        """Whether the settings give the node's operands scales that are known before."""
        config = self._selection.of(node)
        activation = None if config is None else config.input_activation
        return activation is not None and not activation.is_dynamic

    def _is_quantized(self, node: Node) -> bool:
        """Whether the settings ask for integers, of weights alone perhaps."""
        config = self._selection.of(node)
        return config is not None and strange_dtype(node, self.dtypes) is None

    def _unknown(self, node: Node) -> str:
        if is_product(node) and not self._weights.isdisjoint(node.all_input_nodes):
            return "a product with a weight that is no layer's; try torch.nn.functional.linear"
        return why_unknown(node) or f"{type(self).__name__} has no pattern for it"

    def _annotate(self, node: Node, pattern: Pattern) -> str | None:
        """Why the node stays in floating point; None if it does not, or is to."""
        config = self._selection.of(node)
        if config is None:
            self._follow(node, pattern)
            return None
        strange = strange_dtype(node, self.dtypes)
        if strange is not None:
            return strange
        if not self._infinite.isdisjoint([node, *node.all_input_nodes]):
            return "it computes with infinities, which no scale stands for"
        if (not isinstance(pattern, Elementwise) or pattern.real) and not is_float(node):
            return "its result is no tensor of real numbers"
        nodes = chain(node, pattern, self.absorbs_gates)
        if any(self._selection.refuses(n) for n in nodes[1:]):
            nodes = [node]
        activation = config.input_activation
        is_dynamic = activation is not None and activation.is_dynamic
        if isinstance(pattern, Weighted):
            against = pattern.not_dynamic(node) if is_dynamic else None
            return against or _weighted(nodes, pattern, config, self._weights)
        if is_dynamic or activation is None:
            return "a product of two activations" if is_product(node) else None
        if isinstance(pattern, Elementwise):
            return _elementwise(nodes, pattern, config)
        if isinstance(pattern, Joined):
            return _joined(node, pattern, config)
        if isinstance(pattern, SameScale):
            starts = self.starts_anywhere or pattern.starts
            return pattern.against(node) or _same_scale(node, activation if starts else None)
        return _fixed(node, pattern, activation)

    def _follow(self, node: Node, pattern: Pattern) -> None:
        """Integers are moved as integers where no setting says anything of the node."""
        if not isinstance(pattern, SameScale) or self._selection.refuses(node):
            return
        strange = strange_dtype(node, self.dtypes) or pattern.against(node)
        if strange is None and is_float(node):
            _same_scale(node, None)


def _is_annotated(node: Node) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return annotation is not None and annotation._annotated


def mark(nodes: list[Node], inputs: dict[Node, Any], output: Any) -> None:
    """Inputs belong to the first node, the output to the last."""
    for node in nodes:
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
    nodes[0].meta[Q_ANNOTATION_KEY].input_qspec_map = inputs
    nodes[-1].meta[Q_ANNOTATION_KEY].output_qspec = output


def _weighted(
    nodes: list[Node], pattern: Weighted, config: QuantizationConfig, weights: Container[Node]
) -> str | None:
    args = nodes[0].args
    activation, weight, bias = (args[i] if i < len(args) else None for i in pattern.positions)
    if isinstance(weight, Node) and weight.op == "placeholder":
        return "its weight is handed in, to a model, loop or branch, and may be another each time"
    if not is_float(activation) or not isinstance(weight, Node) or weight not in weights:
        return "its weight is computed, and so has no scale of its own"
    spec = config.weight
    by_channel = spec is not None and spec.qscheme == torch.per_channel_symmetric
    if by_channel and pattern.one_scale:
        spec = get_symmetric_quantization_config(
            is_qat=config.is_qat, weight_qmin=spec.quant_min, weight_qmax=spec.quant_max
        ).weight
    elif by_channel:
        spec = dataclasses.replace(spec, ch_axis=pattern.channel_axis)
        if config.is_qat and pattern.channel_axis:
            # torchao hands fake quantizers no axis: theirs is 0.
            options = {**spec.observer_or_fake_quant_ctr.p.keywords}
            made = FakeQuantize.with_args(**options, ch_axis=pattern.channel_axis)
            spec = dataclasses.replace(spec, observer_or_fake_quant_ctr=made)
    assert isinstance(activation, Node)
    inputs = {activation: config.input_activation, weight: spec}
    if isinstance(bias, Node):
        inputs[bias] = config.bias
    mark(nodes, inputs, config.output_activation)
    return None


def _elementwise(nodes: list[Node], pattern: Elementwise, config: QuantizationConfig) -> str | None:
    given = nodes[0].args[pattern.first : pattern.first + pattern.operands]
    operands = [a for a in given if isinstance(a, Node)]
    wanted = len(operands) == pattern.operands or (pattern.numbers and bool(operands))
    if not wanted:
        return "an operand is a number that is computed, or that no scale can stand for"
    if not all(is_float(a) for a in operands):
        return "an operand is no tensor of real numbers"
    spec = config.input_activation
    if pattern.symmetric:
        spec = around_zero(spec)
    inputs = dict.fromkeys(operands, spec)
    mark(nodes, inputs, config.output_activation if pattern.real else None)
    return None


def around_zero(spec: QuantizationSpec) -> QuantizationSpec:
    """The same with a zero point of 0."""
    return dataclasses.replace(spec, qscheme=torch.per_tensor_symmetric)


def quantize_alike(operand: Node, old: QuantizationSpec, new: QuantizationSpec) -> None:
    """What computes an operand, and the others that read it, quantize it as this one does."""
    source = operand
    while isinstance(_result_of(source), SharedQuantizationSpec) and _is_single(source):
        source = source.all_input_nodes[0]
    pending = [source]
    while pending:
        node = pending.pop()
        if _result_of(node) == old:
            node.meta[Q_ANNOTATION_KEY].output_qspec = new
        for user in node.users:
            annotation = user.meta.get(Q_ANNOTATION_KEY)
            if annotation is not None and annotation.input_qspec_map.get(node) == old:
                annotation.input_qspec_map[node] = new
            if isinstance(_result_of(user), SharedQuantizationSpec) and _is_single(user):
                pending.append(user)


def _is_single(node: Node) -> bool:
    """Of several operands that share one scale each would have to change."""
    return len(node.all_input_nodes) == 1


def _result_of(node: Node) -> Any:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return None if annotation is None else annotation.output_qspec


def _joined(node: Node, pattern: Joined, config: QuantizationConfig) -> str | None:
    positions = pattern.positions
    parts: list[Any] = list(
        node.args[0] if positions is None else (node.args[i] for i in positions)  # type: ignore[arg-type]
    )
    if not parts or not all(is_float(part) for part in parts):
        return "an operand is no tensor of real numbers"
    first = parts[0]
    shared = SharedQuantizationSpec((first, node))
    # The first part is the first in the mapping too: what is shared with it comes later.
    inputs: dict[Any, Any] = {first: config.input_activation}
    for part in parts[1:]:
        inputs.setdefault(part, shared)
    mark([node], inputs, shared)
    return None


def _same_scale(node: Node, first: QuantizationSpec | None) -> str | None:
    """Behind something that is quantized. Elsewhere, if `first` is given, it quantizes."""
    source = node.args[0]
    if not is_float(source) or not isinstance(source, Node):
        return "its operand is no tensor of real numbers"
    if not _has_quantized_result(source):
        if first is None:
            return MOVED_IN_FLOAT
        mark([node], {source: first}, SharedQuantizationSpec((source, node)))
        return None
    shared = SharedQuantizationSpec(source)
    mark([node], {source: shared}, shared)
    return None


def _has_quantized_result(node: Node) -> bool:
    return _result_of(node) is not None


def _fixed(node: Node, pattern: Fixed, activation: QuantizationSpec) -> str | None:
    source = node.args[0]
    if not isinstance(source, Node) or not is_float(source):
        return "its operand is no tensor of real numbers"
    mark([node], {source: activation}, fixed_result(pattern, activation))
    return None


def fixed_result(pattern: Fixed, activation: QuantizationSpec) -> FixedQParamsQuantizationSpec:
    """Of a result whose range is known, where others are quantized by `activation`."""
    return FixedQParamsQuantizationSpec(
        dtype=activation.dtype,
        scale=pattern.scale,
        zero_point=pattern.zero_point,
        quant_min=activation.quant_min,
        quant_max=activation.quant_max,
        qscheme=torch.per_tensor_affine,
    )
