"""Masks of attention, as 8-bit integers can add them.

Models leave scores out of a softmax by adding or filling in minus infinity, the type's smallest
number, or one like -1e4 or -1e9. A scale that stands for such a number leaves nothing of the
scores. `-LEFT_OUT` does the same with a scale of its own, and the sum's range is that of what is
kept and a little more, for what lies below saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import with_twins
from edgewise.quantize._torchao import (
    FakeQuantize,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)
from edgewise.quantize.observers import MinMaxObserver
from edgewise.quantize.patterns import Elementwise, Pattern, SameScale, Weighted, is_float
from edgewise.quantize.steps import attribute, constant, is_kept, replace_calls, step

aten = torch.ops.aten
Wanted = Callable[[Node], bool]

LEFT_OUT = 1000.0
"""What is subtracted from a score that is left out; of larger numbers a mask is made."""

MASK_SPEC = FixedQParamsQuantizationSpec(
    dtype=torch.int8,
    scale=LEFT_OUT / 255,
    zero_point=127,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
)
"""Of a mask: 0 and -LEFT_OUT are its ends."""

_SOFTMAX = frozenset({aten.softmax.int, aten._softmax.default})
_ADD = frozenset(with_twins(aten.add.Tensor))
_FILL = frozenset(with_twins(aten.masked_fill.Scalar, aten.masked_fill.Tensor))
_WHERE = frozenset(
    {aten.where.Scalar, aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf}
)
_MOVES = frozenset(
    with_twins(
        aten.alias.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.detach_.default,
        aten.dropout.default,
        aten.expand.default,
        aten.flatten.using_ints,
        aten.lift_fresh.default,
        aten.lift_fresh_copy.default,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.to.dtype,
        aten.to.dtype_layout,
        aten.transpose.int,
        aten.tril.default,
        aten.triu.default,
        aten.unsqueeze.default,
        aten.view.default,
    )
)
"""Elements that are moved, or zeros that are put in."""


def add_finite_masks(model: GraphModule) -> bool:
    """A sum with a mask of 0 and -LEFT_OUT wherever scores are left out of a softmax: by a sum
    with a mask of larger numbers, or by filling one in."""
    masks = _Masks(model)
    changed = False
    for target in (*_FILL, *_WHERE):
        changed |= replace_calls(model, target, masks.of_filled)
    for target in _ADD:
        changed |= replace_calls(model, target, masks.of_sum)
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


def mask_of(node: Node) -> Node | None:
    """The mask, of 0 and -LEFT_OUT, that a sum adds to its first operand."""
    mask = node.args[1] if node.target in _ADD and len(node.args) > 1 else None
    return mask if isinstance(mask, Node) and mask.meta.get(_MARK) else None


def prepares_masks(model: GraphModule) -> frozenset[Node]:
    """Masks, and what is computed for these alone: it stays as it is."""
    found: set[Node] = set()
    for node in reversed(model.graph.nodes):
        if node.op == "call_function" and (
            node.meta.get(_MARK) or (node.users and found.issuperset(node.users))
        ):
            found.add(node)
    return frozenset(found)


def pad_rows(
    model: GraphModule, multiple: int, patterns: Mapping[Any, Pattern], wanted: Wanted
) -> bool:
    """Softmaxes over a multiple of so many numbers, the last of them left out, and a slice of the
    result in the place of others: over the last dimension, or the channels of an image. Where
    scores are `wanted` and nobody else reads them."""
    changed = False
    for target in _SOFTMAX:
        changed |= replace_calls(
            model, target, lambda node: _padded(node, multiple, patterns, wanted)
        )
    return changed


def _padded(
    node: Node, multiple: int, patterns: Mapping[Any, Pattern], wanted: Wanted
) -> Node | None:
    scores = node.args[0]
    shape = _shape(scores)
    if not shape or not is_float(node):
        return None
    dim = arguments(node)["dim"] % len(shape) - len(shape)
    if dim != -1 and (len(shape), dim) != (4, -3):
        return None
    size = shape[dim]
    if not all(isinstance(n, int) for n in shape) or size % multiple == 0:
        return None
    source: Any = scores
    while isinstance(source, Node) and isinstance(patterns.get(source.target), SameScale):
        if _is_shared(source) or dim != -1:
            return None
        source = source.args[0]
    if not isinstance(source, Node) or _is_shared(source):
        return None
    free = isinstance(patterns.get(source.target), (Elementwise, Weighted)) and wanted(source)
    if not wanted(node) or not (free or source.op == "placeholder"):
        return None  # its range is not to be chosen
    edges = [*[0, 0] * (-1 - dim), 0, -size % multiple]
    padded = step(node, aten.constant_pad_nd.default, scores, edges, -LEFT_OUT)
    padded.meta[_PADS] = dim
    weights = step(node, node.target, padded, dim, *node.args[2:])
    return step(node, aten.slice.Tensor, weights, dim, 0, size)


def _is_shared(node: Node) -> bool:
    """Whether several calls read the node; what checks the model's inputs is none."""
    return sum(user.op != "call_module" for user in node.users) > 1


