"""What kernels declare (native/kernels/accuracy.txt), for results that one kernel makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from samples import Call
from torch.utils import _pytree as pytree

from edgewise.emit.kernel_accuracy import Accuracy, Bound, rows_of_operator

_NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


def rows(graph: torch.fx.Graph) -> list[Accuracy | None]:
    """For each result of a lowered graph the row of the only kernel that computes on its way from
    the inputs; None if several do, since bounds of theirs do not add up. Kernels that move
    elements of any type compute nothing."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    made: dict[torch.fx.Node, frozenset[torch.fx.Node]] = {}
    for node in graph.nodes:
        above = frozenset().union(*(made[n] for n in node.all_input_nodes))
        moves = node.op != "call_function" or node.target.__name__ == "getitem"
        if not moves:
            found = _rows_of(node)
            moves = bool(found) and all(row.listed == "any" and row.exact for row in found)
        made[node] = above if moves else above | {node}
    results = pytree.tree_leaves(output.args[0])
    return [_row(made[r]) if isinstance(r, torch.fx.Node) else None for r in results]


def _rows_of(node: torch.fx.Node) -> list[Accuracy]:
    """The rows of the kernels of a node's operator; views are lowered to copies."""
    schema = getattr(node.target, "_schema", None)
    name = schema.name if schema is not None else str(node.target)
    return rows_of_operator(name) or rows_of_operator(name + "_copy")


def _row(computing: frozenset[torch.fx.Node]) -> Accuracy | None:
    if len(computing) != 1:
        return None
    (node,) = computing
    found = _rows_of(node)
    bounds = {(row.single, row.double, row.half) for row in found}
    return found[0] if len(bounds) == 1 else None


def wide(call: Call) -> list[Any] | None:
    """The call's results in float64, as a flat list; None if it has no float64."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda x: x.double() if x.dtype in _NAMES else x.clone(),
        (call.args, call.kwargs),
    )
    try:
        return pytree.tree_leaves(call.function(*args, **kwargs))
    except Exception:
        return None


def worst(
    got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, bound: Bound
) -> tuple[tuple[int, ...], float] | None:
    """The element that is furthest from both eager's own result and the one in float64, rounded,
    if it is further than the bound: its index, and how many units it is away."""
    away = torch.minimum(_units(got, own), _units(got, exact.to(own.dtype)))
    if away.numel() == 0 or float(away.max()) <= bound.count:
        return None
    place = int(away.argmax())
    index = torch.unravel_index(torch.tensor(place), away.shape)
    return tuple(int(i) for i in index), float(away.flatten()[place])


def _units(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Distances in units of the last place, infinite between numbers and what is none."""
    a, b, info = got.double(), want.double(), torch.finfo(want.dtype)
    size = torch.minimum(a.abs(), b.abs()).clamp(info.smallest_normal, info.max)
    unit = torch.exp2(torch.floor(torch.log2(size))) * info.eps
    away = (a - b).abs() / unit
    away = torch.where(a.isfinite() & b.isfinite(), away, torch.full_like(a, torch.inf))
    return torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), away)


def difference(
    call: Call, got: Sequence[Any], own: Sequence[Any], declared: Sequence[Accuracy | None]
) -> str | None:
    """What is further from eager than its kernel declares; None if nothing is, or declares
    bounds that need the terms' magnitudes."""
    exact = None
    for k, (y, want, row) in enumerate(zip(got, own, declared, strict=True)):
        if row is None or not isinstance(want, torch.Tensor) or want.dtype not in _NAMES:
            continue
        bound = row.of(_NAMES[want.dtype])
        if bound.terms:
            continue
        exact = exact or wide(call) or list(own)
        held = exact[k] if exact[k].shape == want.shape else want
        y = torch.as_tensor(y)
        if y.shape != want.shape:
            continue
        found = worst(y, want, held, bound)
        if found is not None:
            index, away = found
            return (
                f"values differ: at {list(index)} {y[index].item()!r} for {want[index].item()!r} "
                f"({held[index].item()!r} in float64), {away:g} ulp; declared: {bound}"
            )
    return None
