"""Constant factors and offsets around a product become part of its weights.

Before it: `fc(x * gamma + beta)` has weights `w * gamma` and bias `b + w @ beta`, where
every reader of the scaled tensor is such a node (layer normalisation before
projections). After it: `fc(x) * s + a` has weights `w * s` and bias `b * s + a` for
numbers s and a, and so does a convolution (the scale of an attention's query, the
hardsigmoid of a squeeze-and-excitation). Weights are combined in float64 and rounded once;
of integers only the scales change.
"""

from __future__ import annotations

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import scaled
from edgewise.passes import declared


@declared()
def fold_affine(graph: Graph) -> bool:
    changed = _fold_after(graph)
    for kind in ("Add", "Multiply"):
        changed |= _fold_before(graph, kind)
    return changed


def _constant_operand(node: Node) -> tuple[Value, torch.Tensor] | None:
    """The computed operand and the constant of a binary node."""
    a, b = node.inputs
    if any(v is not None and v.quant is not None for v in (a, b)):
        return None
    if b is not None and b.data is not None and a is not None and a.data is None:
        return a, b.data
    if a is not None and a.data is not None and b is not None and b.data is None:
        return b, a.data
    return None


def _constant_weights(node: Node, may_be_integers: bool = False) -> bool:
    """Whether weights and bias (if any) are constants."""
    _, weight, bias = node.inputs
    return (
        weight is not None
        and weight.data is not None
        and (weight.quant is None or may_be_integers)
        and (bias is None or bias.data is not None)
        and not node.params.get("flags")
    )


_PRODUCTS = ("FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d")


def _fold_after(graph: Graph) -> bool:
    users, producers = graph.users(), graph.producers()
    gone: set[Node] = set()
    for node in graph.nodes:
        found = _constant_operand(node) if node.kind in ("Multiply", "Add") else None
        if found is None or found[1].numel() != 1:
            continue
        source, number = found
        if len(source.dims) != len(node.outputs[0].dims):
            continue  # more dimensions are what it is there for
        reshape = producers.get(source)
        product = reshape
        if reshape is not None and reshape.kind == "StaticReshape":
            assert reshape.inputs[0] is not None
            product = producers.get(reshape.inputs[0])
        if product is None or product.kind not in _PRODUCTS or product.clamp is not None:
            continue
        between = {source, product.outputs[0]}
        if any(len(users[v]) != 1 or v.output_index is not None for v in between):
            continue
        # A positive factor of integers goes to their scales.
        if not _constant_weights(product, node.kind == "Add" or float(number) > 0):
            continue
        if node.kind == "Multiply":
            _scale(product, number)
        else:
            _shift(product, number)
        assert reshape is not None
        reshape.outputs = node.outputs
        reshape.clamp = node.clamp if reshape is product else None
        if reshape is not product:
            product.clamp = node.clamp
        producers[node.outputs[0]] = reshape
        gone.add(node)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _scale(product: Node, factor: torch.Tensor) -> None:
    _, weight, bias = product.inputs
    assert weight is not None and weight.data is not None
    if weight.quant is None:
        product.inputs[1] = _constant(weight.data.double() * factor.double(), weight)
    else:
        quant = scaled(weight.quant, float(factor))
        product.inputs[1] = Value(weight.dims, weight.dtype, data=weight.data, quant=quant)
    if bias is not None and bias.data is not None:
        product.inputs[2] = _constant(bias.data.double() * factor.double(), bias)


def _shift(product: Node, amount: torch.Tensor) -> None:
    _, weight, bias = product.inputs
    assert weight is not None
    known = torch.zeros(product.outputs[0].dims[-1]) if bias is None else bias.data
    assert known is not None
    product.inputs[2] = _constant(known.double() + amount.double(), bias or weight)


def _fold_before(graph: Graph, kind: str) -> bool:
    users = graph.users()
    gone: set[Node] = set()
    for node in graph.nodes:
        found = _constant_operand(node) if node.kind == kind else None
        if found is None or node.clamp is not None or node.outputs[0].output_index is not None:
            continue
        source, constant = found
        result = node.outputs[0]
        channels = result.dims[-1]
        if source.dims != result.dims or constant.numel() not in (1, channels):
            continue
        if constant.numel() > 1 and constant.shape[-1] != channels:
            continue
        readers = users.get(result, [])
        if not readers or not all(
            r.kind == "FullyConnected" and r.inputs[0] is result and _constant_weights(r)
            for r in readers
        ):
            continue
        vector = constant.double().reshape(-1).expand(channels)
        for reader in readers:
            _absorb(reader, vector, kind)
            reader.inputs[0] = source
        users[source] = [u for u in users[source] if u is not node] + readers
        gone.add(node)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _absorb(product: Node, vector: torch.Tensor, kind: str) -> None:
    _, weight, bias = product.inputs
    assert weight is not None and weight.data is not None
    w = weight.data.double()
    if kind == "Multiply":
        product.inputs[1] = _constant(w * vector, weight)
        return
    offset = w @ vector
    if bias is not None and bias.data is not None:
        product.inputs[2] = _constant(bias.data.double() + offset, bias)
    else:
        product.inputs[2] = _constant(offset, weight)


def _constant(data: torch.Tensor, like: Value) -> Value:
    data = data.to(like.dtype).contiguous()
    return Value(tuple(data.shape), like.dtype, data=data)