def padded_rows(model: GraphModule) -> dict[Node, int]:
    """Scores with numbers behind them that are left out, and along which dimension."""
    return {node: node.meta[_PADS] for node in model.graph.nodes if _PADS in node.meta}


class ScoresObserver(MinMaxObserver):
    """The range of masked scores that a softmax over a dimension can tell apart.

    It ends where a whole row of scores adds less than half a step of the result: below the
    smallest of the rows' largest numbers. What is left out saturates there.
    """

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes the range of `x`, which it returns as it is."""
        largest = x.detach().amax(self.dim)
        kept = largest[largest > -LEFT_OUT / 2]
        if kept.numel():
            room = math.log(_STEPS * x.shape[self.dim])
            seen = torch.stack([kept.min() - room, kept.max()])
            super().forward(seen.to(self.min_val.dtype))
        return x


_STEPS = 512
_MARK = "adds_a_mask"
_PADS = "pads_scores"


def scores_spec(spec: QuantizationSpec, is_qat: bool, dim: int = -1) -> QuantizationSpec:
    """How masked scores are quantized where others are by `spec`; dim: the softmax's."""
    observer: Any = ScoresObserver.with_args(dim=dim)
    if is_qat:
        observer = FakeQuantize.with_args(observer=ScoresObserver, dim=dim)
    return QuantizationSpec(
        dtype=spec.dtype,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=torch.per_tensor_affine,
        is_dynamic=False,
        observer_or_fake_quant_ctr=observer,
    )


