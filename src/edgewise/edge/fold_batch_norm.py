"""Batch normalisation after a convolution or linear layer becomes part of its weights.

Requires a functional graph. Folds where the statistics, the layer's weight and bias are
constants and nobody else reads the layer's output:

    scale = gamma / sqrt(var + eps)
    weight' = weight * scale
    bias' = (bias - mean) * scale + beta
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls, replace
from edgewise.edge.program import Constants, drop_unused_constants

aten = torch.ops.aten

_CONVOLUTIONS = {
    aten.conv1d.default: False,
    aten.conv2d.default: False,
    aten.conv3d.default: False,
    aten.conv1d.padding: False,
    aten.conv2d.padding: False,
    aten.conv_transpose1d.default: True,
    aten.conv_transpose2d.input: True,
}
_NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)


def fold_batch_norm(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    constants = Constants(program)
    changed = False
    for node in calls(program.graph):
        if node.target in _NORMS:
            changed |= _fold(constants, node)
    if changed:
        drop_unused_constants(program)
    return changed


def _fold(constants: Constants, norm: Node) -> bool:
    named = arguments(norm)
    if named.get("training"):
        return False
    layer = named["input"]
    mean, var = named["running_mean"], named["running_var"]
    if not isinstance(layer, Node) or len(layer.users) != 1:
        return False
    if mean not in constants or var not in constants:
        return False
    if any(named[k] is not None and named[k] not in constants for k in ("weight", "bias")):
        return False
    output = _only_output(norm)
    found = _layer_constants(constants, layer)
    if output is None or found is None:
        return False
    weight_node, bias_node, channel_dim = found

    def value(node: Any) -> torch.Tensor | None:
        return constants.tensor(node).double() if node is not None else None

    gamma, beta = value(named["weight"]), value(named["bias"])
    scale = torch.rsqrt(constants.tensor(var).double() + named["eps"])
    if gamma is not None:
        scale = scale * gamma
    weight = constants.tensor(weight_node)
    bias = value(bias_node)
    shift = -constants.tensor(mean).double() if bias is None else bias - constants.tensor(mean)
    shift = shift * scale
    if beta is not None:
        shift = shift + beta
    broadcast = [1] * weight.dim()
    broadcast[channel_dim] = -1
    name = weight_node.name.removeprefix("p_").removesuffix("_weight")
    # Half weights are scaled in float32: rounded once, and scales of any size will do.
    wide = torch.promote_types(weight.dtype, torch.float32)
    scaled = weight * scale.to(wide).view(broadcast)
    new_weight = constants.add(f"{name}_weight_folded", scaled.to(weight.dtype))
    new_bias = constants.add(f"{name}_bias_folded", shift.to(weight.dtype))
    args = list(layer.args)
    args[1:3] = [new_weight, new_bias]
    layer.args = tuple(args)
    replace(output, layer)
    if output is not norm:
        norm.graph.erase_node(norm)
    return True


def _only_output(norm: Node) -> Node | None:
    """The node that is the normalised tensor: the call itself, or item 0 of its results."""
    if norm.target is aten.batch_norm.default:
        return norm
    users = list(norm.users)
    if len(users) == 1 and users[0].target is operator.getitem and users[0].args[1] == 0:
        return users[0]
    return None


def _layer_constants(constants: Constants, layer: Node) -> tuple[Node, Node | None, int] | None:
    """Weight, bias and the weight's output channel dimension, if both are constants."""
    target = layer.target
    if target is aten.convolution.default:
        transposed = bool(layer.args[6])
    elif target in _CONVOLUTIONS:
        transposed = _CONVOLUTIONS[target]
    elif target is aten.linear.default and layer.meta["val"].dim() == 2:
        transposed = False
    else:
        return None
    named = arguments(layer)
    weight, bias = named["weight"], named["bias"]
    if layer.kwargs or weight.meta["val"].dim() != layer.meta["val"].dim():
        return None  # without batch dimension the norm's channels are another dimension
    if weight not in constants or (bias is not None and bias not in constants):
        return None
    if transposed and named["groups"] != 1:
        return None
    return weight, bias, 1 if transposed else 0
