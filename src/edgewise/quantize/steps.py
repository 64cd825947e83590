"""Composite operators in steps, each of which can be quantized.

For quantizers' `transform_for_annotation`. Every function changes the module in place, leaves
alone what it does not know, and returns whether it modified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from edgewise.edge.additive_masks import without_dead_rows
from edgewise.edge.graph import arguments, inherit_meta, is_getitem, is_static
from edgewise.edge.spellings import with_twins

aten = torch.ops.aten


def split_attention(model: GraphModule, causal: bool = False, computed: bool = False) -> bool:
    """Products and a softmax instead of attention.

    Attention with dropout or shared heads stays whole. Instead of a constant mask of booleans,
    and, if `causal`, of a causal flag, a constant of zeros and minus infinities is added; instead
    of booleans that are computed, if `computed`, the logarithm of zeros and ones.
    """
    return replace_calls(
        model,
        aten.scaled_dot_product_attention.default,
        lambda node: _attention(model, node, causal, computed),
    )


def is_kept(node: Node) -> bool:
    """Whether the node is the rounding of zeros and ones that `split_attention` puts before the
    logarithm."""
    source = node.args[0] if node.target is aten.round.default else None
    if not isinstance(source, Node) or source.target is not aten.to.dtype:
        return False
    mask = source.args[0]
    return isinstance(mask, Node) and mask.meta["val"].dtype == torch.bool


def split_hardsigmoid(model: GraphModule) -> bool:
    """A product, a sum and a clamp instead of hardsigmoid."""
    changed = False
    for target in (aten.hardsigmoid.default, aten.hardsigmoid_.default):
        changed |= replace_calls(model, target, _hardsigmoid)
    return changed


def drop_unused_indices(model: GraphModule) -> bool:
    """Maximum pooling instead of the one that gives indices, where nobody reads them."""
    changed = False
    for node in [n for n in model.graph.nodes if n.target is _WITH_INDICES]:
        if any(item.users and not _is_first(item) for item in node.users):
            continue
        with model.graph.inserting_before(node):
            made = step(node, aten.max_pool2d.default, *node.args)
        for item in list(node.users):
            item.replace_all_uses_with(made)
            model.graph.erase_node(item)
        model.graph.erase_node(node)
        changed = True
    return _finished(model, changed)


def _is_first(item: Node) -> bool:
    return is_getitem(item) and bool(item.args[1] == 0)


_WITH_INDICES = aten.max_pool2d_with_indices.default


def batch_pools(model: GraphModule) -> bool:
    """Pooling of a batch of one image instead of an image without a batch."""
    changed = False
    for target in _POOLS:
        changed |= replace_calls(model, target, _batched)
    return changed


_POOLS = (
    aten.max_pool2d.default,
    aten.avg_pool2d.default,
    aten.adaptive_avg_pool2d.default,
)


def join_padding_of_max_pools(
    model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True
) -> bool:
    """A maximum pool's own padding instead of minus infinity around an image, of which integers
    have none: TensorFlow's "same" padding. Of pools that are `wanted`."""
    return replace_calls(
        model,
        aten.max_pool2d.default,
        lambda node: _pool_with_padding(node) if wanted(node) else None,
    )


def _pool_with_padding(node: Node) -> Node | None:
    """Windows start where they did; how many there are `ceil_mode` says."""
    args = arguments(node)
    around = args["self"]
    if around.target not in (aten.pad.default, aten.constant_pad_nd.default):
        return None
    padded = arguments(around)
    amounts, image = padded["pad"], padded["self"].meta["val"].shape[-2:]
    shape = node.meta["val"].shape[-2:]
    is_plain = not any(args["padding"]) and not args["ceil_mode"]
    is_constant = padded.get("mode", "constant") == "constant"
    is_known = all(isinstance(size, int) for size in (*image, *shape))
    if not (is_plain and is_constant and is_known and padded["value"] == -math.inf):
        return None
    if len(amounts) != 4 or min(amounts) < 0:
        return None
    before, rest = [amounts[2], amounts[0]], (args["kernel_size"], args["stride"])
    for ceil_mode in (False, True):
        options = (*rest, before, args["dilation"], ceil_mode)
        try:
            found = aten.max_pool2d.default(padded["self"].meta["val"], *options).shape
        except RuntimeError:  # more than half of a window
            return None
        if found[-2:] == shape:
            return step(node, aten.max_pool2d.default, padded["self"], *options)
    return None


def split_pieces(model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True) -> bool:
    """Slices instead of split and chunk, single elements instead of unbind; of nodes that
    are `wanted`."""
    changed = False
    for target in _SPLITS:
        changed |= _replace_pieces(model, target, _slice, wanted)
    for target in _UNBINDS:
        changed |= _replace_pieces(model, target, _select, wanted)
    return changed


_SPLITS = with_twins(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default)
_UNBINDS = with_twins(aten.unbind.int)


