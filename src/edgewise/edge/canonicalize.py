"""One spelling for each thing: rewrites by rule, without tracing.

ATen has many names for one computation (`flatten`, `reshape`, `unflatten` are views;
`conv2d`, `conv1d` are `convolution`; `dropout` is nothing once training is over).
`RULES` maps each such operator to a function that puts the edge dialect's spelling
before the node and returns it, or returns None where the rule does not apply (the node
then goes to `edge.decompose`). Shapes come from the node's own value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.graph import arguments, fake, is_static, replace
from edgewise.edge.graph import call as add_call
from edgewise.edge.layout import CHANNELS_LAST, dim_order, settle

aten = torch.ops.aten
Rule = Callable[[Graph, Node], "Node | None"]
RULES: dict[Any, Rule] = {}

_NOTHING = (
    aten._assert_tensor_metadata.default,
    aten._assert_scalar.default,
    aten._assert_async.msg,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)


def call(graph: Graph, op: Any, args: Sequence[Any], like: Node, val: Any, **kwargs: Any) -> Node:
    node = add_call(graph, op, args, like, val, **kwargs)
    settle(node)
    return node


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for op in ops:
            RULES[op] = function
        return function

    return register


def apply_rule(graph: Graph, node: Node) -> bool:
    """Puts the rule's result in the node's place; False if the rule does not apply."""
    with graph.inserting_before(node):
        new = RULES[node.target](graph, node)
    if new is None:
        return False
    replace(node, new)
    return True


def is_nothing(node: Node) -> bool:
    """Whether the node only asserts something that export has settled."""
    return node.target in _NOTHING and not node.users


# --- nothing at all -----------------------------------------------------------------


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
    return _first(node)


@rule(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def _dropout(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    return None if named["train"] and named["p"] > 0 else _first(node)


@rule(aten.contiguous.default, aten.clone.default)
def _clone(graph: Graph, node: Node) -> Node | None:
    """A copy without side effects is its input, unless it changes the memory format."""
    source = _first(node)
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


@rule(
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
    aten.type_as.default,
    aten._to_copy.default,
)
def _to(graph: Graph, node: Node) -> Node | None:
    source = _first(node)
    before, after = fake(source), fake(node)
    order = _wanted_order(node, source)
    if before.dtype == after.dtype and order == dim_order(before):
        return source
    if node.target is aten._to_copy.default:
        return None
    options: dict[str, Any] = {}
    if before.dtype != after.dtype:
        options["dtype"] = after.dtype
    if order != dim_order(before):
        options["memory_format"] = arguments(node)["memory_format"]
    return call(graph, aten._to_copy.default, (source,), node, after, **options)


def _wanted_order(node: Node, source: Node) -> tuple[int, ...]:
    """What `memory_format` asks for; a preserved format is the source's."""
    before = fake(source)
    memory_format = arguments(node).get("memory_format")
    if memory_format is torch.channels_last and before.dim() == 4:
        fits = before.is_contiguous(memory_format=torch.channels_last)
        return dim_order(before) if fits else CHANNELS_LAST
    if memory_format is torch.contiguous_format:
        return tuple(range(before.dim()))
    return dim_order(before)


# --- views --------------------------------------------------------------------------


@rule(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.view_as.default,
    aten.reshape_as.default,
)
def _view(graph: Graph, node: Node) -> Node | None:
    source, after = _first(node), fake(node)
    if tuple(fake(source).shape) == tuple(after.shape):
        return source
    if is_static(after.shape):
        shape: Any = list(after.shape)
    elif node.target in (aten.view.default, aten.reshape.default, aten._unsafe_view.default):
        shape = node.args[1]
    else:
        return None
    return call(graph, aten.view_copy.default, (source, shape), node, after)


@rule(aten.permute.default)
def _permute(graph: Graph, node: Node) -> Node | None:
    dims = [d % fake(node).dim() for d in arguments(node)["dims"]]
    if dims == sorted(dims):
        return _first(node)
    return call(graph, aten.permute_copy.default, (_first(node), dims), node, fake(node))


