"""Linear layers that 8-bit configurations take apart become linear layers again.

    linear(x, to(integers)) * scales                 (WeightOnlyInt8Linear of gpt-fast, by hand)
    mm(x, to(t(integers))) * scales + bias           (Int8WeightOnlyConfig)
    mm(x, t(dequantize(integers))) + bias            (Int8WeightOnlyConfig in groups)
    _int_mm(quantize(x), t(integers)) * s * scales + bias
                (Int8DynamicActivationInt8WeightConfig; s: a scale a token, or for all of them)
                (Int8StaticActivationInt8WeightConfig; s: a constant)

become `linear(x, dequantize(integers, scales), bias)`, of `dequantize(quantize(x))` where
activations are quantized, too: what backends know, and the runtime has kernels for. The
weights stay integers in the file. The configurations are torchao's.

Requires: parameters are plain tensors (`unwrap_subclasses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls, erase_dead, fake, inherit_meta, same_shape
from edgewise.edge.program import Constants, drop_unused_constants, fake_mode
from edgewise.edge.quiet_torchao import declare_quantized_operators

aten = torch.ops.aten

_QUANTIZE = "torchao.quantize_affine.default"
_DEQUANTIZE = "torchao.dequantize_affine.default"
_VIEWS = {aten.reshape.default, aten.view.default, aten.flatten.using_ints}
_CASTS = {aten.to.dtype, aten._to_copy.default}
_SUMS = {aten.add.Tensor, aten.add_.Tensor}
_STEPS = _VIEWS | _CASTS | _SUMS
_ASSERT = aten._assert_tensor_metadata.default


@dataclass(frozen=True)
class _Layer:
    product: Node
    weight: Node
    scales: Node | None
    """None where the weight is dequantized already."""
    result: Node
    bias: Node | None
    quantize: Node | None
    """Of the activations; None where they stay real numbers."""
    x: Node


def recompose_linears(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    linears = [n for n in calls(program.graph) if _is_of_integers(n)]
    targets = (aten.mm.default, aten._int_mm.default)
    products = [n for n in calls(program.graph) if n.target in targets]
    if not linears and not (products and hasattr(torch.ops.torchao, "dequantize_affine")):
        return False
    products += linears
    constants = Constants(program)
    changed = False
    for product in products:
        layer = _layer(product, constants)
        if layer is not None:
            _replace(program, layer, constants)
            changed = True
    if changed:
        _drop_asserts(program)
        erase_dead(program.graph)
        drop_unused_constants(program)
    return changed


def _is_of_integers(node: Node) -> bool:
    """Whether the node is a linear layer without a bias, of int8 weights as real numbers."""
    if node.target is not aten.linear.default or arguments(node)["bias"] is not None:
        return False
    weight = _behind(node.args[1], _CASTS)
    return weight is not node.args[1] and fake(weight).dtype == torch.int8


def _layer(product: Node, constants: Constants) -> _Layer | None:
    weight = _behind(product.args[1], _CASTS)
    if product.target is not aten.linear.default:
        if weight.target is not aten.t.default:
            return None
        weight = _behind(weight.args[0], _CASTS)
    in_integers = product.target is aten._int_mm.default
    x = _behind(product.args[0], _STEPS if in_integers else _VIEWS)
    quantize = x if str(x.target) == _QUANTIZE else None
    if in_integers != (quantize is not None):
        return None
    node: Node | None = product
    scales: Node | None = None
    if not _is_dequantized(weight, constants):
        if weight not in constants or fake(weight).dtype != torch.int8:
            return None
        node = _scaled(product, quantize, constants)
        if node is None:
            return None
        scales = _behind(node.args[1], _STEPS)
        if fake(scales).numel() not in (1, fake(weight).shape[0]):
            return None
    elif in_integers:
        return None
    assert node is not None
    user = _reader(node)
    if user is not None and user.target in _VIEWS:
        node, user = user, _reader(user)
    bias: Node | None = None
    if user is not None and user.target in _SUMS and user.args[0] is node:
        given = user.args[1]
        if not isinstance(given, Node):
            return None
        if given in constants and list(fake(given).shape) == [fake(weight).shape[0]]:
            node, bias = user, given
    source = x if quantize is None else quantize.args[0]
    assert isinstance(source, Node)
    user = _reader(node)
    if user is not None and user.target in _CASTS:
        node = user
    dtypes = {fake(n).dtype for n in (node, source, bias) if n is not None}
    if len(dtypes) != 1:
        return None
    if not same_shape(fake(node).shape[:-1], fake(source).shape[:-1]):
        return None
    return _Layer(product, weight, scales, node, bias, quantize, source)


def _is_dequantized(weight: Node, constants: Constants) -> bool:
    return str(weight.target) == _DEQUANTIZE and weight.args[0] in constants


def _scaled(product: Node, quantize: Node | None, constants: Constants) -> Node | None:
    """The product with the weights' scales: behind the one with the activations' scale, and the
    offset of unsigned integers. None if there is none."""
    node = product
    # A scale of the activations that is fixed is a constant, too.
    of_activations = None if quantize is None else quantize.args[2]
    while True:
        user = _reader(node)
        if user is None:
            return None
        if user.target is aten.mul.Tensor:
            scale = _behind(user.args[1], _STEPS)
            if scale is of_activations:
                of_activations = None
            elif scale in constants:
                return user
            elif quantize is None:
                return None
        elif quantize is None or user.target not in (*_CASTS, aten.sub.Tensor, aten.sub_.Tensor):
            return None
        node = user


def _behind(node: Any, targets: set[Any]) -> Node:
    """What a chain of calls of the operators starts from, along first operands."""
    while node.target in targets and not node.args[0].op.startswith("output"):
        node = node.args[0]
    assert isinstance(node, Node)
    return node


def _reader(node: Node) -> Node | None:
    """The only one that reads the node's values."""
    users = [user for user in node.users if user.target is not _ASSERT]
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _replace(program: ExportedProgram, layer: _Layer, constants: Constants) -> None:
    dtype = fake(layer.result).dtype
    fixed = _fixed_scale(layer, constants)
    stored = None if layer.scales is None else _stored_scales(layer, layer.scales, constants)
    with program.graph.inserting_before(layer.result), fake_mode(program):
        weight, x = layer.weight, layer.x
        if stored is not None:
            weight = _dequantize_rows(layer, *stored, dtype)
        elif fake(weight).dtype != dtype:
            weight = _as_type(weight, dtype)
        if fixed is not None:
            x = _rounded(layer, *fixed)
        elif layer.quantize is not None:
            _, block, scale, zero, *_ = layer.quantize.args
            x = _dequantize(layer, layer.quantize, block, scale, zero, dtype)  # type: ignore[arg-type]
        linear = program.graph.call_function(aten.linear.default, (x, weight, layer.bias))
        inherit_meta(linear, layer.product)
        linear.meta["val"] = layer.result.meta["val"]
    layer.result.replace_all_uses_with(linear)


