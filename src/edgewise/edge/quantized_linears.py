"""Linear layers that torchao's 8-bit configurations take apart become linear layers again.

    mm(x, to(t(integers))) * scales + bias           (Int8WeightOnlyConfig)
    _int_mm(quantize(x), t(integers)) * s * scales + bias
                                     (Int8DynamicActivationInt8WeightConfig; s: a scale a token)

become `linear(x, dequantize(integers, scales), bias)`, of `dequantize(quantize(x))` where
activations are quantized, too: what backends know, and the runtime has kernels for. The
weights stay integers in the file.

Requires: parameters are plain tensors (`unwrap_subclasses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls, erase_dead, fake, inherit_meta
from edgewise.edge.program import Constants, drop_unused_constants, fake_mode

aten = torch.ops.aten

_QUANTIZE = "torchao.quantize_affine.default"
_VIEWS = {aten.reshape.default, aten.view.default, aten.flatten.using_ints}
_CASTS = {aten.to.dtype, aten._to_copy.default}
_SUMS = {aten.add.Tensor, aten.add_.Tensor}
_STEPS = _VIEWS | _CASTS | _SUMS
_ASSERT = aten._assert_tensor_metadata.default


@dataclass(frozen=True)
class _Layer:
    product: Node
    weight: Node
    scales: Node
    result: Node
    bias: Node | None
    quantize: Node | None
    """Of the activations; None where they stay real numbers."""
    x: Node


def recompose_linears(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    targets = (aten.mm.default, aten._int_mm.default)
    products = [n for n in calls(program.graph) if n.target in targets]
    if not products or not hasattr(torch.ops.torchao, "dequantize_affine"):
        return False
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


def _layer(product: Node, constants: Constants) -> _Layer | None:
    turned = _behind(product.args[1], _CASTS)
    weight = turned.args[0] if turned.target is aten.t.default else None
    if not isinstance(weight, Node) or weight not in constants or fake(weight).dtype != torch.int8:
        return None
    x = _behind(product.args[0], _STEPS if product.target is aten._int_mm.default else _VIEWS)
    quantize = x if str(x.target) == _QUANTIZE else None
    if (product.target is aten._int_mm.default) != (quantize is not None):
        return None
    scales: Node | None = None
    node = product
    # Up to the product with the weights' scales, by way of the activations' and the offset of
    # unsigned integers.
    while scales is None:
        user = _reader(node)
        if user is None:
            return None
        if user.target is aten.mul.Tensor:
            other = _behind(user.args[1], _STEPS)
            scales = other if other in constants else None
            if scales is None and quantize is None:
                return None
        elif quantize is None or user.target not in (*_CASTS, aten.sub.Tensor, aten.sub_.Tensor):
            return None
        node = user
    assert isinstance(scales, Node)
    if fake(scales).numel() != fake(weight).shape[0]:
        return None
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
    if fake(node).shape[:-1] != fake(source).shape[:-1]:
        return None
    return _Layer(product, weight, scales, node, bias, quantize, source)


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
    name = layer.weight.name
    scales = constants.tensor(layer.scales).detach().reshape(-1).float()
    stored = constants.add(f"{name}_scales", scales)
    zeros = constants.add(f"{name}_zeros", torch.zeros(scales.shape, dtype=torch.int32))
    dtype = fake(layer.result).dtype
    with program.graph.inserting_before(layer.result), fake_mode(program):
        size = [1, int(fake(layer.weight).shape[1])]
        weight = _dequantize(layer, layer.weight, size, stored, zeros, dtype)
        x = layer.x
        if layer.quantize is not None:
            _, block, scale, zero, *_ = layer.quantize.args
            x = _dequantize(layer, layer.quantize, block, scale, zero, dtype)  # type: ignore[arg-type]
        linear = program.graph.call_function(aten.linear.default, (x, weight, layer.bias))
        inherit_meta(linear, layer.product)
        linear.meta["val"] = layer.result.meta["val"]
    layer.result.replace_all_uses_with(linear)


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


def _drop_asserts(program: ExportedProgram) -> None:
    """Those of values that nobody else reads."""
    for node in list(program.graph.nodes):
        if node.target is _ASSERT and len(node.args[0].users) == 1:
            program.graph.erase_node(node)


__all__ = ["recompose_linears"]