@rule(aten.transpose.int, aten.t.default, aten.numpy_T.default, aten.mT.default)
def _transpose(graph: Graph, node: Node) -> Node | None:
    rank = fake(node).dim()
    if rank < 2:
        return _first(node)
    a, b = (node.args[1], node.args[2]) if node.target is aten.transpose.int else (-2, -1)
    assert isinstance(a, int) and isinstance(b, int)
    dims = list(range(rank))
    if node.target is aten.numpy_T.default:
        dims.reverse()
    else:
        dims[a], dims[b] = dims[b], dims[a]
    if dims == sorted(dims):
        return _first(node)
    return call(graph, aten.permute_copy.default, (_first(node), dims), node, fake(node))


@rule(aten.expand.default, aten.expand_as.default)
def _expand(graph: Graph, node: Node) -> Node | None:
    before, after = fake(_first(node)), fake(node)
    if tuple(before.shape) == tuple(after.shape):
        return _first(node)
    if not is_static(after.shape):
        if node.target is not aten.expand.default:
            return None
        size = node.args[1]
    else:
        size = list(after.shape)
    return call(graph, aten.expand_copy.default, (_first(node), size), node, after)


@rule(aten.unsqueeze.default)
def _unsqueeze(graph: Graph, node: Node) -> Node | None:
    dim = node.args[1]
    assert isinstance(dim, int)
    dim %= fake(node).dim()
    return call(graph, aten.unsqueeze_copy.default, (_first(node), dim), node, fake(node))


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(graph: Graph, node: Node) -> Node | None:
    before = fake(_first(node))
    if not is_static(before.shape):
        return None
    wanted: Any = node.args[1] if len(node.args) > 1 else range(before.dim())
    wanted = [wanted] if isinstance(wanted, int) else wanted
    rank = max(before.dim(), 1)
    dims = sorted({d % rank for d in wanted if before.dim() and before.shape[d % rank] == 1})
    if not dims:
        return _first(node)
    return call(graph, aten.squeeze_copy.dims, (_first(node), dims), node, fake(node))