def _stored_scales(layer: _Layer, scales: Node, constants: Constants) -> tuple[Node, Node]:
    """Scale and zero point of each row of the weights."""
    name, rows = layer.weight.name, int(fake(layer.weight).shape[0])
    values = constants.tensor(scales).reshape(-1).float().expand(rows).clone()
    zeros = torch.zeros(rows, dtype=torch.int64)
    return constants.add(f"{name}_scales", values), constants.add(f"{name}_zeros", zeros)


def _fixed_scale(layer: _Layer, constants: Constants) -> tuple[float, int] | None:
    """Scale and zero point of all activations, if they are known before the program runs."""
    if layer.quantize is None:
        return None
    scale, zero = layer.quantize.args[2:4]
    if scale not in constants or fake(scale).numel() != 1:  # type: ignore[arg-type]
        return None
    if isinstance(zero, Node) and zero in constants:
        return constants.tensor(scale).item(), int(constants.tensor(zero).item())  # type: ignore[arg-type]
    is_zero = isinstance(zero, Node) and zero.target is aten.zeros_like.default
    return (constants.tensor(scale).item(), 0) if is_zero else None  # type: ignore[arg-type]


def _rounded(layer: _Layer, scale: float, zero: int) -> Node:
    """The activations, quantized and back, by one scale."""
    declare_quantized_operators()
    graph, like = layer.product.graph, fake(layer.x)
    node = layer.x
    bounds = (scale, zero, -128, 127, torch.int8)
    operators = torch.ops.quantized_decomposed
    for operator, dtype in (
        (operators.quantize_per_tensor.default, torch.int8),
        (operators.dequantize_per_tensor.default, like.dtype),
    ):
        options: dict[str, Any] = (
            {} if dtype in (torch.int8, torch.float32) else {"out_dtype": dtype}
        )
        node = graph.call_function(operator, (node, *bounds), options)
        inherit_meta(node, layer.product)
        node.meta["val"] = like.new_empty(like.shape, dtype=dtype)
    return node


def _dequantize_rows(layer: _Layer, scales: Node, zeros: Node, dtype: torch.dtype) -> Node:
    """The weights as real numbers, by the operator of which every runtime has a kernel."""
    declare_quantized_operators()
    operator = torch.ops.quantized_decomposed.dequantize_per_channel.default
    options: dict[str, Any] = {} if dtype == torch.float32 else {"out_dtype": dtype}
    source = layer.weight
    args = (source, scales, zeros, 0, -128, 127, torch.int8)
    node = source.graph.call_function(operator, args, options)
    inherit_meta(node, layer.product)
    node.meta["val"] = fake(source).new_empty(fake(source).shape, dtype=dtype)
    return node


def _dequantize(
    layer: _Layer, source: Node, block: Sequence[int], scale: Any, zero: Any, dtype: torch.dtype
) -> Node:
    operator = torch.ops.torchao.dequantize_affine.default
    args = (source, list(block), scale, zero, torch.int8, -128, 127)
    options: dict[str, Any] = {} if dtype == torch.float32 else {"output_dtype": dtype}
    node = source.graph.call_function(operator, args, options)
    inherit_meta(node, layer.product)
    node.meta["val"] = fake(source).new_empty(fake(source).shape, dtype=dtype)
    return node


def _as_type(dequantized: Node, dtype: torch.dtype) -> Node:
    """The same numbers in the layer's type, which torchao gets by a cast."""
    options = {**dequantized.kwargs, "output_dtype": dtype}
    node = dequantized.graph.call_function(dequantized.target, dequantized.args, options)  # type: ignore[arg-type]
    inherit_meta(node, dequantized)
    node.meta["val"] = fake(dequantized).new_empty(fake(dequantized).shape, dtype=dtype)
    return node


def _drop_asserts(program: ExportedProgram) -> None:
    """Those of values that nobody else reads."""
    for node in list(program.graph.nodes):
        if node.target is _ASSERT and len(node.args[0].users) == 1:
            program.graph.erase_node(node)


__all__ = ["recompose_linears"]