class _Masks:
    """Each mask is made once, for all that read it."""

    def __init__(self, model: GraphModule) -> None:
        self.model = model
        self._made: dict[tuple[Node, bool, torch.dtype], Node] = {}

    def of_filled(self, node: Node) -> Node | None:
        """A sum in the place of scores that a number is filled into."""
        given = _filled(node, self.model)
        if given is None or not _feeds_softmax(node):
            return None
        scores, where, left_out = given
        if _shape(scores) != _shape(node) or _is_read_later(node, scores):
            return None
        return step(node, aten.add.Tensor, scores, self._chosen(node, where, left_out))

    def of_sum(self, node: Node) -> Node | None:
        """A sum with a finite mask in the place of one with a larger."""
        args = arguments(node)
        if mask_of(node) is not None or args["alpha"] != 1 or not _feeds_softmax(node):
            return None
        for scores, mask in ((args["self"], args["other"]), (args["other"], args["self"])):
            if not isinstance(scores, Node) or not isinstance(mask, Node):
                return None
            parts = _parts(mask, self.model)
            if parts is None or _shape(scores) != _shape(node) or _is_read_later(node, scores):
                continue
            pure, rest = parts
            for one in rest:
                scores = step(node, aten.add.Tensor, scores, one)
            for one in pure:
                scores = step(node, aten.add.Tensor, scores, self._clamped(node, one))
            return scores
        return None

    def _chosen(self, node: Node, where: Node, left_out: bool) -> Node:
        """Of booleans. left_out: whether true stands for what is left out."""
        key = (where, left_out, node.meta["val"].dtype)
        if key not in self._made:
            with _behind(where, node):
                known = attribute(self.model, str(where.target)) if where.op == "get_attr" else None
                if known is not None:
                    out = known if left_out else ~known
                    value = torch.zeros(out.shape).masked_fill(out, -LEFT_OUT)
                    made = constant(self.model, node, value.to(key[2]))
                else:
                    kept = where if not left_out else step(node, aten.logical_not.default, where)
                    made = step(node, aten.to.dtype, kept, key[2])
                    made = step(node, aten.sub.Tensor, made, 1.0)
                    made = step(node, aten.mul.Tensor, made, LEFT_OUT)
            made.meta[_MARK] = True
            self._made[key] = made
        return self._made[key]

    def _clamped(self, node: Node, mask: Node) -> Node:
        key = (mask, True, mask.meta["val"].dtype)
        if key not in self._made:
            with _behind(mask, node):
                if mask.op == "get_attr":
                    value = attribute(self.model, str(mask.target)).clamp(min=-LEFT_OUT)
                    made = constant(self.model, node, value)
                else:
                    made = step(node, aten.clamp.default, mask, -LEFT_OUT)
            made.meta[_MARK] = True
            self._made[key] = made
        return self._made[key]


def _behind(source: Node, node: Node) -> Any:
    """Where what is made of the source can be read by all that read the source."""
    return node.graph.inserting_before(_last_of_its_kind(source).next)


def _last_of_its_kind(source: Node) -> Node:
    """Placeholders and constants stay together at the beginning."""
    while source.op == "placeholder" and source.next.op == "placeholder":
        source = source.next
    return source


def _shape(node: Any) -> tuple[Any, ...] | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _is_read_later(node: Node, scores: Node) -> bool:
    """Whether somebody else reads what the node writes in place."""
    target = node.target
    writes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    return writes and len(scores.users) > 1


def _feeds_softmax(node: Node) -> bool:
    """Whether a softmax over the last dimension alone reads the result, moved perhaps, or more
    sums do that feed one."""
    if not is_float(node):
        return False
    size = node.meta["val"].shape[-1] if node.meta["val"].dim() else None
    while len(node.users) == 1:
        (user,) = node.users
        value = user.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[-1] != size:
            return False
        if user.target in _SOFTMAX:
            return user.args[1] in (-1, value.dim() - 1)
        adds = user.target in _ADD or user.target in _FILL or user.target in _WHERE
        if user.target not in _MOVES and not adds:
            return False
        node = user
    return False


def _number(value: Any, model: GraphModule) -> float | None:
    """Of a number, or a constant tensor of one element."""
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, Node):
        return None
    while value.target in _MOVES and value.all_input_nodes:
        value = value.all_input_nodes[0]
    if value.op == "get_attr":
        known = attribute(model, str(value.target))
        return float(known) if known.numel() == 1 else None
    if value.target in (aten.full.default, aten.scalar_tensor.default):
        given = value.args[-1]
        return float(given) if isinstance(given, (int, float)) else None
    return None


def _is_left_out(value: Any, model: GraphModule) -> bool:
    number = _number(value, model)
    return number is not None and number <= -LEFT_OUT


def _filled(node: Node, model: GraphModule) -> tuple[Node, Node, bool] | None:
    """Scores, booleans, and whether true stands for the number that leaves out."""
    args = arguments(node)
    if node.target in _FILL:
        given = (args["self"], args["mask"], True, args["value"])
    elif _is_left_out(args["self"], model):
        given = (args["other"], args["condition"], True, args["self"])
    else:
        given = (args["self"], args["condition"], False, args["other"])
    scores, where, left_out, number = given
    if not isinstance(scores, Node) or not isinstance(where, Node):
        return None
    if not is_float(scores) or where.meta["val"].dtype != torch.bool:
        return None
    return (scores, where, left_out) if _is_left_out(number, model) else None


