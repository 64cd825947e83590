"""What leaves scores out of a softmax, in the ways that models say so.

A mask adds zeros and numbers far below (minus infinity, the type's smallest number, -1e4, ...) to
scores, or fills such a number in where booleans say so. Between it and the softmax, scores may be
moved, and more may be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import views, with_twins
from edgewise.quantize.fold import known_value
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import attribute, is_kept, step

aten = torch.ops.aten

LEFT_OUT = 1000.0
"""What is subtracted from a score that is left out, at least: beside scores that differ by less
than 896 its exponential is zero in float32."""

SOFTMAX = frozenset({aten.softmax.int, aten._softmax.default})
ADD = frozenset(with_twins(aten.add.Tensor))
FILL = frozenset(with_twins(aten.masked_fill.Scalar, aten.masked_fill.Tensor))
WHERE = frozenset(
    {aten.where.Scalar, aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf}
)
COPIES = frozenset(
    with_twins(
        aten.alias.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.detach_.default,
        aten.dropout.default,
        aten.lift_fresh.default,
        aten.lift_fresh_copy.default,
        aten.to.dtype,
        aten.to.dtype_layout,
    )
)
_CUT = frozenset(with_twins(aten.tril.default, aten.triu.default))
"""Zeros are put in."""
MOVES = COPIES | frozenset(views())
_NOT = (aten.logical_not.default, aten.bitwise_not.default)
_COMPARE = (aten.eq.Scalar, aten.ne.Scalar)
SUBTRACT = frozenset(with_twins(aten.rsub.Scalar, aten.sub.Tensor))
MULTIPLY = frozenset(with_twins(aten.mul.Tensor, aten.mul.Scalar))


@dataclass(frozen=True)
class Filled:
    """A number is filled in where the condition, booleans, is `left_out`."""

    condition: Node
    left_out: bool


@dataclass(frozen=True)
class Added:
    """Numbers are added, zeros and such as leave out."""

    numbers: Node


@dataclass(frozen=True)
class Masked:
    """A sum or a choice that leaves scores out: `scores + sum(terms)` under masks.

    behind: from its result to the softmax, the first first: moves, sums, and others like it.
    """

    node: Node
    scores: Node
    masks: tuple[Filled | Added, ...]
    terms: tuple[Node, ...]
    behind: tuple[Node, ...]

    def moves_before(self, end: Node) -> list[Node]:
        """What moves scores between this and a sum behind it, or the softmax."""
        if end is self.node:
            return []
        until = self.behind.index(end) if end in self.behind else len(self.behind)
        return [n for n in self.behind[:until] if n.target in MOVES and n.target not in COPIES]


def masked_scores(model: GraphModule, softmax: Node) -> list[Masked]:
    """All that leaves scores out of one softmax, the last first. Nobody else reads any of it."""
    source = softmax.args[0]
    return list(_behind(model, source, ())) if isinstance(source, Node) else []


def softmaxes(model: GraphModule, wanted: Callable[[Node], bool]) -> list[Node]:
    """Calls that are `wanted`, in order."""
    return [n for n in model.graph.nodes if n.target in SOFTMAX and wanted(n)]


def _behind(model: GraphModule, node: Node, behind: tuple[Node, ...]) -> Iterator[Masked]:
    if node.op != "call_function" or len(node.users) != 1 or not is_float(node):
        return
    found = _filled(model, node, behind) or _summed(model, node, behind)
    if found is not None:
        yield found
        parts: list[Any] = [found.scores, *found.terms]
    elif node.target in ADD:
        parts = [part for part in node.args[:2] if shape_of(part) == shape_of(node)]
    else:
        parts = [node.args[0]] if node.target in MOVES else []
    for part in parts:
        if isinstance(part, Node):
            yield from _behind(model, part, (node, *behind))


def _filled(model: GraphModule, node: Node, behind: tuple[Node, ...]) -> Masked | None:
    choice = choice_of(model, node)
    if choice is None or not isinstance(choice[0], Node):
        return None
    scores, mask, _ = choice
    if not is_float(scores) or shape_of(scores) != shape_of(node) or _is_read_later(node, scores):
        return None
    return Masked(node, scores, (mask,), (), behind)


def _summed(model: GraphModule, node: Node, behind: tuple[Node, ...]) -> Masked | None:
    if node.target not in ADD or arguments(node)["alpha"] != 1:
        return None
    one, other = node.args[:2]
    for scores, added in ((one, other), (other, one)):
        if not isinstance(scores, Node) or not isinstance(added, Node):
            return None
        parts = _parts(added, model)
        if parts is None or shape_of(scores) != shape_of(node) or _is_read_later(node, scores):
            continue
        masks, terms = parts
        return Masked(node, scores, tuple(map(Added, masks)), tuple(terms), behind)
    return None


def put_masks(
    softmax: Node, found: Sequence[Masked], target: Node, make: Callable[[Node, Node], Node]
) -> None:
    """Takes masks out of all that leaves scores out of a softmax, and puts in what is made.

    target: where masks are added instead, one of `found` or what lies behind. make: of what lies
    there without masks and of a node to be like, what is read instead.
    """
    graph = softmax.graph
    without: dict[Node, Node] = {}
    after = softmax
    for one in found[::-1]:
        if target in (one.node, *one.behind):
            path = (one.node, *one.behind, softmax)
            after = path[path.index(target) + 1]
        with graph.inserting_before(one.node):
            scores = without.get(one.scores, one.scores)
            for term in one.terms:
                scores = step(one.node, aten.add.Tensor, scores, without.get(term, term))
        without[one.node] = scores
        one.node.replace_all_uses_with(scores)
    source = without.get(target, target)
    with graph.inserting_before(after):
        made = make(source, target)
    after.replace_input_with(source, made)
    for one in found:
        graph.erase_node(one.node)


def moved_mask(value: Any, one: Masked, end: Node, call: Callable[..., Any]) -> Any:
    """A mask as what lies behind it reads it: as large as the scores where these are moved."""
    moves = one.moves_before(end)
    if moves:
        value = call(aten.expand.default, value, shape_of(one.node))
    for move in moves:
        views = move.target in (aten.view.default, aten.view_copy.default)
        target = aten.reshape.default if views else move.target
        value = call(target, value, *move.args[1:])
    return value


def choice_of(model: GraphModule, node: Node) -> tuple[Any, Filled, float] | None:
    """What is chosen where nothing is left out, where a number far below is, and that number."""
    args = arguments(node) if node.target in FILL or node.target in WHERE else {}
    if node.target in FILL:
        given = [(args["self"], args["mask"], True, args["value"])]
    elif args:
        condition, one, other = args["condition"], args["self"], args["other"]
        given = [(one, condition, False, other), (other, condition, True, one)]
    else:
        return None
    for kept, condition, left_out, far in given:
        number = number_of(far, model)
        if number is not None and number <= -LEFT_OUT and is_boolean(condition):
            if left_out and _is_truth_of(condition, kept, model):
                kept = 0.0
            return kept, Filled(condition, left_out), number
    return None


def _is_truth_of(condition: Node, numbers: Any, model: GraphModule) -> bool:
    """Whether the condition holds wherever the numbers, zeros and ones, are not zero."""
    if not isinstance(numbers, Node) or not _is_zero_or_one(numbers, model):
        return False
    return _origin(condition, True, model) == _origin(numbers, True, model)


def _origin(node: Node, direct: bool, model: GraphModule) -> tuple[Node, bool, tuple[Any, ...]]:
    """What zeros and ones are made of, whether they are its or the others, and how moved."""
    moves: tuple[Any, ...] = ()
    while True:
        source = taken_from(node, model)
        number = _compared_with(node)
        if node.target in _NOT or isinstance(source, Node):
            node, direct = node.all_input_nodes[0], not direct
        elif number is not None:
            node, direct = node.all_input_nodes[0], direct == (number == 0)
        elif node.target in COPIES:
            node = node.all_input_nodes[0]
        elif node.target in MOVES:
            moves = ((node.target, *map(str, node.args[1:])), *moves)
            node = node.all_input_nodes[0]
        else:
            return node, direct, moves


def _compared_with(node: Node) -> int | None:
    """0 or 1, which the numbers differ from where the booleans hold."""
    number = node.args[1] if node.target in _COMPARE else None
    if number not in (0, 1):
        return None
    found = 0 if number == 0 else 1
    return found if node.target is aten.ne.Scalar else 1 - found


def _parts(node: Node, model: GraphModule) -> tuple[list[Node], list[Node]] | None:
    """Masks and other terms of a sum; None if none of the former is in it."""
    if is_mask(node, model):
        return [node], []
    if node.target not in ADD or arguments(node)["alpha"] != 1:
        return None
    masks: list[Node] = []
    terms: list[Node] = []
    for operand in node.args[:2]:
        if not isinstance(operand, Node) or not is_float(operand):
            return None
        found = _parts(operand, model)
        if found is None:
            terms.append(operand)
        else:
            masks += found[0]
            terms += found[1]
    return (masks, terms) if masks else None


# --- what numbers are -----------------------------------------------------------------------


def number_of(value: Any, model: GraphModule) -> float | None:
    """Of a number, or of a constant tensor whose elements are alike."""
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, Node):
        return None
    while value.target in MOVES and value.all_input_nodes:
        value = value.all_input_nodes[0]
    if value.op == "get_attr":
        known = attribute(model, str(value.target))
        if isinstance(known, torch.nn.Parameter) or not known.numel():
            return None
        first = known.reshape(-1)[0]
        return float(first) if bool((known == first).all()) else None
    if value.target in (aten.full.default, aten.scalar_tensor.default):
        given = value.args[-1]
        return float(given) if isinstance(given, (int, float)) else None
    return None


def is_mask(node: Any, model: GraphModule) -> bool:
    """Whether the elements are zeros and numbers that leave out."""
    return _kind(node, model, {}) == "mask"


def _kind(node: Any, model: GraphModule, known: dict[Node, str]) -> str:
    """`mask`, `zeros`, or nothing that is known."""
    number = number_of(node, model)
    if number is not None:
        return "zeros" if number == 0 else "mask" if number <= -LEFT_OUT else ""
    if not isinstance(node, Node) or not is_float(node):
        return ""
    if node not in known:
        known[node] = _kind_of_call(node, model, known) or _kind_of_value(model, node)
    return known[node]


def _kind_of_value(model: GraphModule, node: Node) -> str:
    value = known_value(model, node)
    if value is None:
        return ""
    left_out = value <= -LEFT_OUT
    if not bool(((value == 0) | left_out).all()):
        return ""
    return "mask" if bool(left_out.any()) else "zeros"


def _kind_of_call(node: Node, model: GraphModule, known: dict[Node, str]) -> str:
    if node.op != "call_function":
        return ""
    if node.target in (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default):
        return "zeros"
    if node.target is aten.log.default:
        return "mask" if is_kept(node.all_input_nodes[0]) else ""
    if node.target in MOVES or node.target in _CUT:
        return _kind(node.args[0], model, known)
    if node.target in MULTIPLY:
        return "mask" if zero_where_kept(node, model) is not None else ""
    choice = choice_of(model, node)
    if choice is not None:
        given = [choice[0], choice[2]]
    elif node.target in FILL or node.target in WHERE or node.target in ADD:
        parts = arguments(node)
        given = [parts["self"], parts["value" if node.target in FILL else "other"]]
    else:
        return ""
    kinds = {_kind(one, model, known) for one in given}
    return "" if "" in kinds else "mask" if "mask" in kinds else "zeros"


def zero_where_kept(node: Node, model: GraphModule) -> tuple[Node, float] | None:
    """Of a product with a number that leaves out: zeros and ones, and that number."""
    if node.target not in MULTIPLY:
        return None
    for one, factor in (node.args[:2], node.args[1::-1]):
        number = number_of(factor, model)
        if number is not None and number <= -LEFT_OUT and _is_zero_or_one(one, model):
            assert isinstance(one, Node)
            return one, number
    return None


def _is_zero_or_one(node: Any, model: GraphModule, taken_from_one: bool = False) -> bool:
    """Whether the node is made of integers or booleans, or is one less an input of the model."""
    if not isinstance(node, Node):
        return False
    if node.op == "placeholder" and taken_from_one:
        return True
    if not is_float(node):
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and not value.is_floating_point()
    if node.target in MOVES:
        return _is_zero_or_one(node.args[0], model, taken_from_one)
    source = taken_from(node, model)
    return source is not None and _is_zero_or_one(source, model, True)


def taken_from(node: Node, model: GraphModule) -> Any:
    """x of `1 - x`; None of others."""
    if node.target not in SUBTRACT:
        return None
    operands = node.args[1::-1] if node.target is aten.rsub.Scalar else node.args[:2]
    return operands[1] if number_of(operands[0], model) == 1 else None


def is_boolean(node: Any) -> bool:
    """Whether the node computes a tensor of booleans."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def shape_of(node: Any) -> tuple[Any, ...] | None:
    """Of a tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _is_read_later(node: Node, scores: Node) -> bool:
    """Whether somebody else reads what the node writes in place."""
    target = node.target
    writes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    return writes and len(scores.users) > 1


# --- what prepares masks ----------------------------------------------------------------------

MARK = "prepares_a_mask"


def prepares_masks(model: GraphModule) -> frozenset[Node]:
    """Nodes with the mark, and what is computed for these alone: it stays as it is."""
    found: set[Node] = set()
    for node in reversed(model.graph.nodes):
        if node.op == "call_function" and (
            node.meta.get(MARK) or (node.users and found.issuperset(node.users))
        ):
            found.add(node)
    return frozenset(found)
