"""Layers with weights in an exported graph: their channels, and multiplying these by factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.steps import attribute

aten = torch.ops.aten
Tensor = torch.Tensor

_LINEAR = frozenset({aten.linear.default})
_CONVOLUTIONS = frozenset(
    {
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv3d.default,
        aten.conv1d.padding,
        aten.conv2d.padding,
        aten.conv3d.padding,
    }
)
TRANSPOSED = frozenset(
    {aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input}
)

LAYERS = _LINEAR | _CONVOLUTIONS | TRANSPOSED


@dataclass(frozen=True)
class Layer:
    """A linear layer or convolution whose weight and bias nobody else reads.

    Weights are [out, in / groups, ...], of transposed convolutions [in, out / groups, ...].
    """

    model: GraphModule
    node: Node
    weight: Node
    bias: Node | None
    groups: int
    transposed: bool

    @property
    def is_linear(self) -> bool:
        """Whether channels are its last dimension."""
        return self.node.target in _LINEAR

    @property
    def activation(self) -> Node:
        """What it reads beside its parameters."""
        source = self.node.args[0]
        assert isinstance(source, Node)
        return source

    @property
    def channel_axis(self) -> int:
        """The dimension of channels of what it reads and computes."""
        dims: int = self.node.meta["val"].dim()
        spatial = self.stored.dim() - 2
        return dims - 1 if self.is_linear else dims - 1 - spatial

    @property
    def stored(self) -> Tensor:
        """The weight."""
        return attribute(self.model, str(self.weight.target)).detach()

    @property
    def stored_bias(self) -> Tensor | None:
        """[out]"""
        return None if self.bias is None else attribute(self.model, str(self.bias.target)).detach()

    def grouped(self, weight: Tensor | None = None) -> Tensor:
        """The weight, or another instead, as [groups, out / groups, in / groups, elements]."""
        weight = self.stored if weight is None else weight
        flat = weight.reshape(self.groups, -1, weight.shape[1], weight.shape[2:].numel())
        return flat.transpose(1, 2) if self.transposed else flat

    def ungrouped(self, weight: Tensor) -> Tensor:
        """The inverse of `grouped`."""
        weight = weight.transpose(1, 2) if self.transposed else weight
        return weight.reshape(self.stored.shape)

    def largest_by_output(self) -> Tensor:
        """[out]"""
        return self.grouped().abs().amax((2, 3)).flatten()

    def largest_by_input(self) -> Tensor:
        """[in]"""
        return self.grouped().abs().amax((1, 3)).flatten()

    def multiply(self, outputs: Tensor | None = None, inputs: Tensor | None = None) -> None:
        """Multiplies weight and bias by a factor for each output, the weight by one for each
        input: new parameters, as the model's own may be others' too."""
        weight = self.grouped()
        if outputs is not None:
            weight = weight * outputs.to(weight.dtype).reshape(self.groups, -1, 1, 1)
        if inputs is not None:
            weight = weight * inputs.to(weight.dtype).reshape(self.groups, 1, -1, 1)
        replace(self.model, self.weight, self.ungrouped(weight))
        bias = self.stored_bias
        if outputs is not None and bias is not None and self.bias is not None:
            replace(self.model, self.bias, bias * outputs.to(bias.dtype))


def layer_of(model: GraphModule, node: Node) -> Layer | None:
    """None if the node is no such layer, or if others read its parameters."""
    target = node.target
    if target not in LAYERS:
        return None
    args = arguments(node)
    weight, bias = args["weight"], args["bias"]
    if not is_own(node, weight) or not (bias is None or is_own(node, bias)):
        return None
    if not attribute(model, str(weight.target)).is_floating_point():
        return None
    return Layer(model, node, weight, bias, int(args.get("groups", 1)), target in TRANSPOSED)


def layers_of(model: GraphModule) -> list[Layer]:
    """In the order of the graph."""
    found = (layer_of(model, node) for node in model.graph.nodes if node.op == "call_function")
    return [layer for layer in found if layer is not None]


def is_own(node: Node, parameter: Any) -> bool:
    """Whether the node alone reads a constant: no other node that stands for it does."""
    if not isinstance(parameter, Node) or parameter.op != "get_attr":
        return False
    same = [n for n in node.graph.nodes if n.op == "get_attr" and n.target == parameter.target]
    return [user for n in same for user in n.users] == [node]


def replace(model: GraphModule, parameter: Node, value: Tensor) -> None:
    """Another parameter of the same name, in the graph's own modules."""
    owner_name, _, name = str(parameter.target).rpartition(".")
    owner = model.get_submodule(owner_name)
    if name in owner._parameters:
        owner._parameters[name] = torch.nn.Parameter(value.contiguous(), requires_grad=False)
    else:
        owner._buffers[name] = value.contiguous()


__all__ = ["LAYERS", "TRANSPOSED", "Layer", "is_own", "layer_of", "layers_of", "replace"]