def _parts(node: Node, model: GraphModule) -> tuple[list[Node], list[Node]] | None:
    """Masks and other terms of a sum; None if none of the former is in it."""
    if _is_mask(node, model):
        return [node], []
    if node.target not in _ADD or arguments(node)["alpha"] != 1:
        return None
    pure: list[Node] = []
    rest: list[Node] = []
    for operand in node.args[:2]:
        if not isinstance(operand, Node) or not is_float(operand):
            return None
        found = _parts(operand, model)
        if found is None:
            rest.append(operand)
        else:
            pure += found[0]
            rest += found[1]
    return (pure, rest) if pure else None


def _is_mask(node: Any, model: GraphModule) -> bool:
    """Whether the elements are zeros and numbers that leave out."""
    return _kind(node, model, {}) == "mask"


def _kind(node: Any, model: GraphModule, known: dict[Node, str]) -> str:
    """`mask`, `zeros`, or nothing that is known."""
    number = _number(node, model)
    if number is not None:
        return "zeros" if number == 0 else "mask" if number <= -LEFT_OUT else ""
    if not isinstance(node, Node) or not is_float(node):
        return ""
    if node not in known:
        known[node] = ""  # of a circle, which there is not
        known[node] = _kind_of_call(node, model, known)
    return known[node]


def _kind_of_call(node: Node, model: GraphModule, known: dict[Node, str]) -> str:
    if node.op == "get_attr":
        value = attribute(model, str(node.target))
        if isinstance(value, torch.nn.Parameter):
            return ""
        left_out = value <= -LEFT_OUT
        if not bool(((value == 0) | left_out).all()):
            return ""
        return "mask" if bool(left_out.any()) else "zeros"
    if node.op != "call_function":
        return ""
    if node.target in (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default):
        return "zeros"
    if node.target is aten.log.default:
        return "mask" if is_kept(node.all_input_nodes[0]) else ""
    if node.target in _MOVES:
        return _kind(node.args[0], model, known)
    if node.target in _MULTIPLIED:
        for one, factor in (node.args[:2], node.args[1::-1]):
            if _is_left_out(factor, model) and _is_zero_or_one(one, model):
                return "mask"
        return ""
    parts: Mapping[str, Any] = arguments(node)
    if node.target in _FILL:
        given = [parts["self"], parts["value"]]
    elif node.target in _WHERE or node.target in _ADD:
        given = [parts["self"], parts["other"]]
    else:
        return ""
    kinds = {_kind(one, model, known) for one in given}
    return "" if "" in kinds else "mask" if "mask" in kinds else "zeros"


def _is_zero_or_one(node: Any, model: GraphModule, taken_from_one: bool = False) -> bool:
    """Whether the node is made of integers or booleans, or is one less an input of the model."""
    if not isinstance(node, Node):
        return False
    if node.op == "placeholder" and taken_from_one:
        return True
    if not is_float(node):
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and not value.is_floating_point()
    if node.target in _MOVES:
        return _is_zero_or_one(node.args[0], model, taken_from_one)
    if node.target not in _SUBTRACT:
        return False
    operands = node.args[1::-1] if node.target is aten.rsub.Scalar else node.args[:2]
    return _number(operands[0], model) == 1 and _is_zero_or_one(operands[1], model, True)


_SUBTRACT = frozenset(with_twins(aten.rsub.Scalar, aten.sub.Tensor))
_MULTIPLIED = frozenset(with_twins(aten.mul.Tensor, aten.mul.Scalar))

__all__ = [
    "LEFT_OUT",
    "MASK_SPEC",
    "ScoresObserver",
    "add_finite_masks",
    "mask_of",
    "pad_rows",
    "padded_rows",
    "prepares_masks",
    "scores_spec",
]