def multiply_by_reciprocals(model: GraphModule) -> bool:
    """A product instead of a division by a parameter without zeros."""
    changed = False
    for target in (aten.div.Tensor, aten.div_.Tensor):
        changed |= replace_calls(model, target, lambda node: _reciprocal(model, node))
    return changed


def numbers_as_constants(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """Constant tensors of no dimensions instead of numbers that are added, subtracted or
    multiplied, and of those that divide (their reciprocals); of nodes that are `wanted`."""
    changed = False
    for target in _WITH_NUMBERS:
        changed |= replace_calls(
            model, target, lambda node: _withconstant(model, node) if wanted(node) else None
        )
    return changed


_WITH_NUMBERS: dict[Any, Any] = {
    aten.add.Tensor: aten.add.Tensor,
    aten.add_.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub.Tensor,
    aten.sub_.Tensor: aten.sub_.Tensor,
    aten.rsub.Scalar: aten.sub.Tensor,
    aten.mul.Tensor: aten.mul.Tensor,
    aten.mul_.Tensor: aten.mul_.Tensor,
    aten.div.Tensor: aten.mul.Tensor,
    aten.div_.Tensor: aten.mul_.Tensor,
}
"""What a call with a number becomes with a constant."""

LARGEST = 2.0**50
"""Of numbers that are made constants: torchao's histograms hold none much larger."""


# --- one operator -------------------------------------------------------------------------


def _attention(model: GraphModule, node: Node, causal: bool, computed: bool) -> Node | None:
    args = arguments(node)
    if args["enable_gqa"] or args["dropout_p"]:
        return None
    found = _added_mask(model, node, causal, computed)
    if found is None:
        return None
    mask, rows = found
    scale = args["scale"]
    if scale is None:
        scale = 1 / math.sqrt(args["query"].meta["val"].shape[-1])
    turned = step(node, aten.transpose.int, args["key"], -2, -1)
    scores = step(node, aten.matmul.default, args["query"], turned)
    scores = step(node, aten.mul.Tensor, scores, scale)
    if mask is not None:
        scores = step(node, aten.add.Tensor, scores, mask)
    weights = step(node, aten.softmax.int, scores, -1)
    result = step(node, aten.matmul.default, weights, args["value"])
    return result if rows is None else step(node, aten.mul.Tensor, result, rows)


def _added_mask(
    model: GraphModule, node: Node, causal: bool, computed: bool
) -> tuple[Node | None, Node | None] | None:
    """What is added to an attention's scores, and by what its result is multiplied: zeros for rows
    of which a known mask leaves nothing, whose softmax would be NaN. None for what is not taken."""
    args = arguments(node)
    query, key, mask = args["query"].meta["val"], args["key"].meta["val"], args["attn_mask"]
    if args["is_causal"]:
        sizes = (query.shape[-2], key.shape[-2])
        if not causal or not all(isinstance(size, int) for size in sizes):
            return None
        mask = constant(model, node, torch.full(sizes, -math.inf).triu(1).to(query.dtype))
    if mask is None:
        return None, None
    is_boolean = mask.meta["val"].dtype == torch.bool
    if not is_boolean and not mask.meta["val"].is_floating_point():
        return None
    if mask.op != "get_attr":
        if not is_boolean:
            return mask, None
        if not computed:
            return None
        # Rounded, for what quantizes the zeros and ones to be a mask whatever it stores.
        kept = step(node, aten.round.default, step(node, aten.to.dtype, mask, query.dtype))
        return step(node, aten.log.default, kept), None
    added = attribute(model, str(mask.target))
    if is_boolean:
        added = torch.zeros(added.shape).masked_fill(~added, -math.inf)
    added, rows = without_dead_rows(added)
    if is_boolean or rows is not None:
        mask = constant(model, node, added.to(query.dtype))
    return mask, None if rows is None else constant(model, node, rows.to(query.dtype))


def _hardsigmoid(node: Node) -> Node:
    scaled = step(node, aten.mul.Tensor, node.args[0], 1 / 6)
    shifted = step(node, aten.add.Tensor, scaled, 0.5)
    return step(node, aten.clamp.default, shifted, 0.0, 1.0)


def _batched(node: Node) -> Node | None:
    source, *others = arguments(node).values()
    if source.meta["val"].dim() != 3:
        return None
    pooled = step(node, node.target, step(node, aten.unsqueeze.default, source, 0), *others)
    return step(node, aten.squeeze.dim, pooled, 0)


def _slice(node: Node, source: Node, dim: int, index: int) -> Node:
    sizes = [value.shape[dim] for value in node.meta["val"]]
    start = sum(sizes[:index])
    return step(node, aten.slice.Tensor, source, dim, start, start + sizes[index])


def _select(node: Node, source: Node, dim: int, index: int) -> Node:
    return step(node, aten.select.int, source, dim, index)


def _reciprocal(model: GraphModule, node: Node) -> Node | None:
    source, divisor = node.args[:2]
    if not isinstance(divisor, Node) or divisor.op != "get_attr":
        return None
    stored = attribute(model, str(divisor.target))
    if not stored.is_floating_point() or not bool((stored != 0).all()):
        return None
    name = f"{str(divisor.target).replace('.', '_')}_reciprocal"
    model.register_buffer(name, stored.detach().reciprocal())
    factor = node.graph.get_attr(name)
    factor.meta["val"] = divisor.meta["val"]
    return step(node, aten.mul.Tensor, source, factor)


def _withconstant(model: GraphModule, node: Node) -> Node | None:
    args = arguments(node)
    operand, given = args["self"], args["other"]
    if isinstance(given, Node) or not isinstance(given, (int, float)):
        return None
    if not isinstance(operand, Node) or not operand.meta["val"].is_floating_point():
        return None
    if node.target is aten.rsub.Scalar and args["alpha"] != 1:
        return None
    number = float(given) * float(args.get("alpha", 1))
    if node.target in (aten.div.Tensor, aten.div_.Tensor):
        if number == 0:
            return None
        number = 1 / number
    if not abs(number) < LARGEST:
        return None
    constant = _number(model, node, operand.meta["val"], number)
    operands = (constant, operand) if node.target is aten.rsub.Scalar else (operand, constant)
    return step(node, _WITH_NUMBERS[node.target], *operands)


def _number(model: GraphModule, node: Node, like: torch.Tensor, number: float) -> Node:
    """A constant of no dimensions, in the graph before the node."""
    made = constant(model, node, torch.tensor(number, dtype=like.dtype))
    made.meta["val"] = like.new_empty(())
    return made


def constant(model: GraphModule, node: Node, value: torch.Tensor) -> Node:
    """A constant in the graph at its insertion point, with the node's provenance: a buffer, or a
    parameter if the value is one."""
    index = 0
    while hasattr(model, f"_constant_{index}"):
        index += 1
    name = f"_constant_{index}"
    if isinstance(value, torch.nn.Parameter):
        model.register_parameter(name, value)
    else:
        model.register_buffer(name, value)
    made = node.graph.get_attr(name)
    inherit_meta(made, node)
    like = node.meta["val"]
    like = like[0] if isinstance(like, (tuple, list)) else like
    made.meta["val"] = like.new_empty(value.shape, dtype=value.dtype)
    return made


# --- the graph ----------------------------------------------------------------------------


def replace_calls(model: GraphModule, target: Any, make: Callable[[Node], Node | None]) -> bool:
    """Each call of the operator by what `make` puts before it; None leaves it alone."""
    found = [n for n in model.graph.nodes if n.target is target]
    changed = False
    for node in found:
        with model.graph.inserting_before(node):
            made = make(node)
        if made is not None:
            node.replace_all_uses_with(made)
            model.graph.erase_node(node)
            changed = True
    return _finished(model, changed)


def _replace_pieces(
    model: GraphModule,
    target: Any,
    make: Callable[[Node, Node, int, int], Node],
    wanted: Callable[[Node], bool],
) -> bool:
    """make: of a call, its operand, the dimension and a piece's index."""
    changed = False
    for node in [n for n in model.graph.nodes if n.target is target and wanted(n)]:
        args = arguments(node)
        source, dim = args["self"], int(args["dim"])
        shape = source.meta["val"].shape
        # Sizes that data decide have no node here that computes them.
        pieces = [one.shape[dim] for one in node.meta["val"] if one.dim() == len(shape)]
        if not is_static([shape[dim], *pieces]) or not all(map(is_getitem, node.users)):
            continue
        for item in list(node.users):
            with model.graph.inserting_before(item):
                made = make(node, source, dim % len(shape), int(item.args[1]))
            item.replace_all_uses_with(made)
            model.graph.erase_node(item)
        model.graph.erase_node(node)
        changed = True
    return _finished(model, changed)


def _finished(model: GraphModule, changed: bool) -> bool:
    if changed:
        model.recompile()
    return changed


def step(like: Node, target: Any, *operands: Any) -> Node:
    """A call at the graph's insertion point, with the provenance of the node that it replaces."""
    made = like.graph.call_function(target, operands)
    inherit_meta(made, like)
    made.meta["val"] = target(*map_arg(made.args, lambda n: n.meta["val"]))
    return made


def attribute(model: GraphModule, name: str) -> torch.Tensor:
    """The parameter or buffer of a `get_attr` node, by its dotted name."""
    value = attrgetter(name)(model)
    assert isinstance(value, torch.Tensor)
    return value


__all__ = [
    "attribute",
    "constant",
    "is_kept",
    "multiply_by_reciprocals",
    "replace_calls",
    "split_attention",
    "split_pieces",
    "step",
]
