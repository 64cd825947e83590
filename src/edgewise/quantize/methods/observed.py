"""Layers of a graph that `prepare_pt2e` has put observers in, and their rounded weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.methods.layers import LAYERS, TRANSPOSED, Layer, replace

Tensor = torch.Tensor


@dataclass(frozen=True)
class ObservedLayer:
    """layer: with the weight that the observer reads."""

    layer: Layer
    observer: Any

    def scales(self) -> Tensor:
        """What `convert_pt2e` will use, such that the grouped weight can be divided by them:
        [groups, out / groups, 1], or [1, 1, 1] if there is one."""
        scale, _ = self.observer.calculate_qparams()
        found: Tensor = scale.reshape(self.layer.groups if scale.numel() > 1 else 1, -1, 1)
        return found

    def rounded(self) -> Tensor:
        """The weight as its integers stand for it."""
        return rounded(self.layer.stored, self.observer, *self.observer.calculate_qparams())

    @property
    def limits(self) -> tuple[int, int]:
        """Of the integers."""
        return int(self.observer.quant_min), int(self.observer.quant_max)

    def set_grouped(self, value: Tensor) -> None:
        """Another weight; the observer's scales stay. value: [groups, out / groups, rest]."""
        shape = self.layer.grouped().shape
        replace(self.layer.model, self.layer.weight, self.layer.ungrouped(value.reshape(shape)))


def observed_layers(prepared: GraphModule) -> Iterator[ObservedLayer]:
    """Those whose weight has an observer of fixed scales and nothing between it and that, in the
    order of the graph. Transposed convolutions in groups are left out: of their scales."""
    for node in prepared.graph.nodes:
        if node.target not in LAYERS:
            continue
        args = arguments(node)
        weight, bias = args.get("weight"), args.get("bias")
        groups, transposed = int(args.get("groups", 1)), node.target in TRANSPOSED
        if (
            not isinstance(weight, Node)
            or weight.op != "call_module"
            or (transposed and groups > 1)
        ):
            continue
        stored = weight.args[0]
        observer: Any = prepared.get_submodule(str(weight.target))
        plain = isinstance(stored, Node) and stored.op == "get_attr" and len(weight.users) == 1
        if not plain or not hasattr(observer, "calculate_qparams"):
            continue
        assert isinstance(stored, Node)
        if not isinstance(node.args[0], Node) or (bias is not None and bias.op != "get_attr"):
            continue
        yield ObservedLayer(Layer(prepared, node, stored, bias, groups, transposed), observer)


def rounded(value: Tensor, observer: Any, scale: Tensor, zero_point: Tensor) -> Tensor:
    """The value as the observer's integers stand for it, with these parameters."""
    low, high = observer.quant_min, observer.quant_max
    if observer.qscheme in (torch.per_channel_symmetric, torch.per_channel_affine):
        return torch.fake_quantize_per_channel_affine(
            value, scale, zero_point.int(), observer.ch_axis, low, high
        )
    return torch.fake_quantize_per_tensor_affine(value, scale, zero_point.int(), low, high)


__all__ = ["ObservedLayer", "observed_layers", "rounded"]
