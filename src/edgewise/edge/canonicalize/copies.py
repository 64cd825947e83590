"""Copies and conversions, which are often nothing at all."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.registry import (
    call,
    expansion_as_arguments,
    first_operand,
    rule,
)
from edgewise.edge.graph import arguments, fake, same_shape
from edgewise.edge.layout import CHANNELS_LAST, dim_order, is_laid_out
from edgewise.edge.spellings import CONVERSIONS

aten = torch.ops.aten


@rule(
    aten.detach.default,
    aten.detach_.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    aten.positive.default,
)
def _identity(graph: Graph, node: Node) -> Node | None:
    return first_operand(node)


@rule(aten._neg_view.default)
def _negative(graph: Graph, node: Node) -> Node | None:
    """Of the imaginary part of a conjugate, with torch 2.12."""
    source = first_operand(node)
    return call(graph, aten.neg.default, (source,), node, fake(source).neg())


@rule(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def _dropout(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    return None if named["train"] and named["p"] > 0 else first_operand(node)


@rule(aten.contiguous.default, aten.clone.default)
def _clone(graph: Graph, node: Node) -> Node | None:
    """A copy without side effects is its input, unless it changes the memory format."""
    source = first_operand(node)
    order = _wanted_order(node, source)
    if order == dim_order(fake(source)):
        return source
    if node.target is aten.clone.default:
        return None
    return call(
        graph,
        aten.clone.default,
        (source,),
        node,
        fake(node),
        memory_format=arguments(node)["memory_format"],
    )


@rule(aten.copy.default)
def _copy(graph: Graph, node: Node) -> Node | None:
    """Of the tensor that is written nothing is left: what comes is the source alone."""
    source, result = arguments(node)["src"], fake(node)
    sizes = expansion_as_arguments(fake(source).shape, result.shape)
    if sizes is None or dim_order(result) != tuple(range(result.dim())):
        return None
    if fake(source).dtype != result.dtype:
        value = fake(source).to(result.dtype)
        source = call(graph, aten._to_copy.default, (source,), node, value, dtype=result.dtype)
    if not same_shape(fake(source).shape, result.shape):
        return call(graph, aten.expand_copy.default, (source, sizes), node, result)
    return source if dim_order(fake(source)) == dim_order(result) else None


@rule(*CONVERSIONS)
def _to(graph: Graph, node: Node) -> Node | None:
    source = first_operand(node)
    before, after = fake(source), fake(node)
    order = _wanted_order(node, source)
    if before.dtype == after.dtype and order == dim_order(before):
        return source
    moved = _moved_as_it_is(graph, node)
    if moved is not None or node.target is aten._to_copy.default:
        return moved
    options: dict[str, Any] = {}
    if before.dtype != after.dtype:
        options["dtype"] = after.dtype
    if order != dim_order(before):
        options["memory_format"] = arguments(node)["memory_format"]
    return call(graph, aten._to_copy.default, (source,), node, after, **options)


def _moved_as_it_is(graph: Graph, node: Node) -> Node | None:
    """Elements that are only gathered in a wider floating type are gathered in their own.

    PyTorch's decompositions of paddings compute float16 and bfloat16 in float32.
    """
    gathers: list[Node] = []
    source = first_operand(node)
    while source.target is aten.index.Tensor and len(source.users) == 1:
        gathers.append(source)
        source = first_operand(source)
    if not gathers or source.target is not aten._to_copy.default:
        return None
    narrow = first_operand(source)
    before, wide, after = fake(narrow), fake(source), fake(node)
    if (
        before.dtype != after.dtype
        or not (before.is_floating_point() and wide.is_floating_point())
        or torch.promote_types(before.dtype, wide.dtype) != wide.dtype
        or dim_order(before) != dim_order(wide)
        or dim_order(fake(gathers[0])) != dim_order(after)
    ):
        return None
    for gather in reversed(gathers):
        value = fake(gather).to(after.dtype)
        narrow = call(graph, gather.target, (narrow, *gather.args[1:]), gather, value)
    return narrow


def _wanted_order(node: Node, source: Node) -> tuple[int, ...]:
    """What `memory_format` asks for; a preserved format is the source's."""
    before = fake(source)
    memory_format = arguments(node).get("memory_format")
    if memory_format is torch.channels_last and before.dim() == 4:
        fits = is_laid_out(before, torch.channels_last)
        return dim_order(before) if fits else CHANNELS_LAST
    if memory_format is torch.contiguous_format:
        return tuple(range(before.dim()))
    return dim_order(before)


_TOTALS = {
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.nansum.default,
    aten.prod.default,
    aten.prod.dim_int,
    aten.cumsum.default,
    aten.cumprod.default,
}


def integers_of_totals(node: Node) -> bool:
    """A sum or product of floating-point numbers that is asked for as integers is one of integers:
    each is converted first. Returns whether it modified."""
    if node.target not in _TOTALS:
        return False
    dtype = arguments(node)["dtype"]
    source = first_operand(node)
    if dtype is None or dtype.is_floating_point or not fake(source).is_floating_point():
        return False
    with node.graph.inserting_before(node):
        value = fake(source).to(dtype)
        whole = call(node.graph, aten._to_copy.default, (source,), node, value, dtype=dtype)
    node.replace_input_with(source, whole)
    return True
