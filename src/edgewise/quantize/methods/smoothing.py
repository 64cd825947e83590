"""SmoothQuant: outliers of activations migrate into the weights that read them.

Behind a normalization a few channels may be far larger than the others, and one scale for all
leaves these a few steps. Channel j of the activations X is divided by

    s_j = max|X_j| ** alpha / max|W_j| ** (1 - alpha)

and the weights W that read it are multiplied by the same. The division costs nothing: the
normalization's own weight and bias are divided. W_j are all weights of all layers that read the
channel.

Source: "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models",
https://arxiv.org/abs/2211.10438, equation 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.methods.layers import Layer, is_own, layer_of, replace
from edgewise.quantize.methods.statistics import largest_by_channel
from edgewise.quantize.steps import attribute, constant, step

aten = torch.ops.aten
Tensor = torch.Tensor

_SMALLEST = 1e-5
"""Of ranges: a channel of zeros has no factor."""

OUTLIER = 4.0
"""A largest channel so many times as large as the median one is one."""


@dataclass(frozen=True)
class NormedLayers:
    """A normalization with a weight of its own, and the linear layers that read it.

    shared: whether others read it, too.
    """

    model: GraphModule
    norm: Node
    layers: tuple[Layer, ...]
    shared: bool

    def divide(self, factors: Tensor) -> None:
        """Of the activations that layers read each channel by its factor."""
        for layer in self.layers:
            layer.multiply(inputs=factors)
        if self.shared:
            self._divide_by_product(factors)
            return
        args = arguments(self.norm)
        for name in ("weight", "bias"):
            if args.get(name) is not None:
                value = attribute(self.model, str(args[name].target)).detach()
                replace(self.model, args[name], value / factors.to(value.dtype))

    def _divide_by_product(self, factors: Tensor) -> None:
        graph = self.model.graph
        with graph.inserting_after(self.norm):
            kept = constant(self.model, self.norm, (1 / factors).to(self.norm.meta["val"].dtype))
        with graph.inserting_after(kept):
            made = step(self.norm, aten.mul.Tensor, self.norm, kept)
        for layer in self.layers:
            layer.node.replace_input_with(self.norm, made)

    def largest_weights(self) -> Tensor:
        """Of each channel, over the layers."""
        return torch.stack([layer.largest_by_input() for layer in self.layers]).amax(0)


def smooth(
    model: GraphModule,
    batches: Iterable[Sequence[Any]],
    alpha: float = 0.5,
    outlier: float = OUTLIER,
    products: bool = False,
) -> bool:
    """Migrates behind normalizations whose largest channel is at least `outlier` times as large
    as the median one; in place, whether there were any. The graph computes what it did.

    model: `torch.export.export(...).module()`. batches: tuples of inputs. alpha: 0 leaves the
    activations, 1 makes all their channels alike. products: also behind normalizations that others
    than linear layers read (a residual connection, say), with a product before the layers, for
    processors that compute it in floating point. ValueError if it lies outside of 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"[smooth] alpha must lie in 0 to 1; got {alpha}; try 0.5")
    groups = [group for group in normed_layers(model) if products or not group.shared]
    axes = {group.norm: group.norm.meta["val"].dim() - 1 for group in groups}
    largest = largest_by_channel(model, axes, batches) if axes else {}
    changed = False
    for group in groups:
        seen = largest.get(group.norm)
        if seen is None or seen.amax() < outlier * seen.median():
            continue
        group.divide(smoothing_factors(seen, group.largest_weights(), alpha))
        changed = True
    if changed:
        model.recompile()
    return changed


def smoothing_factors(activations: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """s_j of the largest magnitudes of both; 1 where either has none."""
    factors = activations.clamp(min=_SMALLEST) ** alpha / weights.clamp(min=_SMALLEST) ** (
        1 - alpha
    )
    return torch.where((activations < _SMALLEST) | (weights < _SMALLEST), 1.0, factors)


def normed_layers(model: GraphModule) -> Iterator[NormedLayers]:
    """Normalizations over the last dimension that linear layers read."""
    for node in model.graph.nodes:
        if node.target not in (aten.layer_norm.default, aten.rms_norm.default):
            continue
        args = arguments(node)
        weight, bias = args["weight"], args.get("bias")
        own = is_own(node, weight) and (bias is None or is_own(node, bias))
        if not own or len(args["normalized_shape"]) != 1:
            continue
        found = (layer_of(model, user) for user in node.users)
        layers = tuple(one for one in found if one is not None and one.is_linear)
        if layers:
            yield NormedLayers(model, node, layers, shared=len(layers) < len(node.users))


__all__ = ["OUTLIER", "NormedLayers", "normed_layers", "smooth", "smoothing_factors"]