@rule(aten.slice.Tensor)
def _slice(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    before, after = fake(_first(node)), fake(node)
    if tuple(before.shape) == tuple(after.shape) and named["step"] == 1:
        return _first(node)
    args = [_first(node), named["dim"], named["start"], named["end"], named["step"]]
    return call(graph, aten.slice_copy.Tensor, args, node, after)


@rule(aten.narrow.default)
def _narrow(graph: Graph, node: Node) -> Node | None:
    source, dim, start, length = node.args
    if not isinstance(start, int) or not isinstance(length, int) or not isinstance(dim, int):
        return None
    shape = fake(_first(node)).shape
    if not is_static(shape):
        return None
    start %= max(shape[dim], 1)
    args = (source, dim, start, start + length)
    return call(graph, aten.slice_copy.Tensor, args, node, fake(node))


@rule(aten.select.int)
def _select(graph: Graph, node: Node) -> Node | None:
    return call(graph, aten.select_copy.int, node.args, node, fake(node))


@rule(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.split.sizes,
    aten.chunk.default,
    aten.tensor_split.sections,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default,
)
def _split(graph: Graph, node: Node) -> Node | None:
    """Each part becomes a slice of its own: no list of tensors is left."""
    dim = arguments(node)["dim"]
    parts = node.meta["val"]
    sizes = [part.shape[dim] for part in parts]
    if not is_static(sizes):
        return None
    dim %= parts[0].dim()
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return _replace_items(
        graph,
        node,
        lambda i: call(
            graph,
            aten.slice_copy.Tensor,
            (_first(node), dim, starts[i], starts[i] + sizes[i]),
            node,
            parts[i],
        ),
    )


@rule(aten.unbind.int, aten.unbind_copy.int)
def _unbind(graph: Graph, node: Node) -> Node | None:
    dim, parts = arguments(node)["dim"], node.meta["val"]
    return _replace_items(
        graph,
        node,
        lambda i: call(graph, aten.select_copy.int, (_first(node), dim, i), node, parts[i]),
    )


def _replace_items(graph: Graph, node: Node, make: Callable[[int], Node]) -> Node | None:
    """Replaces the getitem users of a node that computes a list; the node itself dies."""
    items = list(node.users)
    if any(item.target is not operator.getitem for item in items):
        return None
    made: dict[int, Node] = {}
    for item in items:
        index = item.args[1]
        assert isinstance(index, int)
        if index not in made:
            made[index] = make(index)
        replace(item, made[index])
    return _first(node)  # has no users left that could see it


# --- one name per computation --------------------------------------------------------


@rule(
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
)
def _conv(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    rank = fake(node).dim() - 2
    if fake(_first(node)).dim() != fake(named["weight"]).dim():
        return None  # without batch dimension
    stride, dilation = _spread(named["stride"], rank), _spread(named["dilation"], rank)
    padding = named["padding"]
    if isinstance(padding, str):
        kernel = [int(k) for k in fake(named["weight"]).shape[2:]]
        total = [
            d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)
        ]
        if any(t % 2 for t in total):
            return None  # asymmetric: torch pads first
        padding = [t // 2 for t in total]
    args = (
        named["input"],
        named["weight"],
        named["bias"],
        stride,
        _spread(padding, rank),
        dilation,
        False,
        [0] * rank,
        named["groups"],
    )
    return call(graph, aten.convolution.default, args, node, fake(node))


@rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _conv_transpose(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    rank = fake(node).dim() - 2
    if fake(_first(node)).dim() != fake(named["weight"]).dim():
        return None
    args = (
        named["input"],
        named["weight"],
        named["bias"],
        _spread(named["stride"], rank),
        _spread(named["padding"], rank),
        _spread(named["dilation"], rank),
        True,
        _spread(named["output_padding"], rank),
        named["groups"],
    )
    return call(graph, aten.convolution.default, args, node, fake(node))


def _spread(value: Any, rank: int) -> list[int]:
    items = [value] if isinstance(value, int) else list(value)
    return items * rank if len(items) == 1 else items


@rule(aten.constant_pad_nd.default)
def _constant_pad(graph: Graph, node: Node) -> Node | None:
    """Negative padding is a slice: only that runs everywhere."""
    named = arguments(node)
    pad, part = list(named["pad"]), _first(node)
    if all(p >= 0 for p in pad) or not is_static(fake(node).shape):
        return None
    rank = fake(node).dim()
    for i in range(len(pad) // 2):
        dim, (before, after) = rank - 1 - i, pad[2 * i : 2 * i + 2]
        size = fake(part).shape[dim]
        start, end = max(-before, 0), size + min(after, 0)
        if (start, end) != (0, size):
            shape = [*fake(part).shape[:dim], end - start, *fake(part).shape[dim + 1 :]]
            value = fake(part).new_empty(shape)
            part = call(graph, aten.slice_copy.Tensor, (part, dim, start, end), node, value)
    pad = [max(p, 0) for p in pad]
    if not any(pad):
        return part
    args = (part, pad, named["value"])
    return call(graph, aten.constant_pad_nd.default, args, node, fake(node))


@rule(aten.batch_norm.default)
def _batch_norm(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    if named["training"] or named["running_mean"] is None:
        return None
    keys = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
    empty = fake(node).new_empty([0])
    value = (fake(node), empty, empty)
    args = [named[key] for key in keys]
    norm = call(graph, aten._native_batch_norm_legit_no_training.default, args, node, value)
    return call(graph, operator.getitem, (norm, 0), node, fake(node))


@rule(aten.softmax.int, aten.log_softmax.int)
def _softmax(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    if named["dtype"] is not None and named["dtype"] != fake(_first(node)).dtype:
        return None
    core = aten._softmax if node.target is aten.softmax.int else aten._log_softmax
    return call(graph, core.default, (_first(node), named["dim"], False), node, fake(node))


@rule(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default)
def _full_like(graph: Graph, node: Node) -> Node | None:
    """Of the operand only the shape is needed: it is known, and the result a constant."""
    value = fake(node)
    if not is_static(value.shape):
        return None
    fills = {aten.zeros_like.default: 0, aten.ones_like.default: 1}
    fill = fills.get(node.target, arguments(node).get("fill_value"))
    shape = list(value.shape)
    return call(graph, aten.full.default, (shape, fill), node, value, dtype=value.dtype)


@rule(aten.relu6.default)
def _relu6(graph: Graph, node: Node) -> Node | None:
    return call(graph, aten.hardtanh.default, (_first(node), 0.0, 6.0), node, fake(node))


@rule(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool2d(graph: Graph, node: Node) -> Node | None:
    if list(fake(node).shape[-2:]) == [1, 1]:
        return call(graph, aten.mean.dim, (_first(node), [-1, -2], True), node, fake(node))
    if node.target is aten._adaptive_avg_pool2d.default:
        return None
    return call(graph, aten._adaptive_avg_pool2d.default, node.args, node, fake(node))


@rule(aten.matmul.default)
def _matmul(graph: Graph, node: Node) -> Node | None:
    """Without the expands that a general decomposition puts around a batched product."""
    a, b = node.args
    assert isinstance(a, Node) and isinstance(b, Node)
    left, right = fake(a), fake(b)
    if left.dim() == 2 and right.dim() == 2:
        return call(graph, aten.mm.default, (a, b), node, fake(node))
    if left.dim() == 3 and right.dim() == 3 and left.shape[0] == right.shape[0]:
        return call(graph, aten.bmm.default, (a, b), node, fake(node))
    if not (is_static(left.shape) and is_static(right.shape)):
        return None
    if left.dim() > 2 and right.dim() == 2:
        flat = [int(left.shape[:-1].numel()), left.shape[-1]]
        a2 = call(graph, aten.view_copy.default, (a, flat), node, left.new_empty(flat))
        product = call(
            graph, aten.mm.default, (a2, b), node, left.new_empty([flat[0], right.shape[-1]])
        )
        return call(
            graph, aten.view_copy.default, (product, list(fake(node).shape)), node, fake(node)
        )
    if left.dim() == right.dim() and left.dim() > 3 and left.shape[:-2] == right.shape[:-2]:
        batch = int(left.shape[:-2].numel())
        a3 = _flatten_batch(graph, node, a, batch)
        b3 = _flatten_batch(graph, node, b, batch)
        flat = [batch, left.shape[-2], right.shape[-1]]
        product = call(graph, aten.bmm.default, (a3, b3), node, left.new_empty(flat))
        return call(
            graph, aten.view_copy.default, (product, list(fake(node).shape)), node, fake(node)
        )
    return None


def _flatten_batch(graph: Graph, like: Node, node: Node, batch: int) -> Node:
    shape = [batch, *fake(node).shape[-2:]]
    return call(graph, aten.view_copy.default, (node, shape), like, fake(node).new_empty(shape))


def _scalar_twin(op: Any) -> Rule:
    def rewrite(graph: Graph, node: Node) -> Node | None:
        """`add.Tensor(x, 2)` is `add.Scalar(x, 2)`: the second operand is no tensor."""
        a, b = node.args[0], node.args[1]
        if isinstance(b, Node) and isinstance(b.meta.get("val"), torch.Tensor):
            return None
        if not isinstance(a, Node) or not isinstance(a.meta.get("val"), torch.Tensor):
            return None
        named = arguments(node)
        rest = [named["alpha"]] if named.get("alpha", 1) != 1 else []
        return call(graph, op, (a, b, *rest), node, fake(node))

    return rewrite


RULES[aten.add.Tensor] = _scalar_twin(aten.add.Scalar)
RULES[aten.sub.Tensor] = _scalar_twin(aten.sub.Scalar)
RULES[aten.mul.Tensor] = _scalar_twin(aten.mul.Scalar)
RULES[aten.div.Tensor] = _scalar_twin(aten.div.Scalar)


def _first(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source
