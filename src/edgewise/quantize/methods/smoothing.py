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
from edgewise.quantize.steps import attribute

aten = torch.ops.aten
Tensor = torch.Tensor

_SMALLEST = 1e-5
"""Of ranges: a channel of zeros has no factor."""

OUTLIER = 4.0
"""A largest channel so many times as large as the median one is one."""


@dataclass(frozen=True)
class Place:
    """A normalization with a weight of its own, and the layers that alone read it."""

    model: GraphModule
    norm: Node
    layers: tuple[Layer, ...]

    def divide(self, factors: Tensor) -> None:
        """Of the activations each channel by its factor, at no cost: see the module's text."""
        args = arguments(self.norm)
        for name in ("weight", "bias"):
            if args.get(name) is not None:
                value = attribute(self.model, str(args[name].target)).detach()
                replace(self.model, args[name], value / factors.to(value.dtype))
        for layer in self.layers:
            layer.multiply(inputs=factors)

    def largest_weights(self) -> Tensor:
        """Of each channel, over the layers."""
        return torch.stack([layer.largest_by_input() for layer in self.layers]).amax(0)


def smooth(
    model: GraphModule,
    batches: Iterable[Sequence[Any]],
    alpha: float = 0.5,
    outlier: float = OUTLIER,
) -> bool:
    """Migrates behind normalizations whose largest channel is at least `outlier` times as large
    as the median one; in place, whether there were any. The graph computes what it did.

    model: `torch.export.export(...).module()`. batches: tuples of inputs. alpha: 0 leaves the
    activations, 1 makes all their channels alike. ValueError if it lies outside of 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"[smooth] alpha must lie in 0 to 1; got {alpha}; try 0.5")
    places = list(places_of(model))
    axes = {place.norm: place.norm.meta["val"].dim() - 1 for place in places}
    largest = largest_by_channel(model, axes, batches) if axes else {}
    changed = False
    for place in places:
        seen = largest[place.norm]
        if seen.amax() < outlier * seen.median():
            continue
        place.divide(smoothing_factors(seen, place.largest_weights(), alpha))
        changed = True
    return changed


def smoothing_factors(activations: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """s_j of the largest magnitudes of both; 1 where either has none."""
    factors = activations.clamp(min=_SMALLEST) ** alpha / weights.clamp(min=_SMALLEST) ** (
        1 - alpha
    )
    return torch.where((activations < _SMALLEST) | (weights < _SMALLEST), 1.0, factors)


def places_of(model: GraphModule) -> Iterator[Place]:
    """Normalizations over the last dimension that nothing but linear layers reads."""
    for node in model.graph.nodes:
        if node.target not in (aten.layer_norm.default, aten.rms_norm.default):
            continue
        args = arguments(node)
        weight, bias = args["weight"], args.get("bias")
        own = is_own(node, weight) and (bias is None or is_own(node, bias))
        if not own or len(args["normalized_shape"]) != 1:
            continue
        layers = [layer_of(model, user) for user in node.users]
        found = [one for one in layers if one is not None and one.is_linear]
        reads = all(user.args[0] is node for user in node.users)
        if found and reads and len(found) == len(layers):
            yield Place(model, node, tuple(found))


__all__ = ["OUTLIER", "Place", "places_of", "smooth", "smoothing_factors"]
