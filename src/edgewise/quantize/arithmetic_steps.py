"""Arithmetic in steps, each of which can be quantized: gates, deviations, divisions, clamps.

For quantizers' `transform_for_annotation`, as `edgewise.quantize.steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments, inherit_meta
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten


def split_gates(model: GraphModule) -> bool:
    """A product with a sigmoid instead of a gated linear unit."""
    return replace_calls(model, aten.glu.default, _gated)


def split_deviations(model: GraphModule) -> bool:
    """Roots of variances instead of standard deviations."""
    changed = False
    for name in ("correction", "dim", "default"):
        variance = getattr(aten.var, name)
        changed |= replace_calls(
            model,
            getattr(aten.std, name),
            lambda node, variance=variance: _deviation(node, variance),  # type: ignore[misc]
        )
    return changed


def split_divisions(model: GraphModule) -> bool:
    """Products with reciprocals instead of divisions by what is computed, and of remainders;
    a rounding of its own where the division rounds."""
    changed = False
    for target in (
        aten.div.Tensor,
        aten.div_.Tensor,
        aten.div.Tensor_mode,
        aten.div_.Tensor_mode,
        aten.floor_divide.default,
    ):
        changed |= replace_calls(model, target, _divided)
    return replace_calls(model, aten.remainder.Tensor, _remainder) or changed


def split_uneven_padding(
    model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True
) -> bool:
    """Padding of its own before convolutions that keep an image's size with an even kernel: one
    side gets more than the other. Of nodes that are `wanted`."""

    def padded(node: Node) -> Node | None:
        return _padded(node, _PLAIN[node.target]) if wanted(node) else None

    changed = False
    for target in _PLAIN:
        changed |= replace_calls(model, target, padded)
    return changed


_PLAIN: dict[Any, Any] = {
    aten.conv1d.padding: aten.conv1d.default,
    aten.conv2d.padding: aten.conv2d.default,
}


def _padded(node: Node, plain: Any) -> Node | None:
    args = arguments(node)
    kernel = args["weight"].meta["val"].shape[2:]
    gaps = list(args["dilation"])
    gaps = gaps * len(kernel) if len(gaps) == 1 else gaps
    around = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
    if args["padding"] != "same" or all(total % 2 == 0 for total in around):
        return None
    edges = [n for total in around[::-1] for n in (total // 2, total - total // 2)]
    source = step(node, aten.constant_pad_nd.default, args["input"], edges, 0.0)
    rest = (args["stride"], [0] * len(kernel), gaps, args["groups"])
    return step(node, plain, source, args["weight"], args["bias"], *rest)


def softmax_along_last(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """A softmax along the last dimension, between two transposes, instead of one along
    another; of nodes that are `wanted`."""
    return replace_calls(
        model, aten.softmax.int, lambda node: _along_last(node) if wanted(node) else None
    )


def _along_last(node: Node) -> Node | None:
    args = arguments(node)
    shape = node.meta["val"].shape
    along_last = not shape or args["dim"] % len(shape) == len(shape) - 1
    if along_last or not all(isinstance(size, int) for size in shape):
        return None
    source = step(node, aten.transpose.int, args["self"], args["dim"], -1)
    made = step(node, aten.softmax.int, source, -1, args["dtype"])
    return step(node, aten.transpose.int, made, args["dim"], -1)


def split_clamps(model: GraphModule) -> bool:
    """Maxima and minima instead of clamps by tensors."""
    changed = False
    for target in (aten.clamp.Tensor, aten.clamp_.Tensor):
        changed |= replace_calls(model, target, _clamped)
    return changed


def put_copies(model: GraphModule) -> bool:
    """`index_put` instead of `index_copy`, which takes no indices but int64."""
    changed = False
    for target in (aten.index_copy.default, aten.index_copy_.default):
        changed |= replace_calls(model, target, _put_copy)
    return changed


def _put_copy(node: Node) -> Node | None:
    args = arguments(node)
    rank = node.meta["val"].dim()
    if rank == 0:
        return None
    indices = [*[None] * (args["dim"] % rank), args["index"]]
    return step(node, aten.index_put.default, args["self"], indices, args["source"])


def put_whole(model: GraphModule) -> bool:
    """What is put, instead of putting it over the whole of a dimension."""
    changed = replace_calls(model, aten.select_scatter.default, _put_selected)
    return replace_calls(model, aten.slice_scatter.default, _put_sliced) or changed


def _put_selected(node: Node) -> Node | None:
    args = arguments(node)
    value, source = node.meta["val"], args["src"]
    whole = value.shape[args["dim"]] == 1 and source.meta["val"].dtype == value.dtype
    return step(node, aten.unsqueeze.default, source, args["dim"] % value.dim()) if whole else None


def _put_sliced(node: Node) -> Node | None:
    source: Node = arguments(node)["src"]
    value, put = node.meta["val"], source.meta["val"]
    return source if (put.shape, put.dtype) == (value.shape, value.dtype) else None


def split_masked_puts(model: GraphModule) -> bool:
    """A choice instead of putting one number where a mask of booleans says."""
    changed = False
    for target in (aten.index_put.default, aten.index_put_.default):
        changed |= replace_calls(model, target, _masked_put)
    return changed


def _masked_put(node: Node) -> Node | None:
    args = arguments(node)
    source, value = args["self"], args["values"]
    given = [(dim, index) for dim, index in enumerate(args["indices"]) if index is not None]
    dim, mask = given[0]
    known: torch.Tensor = mask.meta["val"]
    one = value.meta["val"].numel() == 1 and value.meta["val"].dim() <= 1
    if len(given) != 1 or known.dtype != torch.bool or not one or not _is_real(node):
        return None
    behind = node.meta["val"].dim() - dim - known.dim()
    mask = step(node, aten.view.default, mask, [*known.shape, *[1] * behind])
    if args["accumulate"]:
        value = step(node, aten.add.Tensor, source, value)
    return step(node, aten.where.self, mask, value, source)


def _deviation(node: Node, variance: Any) -> Node:
    made = node.graph.call_function(variance, node.args, dict(node.kwargs))
    inherit_meta(made, node)
    made.meta["val"] = node.meta["val"]
    return step(node, aten.sqrt.default, made)


def _gated(node: Node) -> Node:
    args = arguments(node)
    source, dim = args["self"], args["dim"]
    half = source.meta["val"].shape[dim] // 2
    value = step(node, aten.slice.Tensor, source, dim, 0, half)
    gate = step(node, aten.slice.Tensor, source, dim, half, 2 * half)
    return step(node, aten.mul.Tensor, value, step(node, aten.sigmoid.default, gate))


_ROUNDINGS = {"floor": aten.floor.default, "trunc": aten.trunc.default}


def _divided(node: Node) -> Node | None:
    args = arguments(node)
    mode = "floor" if node.target is aten.floor_divide.default else args.get("rounding_mode")
    named = "rounding_mode" in args  # and may be None
    made = _quotient(node, args["self"], args["other"], named or mode is not None)
    return made if made is None or mode is None else step(node, _ROUNDINGS[mode], made)


def _quotient(node: Node, source: Any, divisor: Any, rounds: bool) -> Node | None:
    """The exact one, if it is rounded next or the divisor is computed; else None."""
    if not _is_real(node):
        return None
    if not isinstance(divisor, Node):
        return step(node, aten.div.Tensor, source, divisor) if rounds else None
    if not _is_real(divisor):
        return None
    if divisor.op == "get_attr":
        return step(node, aten.div.Tensor, source, divisor) if rounds else None
    inverse = step(node, aten.reciprocal.default, divisor)
    return step(node, aten.mul.Tensor, inverse, source)


def _remainder(node: Node) -> Node | None:
    args = arguments(node)
    source, divisor = args["self"], args["other"]
    ratio = _quotient(node, source, divisor, True)
    if ratio is None:
        return None
    whole = step(node, aten.floor.default, ratio)
    return step(node, aten.sub.Tensor, source, step(node, aten.mul.Tensor, whole, divisor))


def _is_real(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _clamped(node: Node) -> Node | None:
    args = arguments(node)
    made = args["self"]
    for operator, bound in (
        (aten.maximum.default, args["min"]),
        (aten.minimum.default, args["max"]),
    ):
        if bound is not None:
            made = step(node, operator, made, bound)
    return made if made is not args["self"] else None
