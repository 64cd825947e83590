"""GPTQ for modules whose weights torchao has rounded in groups: other integers, the same scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from edgewise.quantize.methods.gptq_rounding import round_in_turn
from edgewise.quantize.methods.layers import layers_of
from edgewise.quantize.methods.moments import moments

Tensor = torch.Tensor


def moments_by_weight(
    graph: GraphModule, batches: Iterable[Sequence[Any]]
) -> Mapping[str, tuple[Tensor, Tensor]]:
    """Of each linear layer, by its weight's name: the weight, and E[x x^T] of what it reads."""
    layers = [layer for layer in layers_of(graph) if layer.is_linear]
    seen = moments(graph, layers, batches)
    return {str(one.weight.target): (one.stored, seen[one.node][0]) for one in layers}


def round_groups_in_turn(
    model: torch.nn.Module, known: Mapping[str, tuple[Tensor, Tensor]], bits: int
) -> bool:
    """Other integers in the weights of the model's linear layers; whether there were any.

    model: what `quantize_` made with a symmetric `IntxWeightOnlyConfig`, or that with 8-bit
    activations. known: of `moments_by_weight`, before.
    """
    limit = 2 ** (bits - 1)
    changed = False
    for name, module in model.named_modules():
        found = known.get(f"{name}.weight" if name else "weight")
        stored: Any = getattr(module, "weight", None)
        if found is None or not hasattr(stored, "qdata"):
            continue
        weight, second = found
        scale = stored.scale.float().repeat_interleave(stored.block_size[1], 1)
        integers = round_in_turn(weight, scale, second, (-limit, limit - 1))
        with torch.no_grad():
            stored.qdata.copy_(integers.to(stored.qdata.dtype))
        changed = True
    return changed


__all__ = ["moments_by_weight", "round_groups_in_turn"]
