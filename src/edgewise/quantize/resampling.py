"""Images in another size, by products with matrices of weights.

For processors that have no resampling, or only some. Each mode of `interpolate` weighs the elements
of one dimension, then those of the next: a linear layer along each, whose weights are what the
operator makes of a unit matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.sizes import are_quotients
from edgewise.quantize.composites import MOST_PIECES, MOST_WEIGHTS
from edgewise.quantize.steps import constant, replace_calls, step

aten = torch.ops.aten

_NEAREST = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact3d.vec,
)
_WEIGHED = (
    aten.upsample_linear1d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec,
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.vec,
)


@dataclass(frozen=True)
class Resampling:
    """A call; sizes of the dimensions behind batch and channels."""

    target: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    align_corners: bool
    is_by_sizes: bool
    """Whether the sizes say by how much, and no factor says something else."""


def multiply_by_weights(
    model: GraphModule, native: Callable[[Resampling], bool], wanted: Callable[[Node], bool]
) -> bool:
    """Linear layers along each dimension instead of resampling that is not `native`; whole
    multiples of the nearest elements become copies. Of nodes that are `wanted`."""
    changed = False
    for target in (*_NEAREST, *_WEIGHED):
        changed |= replace_calls(
            model, target, lambda node: _weighed(model, node, native) if wanted(node) else None
        )
    return changed


def _weighed(model: GraphModule, node: Node, native: Callable[[Resampling], bool]) -> Node | None:
    args = arguments(node)
    x: Node = args["input"]
    sizes = [one.meta["val"].shape[2:] for one in (x, node)]
    if not all(isinstance(n, int) for n in (*x.meta["val"].shape, *sizes[1])):
        return None
    before, after = (tuple(map(int, size)) for size in sizes)
    corners = bool(args.get("align_corners", False))
    is_by_sizes = corners or are_quotients(args["scale_factors"], before, after)
    call = Resampling(node.target, before, after, corners, is_by_sizes)
    if native(call):
        return None
    steps = [_along(args, call, dim) for dim in range(len(before))]
    if any(how is None for how in steps):
        return None
    for dim, how in enumerate(steps, 2):
        if isinstance(how, torch.Tensor):
            x = _multiplied(model, node, x, dim, how)
        elif how and how > 1:
            x = _copied(node, x, dim, how)
    return x


def _along(args: dict[str, Any], call: Resampling, dim: int) -> torch.Tensor | int | None:
    """Weights, [elements after, elements before], or how often each element stands beside itself.
    None: too many weights."""
    before, after = call.before[dim], call.after[dim]
    count = after // before
    if call.target in _NEAREST and 1 <= count <= MOST_PIECES:
        numbers = torch.arange(before).double()
        elements = _resampled(args, call, dim, numbers[None])[0]
        if torch.equal(elements, numbers.repeat_interleave(count)):
            return count
    if before * after > MOST_WEIGHTS:
        return None
    unit = torch.eye(before).double()
    weights = _resampled(args, call, dim, unit).t().contiguous()
    return 1 if torch.equal(weights, unit) else weights


def _resampled(
    args: dict[str, Any], call: Resampling, dim: int, rows: torch.Tensor
) -> torch.Tensor:
    """Of [rows, elements before], [rows, elements after]."""
    # Along the last dimension: torch weighs images of one column by other numbers, if antialiased.
    rank = len(call.before)
    others = [1] * (rank - 2) + [len(rows)] * (rank > 1)
    channels = 1 if rank > 1 else len(rows)
    given = {**args, "input": rows.reshape(1, channels, *others, -1)}
    if args["output_size"] is not None:
        given["output_size"] = [*others, call.after[dim]]
    if args["scale_factors"] is not None:
        given["scale_factors"] = [1.0] * (rank - 1) + [args["scale_factors"][dim]]
    result: torch.Tensor = call.target(**given)
    return result.reshape(len(rows), -1)


def _copied(node: Node, x: Node, dim: int, count: int) -> Node:
    shape = list(x.meta["val"].shape)
    apart = step(node, aten.unsqueeze.default, x, dim + 1)
    several = step(node, aten.cat.default, [apart] * count, dim + 1)
    return step(node, aten.reshape.default, several, [*shape[:dim], -1, *shape[dim + 1 :]])


def _multiplied(model: GraphModule, node: Node, x: Node, dim: int, matrix: torch.Tensor) -> Node:
    last = x.meta["val"].dim() - 1
    weight = constant(model, node, matrix.to(x.meta["val"].dtype))
    if dim == last:
        return step(node, aten.linear.default, x, weight)
    x = step(node, aten.transpose.int, x, dim, last)
    x = step(node, aten.linear.default, x, weight)
    return step(node, aten.transpose.int, x, dim, last)


__all__ = ["Resampling", "multiply_by_weights"]
