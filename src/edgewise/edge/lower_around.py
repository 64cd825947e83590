"""Operators that a runtime has no kernel for are made of others, where somebody knows how.

Requires the edge dialect. Ensures it: what torch's decompositions give, beyond those to core ATen,
or what is written below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import transform_bodies
from edgewise.edge.fold_constants import fold_constants
from edgewise.edge.graph import calls
from edgewise.edge.normalize import CallTracer, normalize
from edgewise.edge.program import sync_outputs
from edgewise.edge.settle_sizes import settle_sizes

aten = torch.ops.aten


def lower_around(program: ExportedProgram, lacks: Callable[[Node], bool]) -> ExportedProgram:
    """Edits the program and its bodies. lacks: whether there is no kernel for a node."""
    transform_bodies(program, lambda body, _: lower_around(body, lacks))
    tracer = CallTracer(program)
    changed = False
    for node in list(calls(program.graph)):
        if not node._erased and lacks(node):
            found = smaller(node)
            changed |= found is not None and tracer.inline(node, found) is not None
    if changed:
        normalize(program)
        fold_constants(program)
        settle_sizes(program)
        sync_outputs(program)
    return program


def smaller(node: Node) -> dict[Any, Callable[..., Any]] | None:
    """Decompositions of the node's operator, by operator; None if nobody knows one."""
    from torch._decomp import get_decompositions

    target: Any = node.target
    if target in _OWN:
        return {target: _OWN[target]}
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return get_decompositions([target]) or None


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Not stable, as torch says of it."""
    return aten.topk.default(x, x.shape[dim], dim, descending, True)


def _sort_stable(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return NotImplemented if stable else _sort(x, dim, descending)


def _var_mean(
    x: torch.Tensor,
    dim: list[int] | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    dims = dim or list(range(x.dim()))
    variance = aten.var.correction(x, dims, correction=correction, keepdim=keepdim)
    return variance, aten.mean.dim(x, dims, keepdim)


def _left_shift(x: torch.Tensor, by: Any) -> Any:
    return x * 2**by


def _right_shift(x: torch.Tensor, by: Any) -> Any:
    """Arithmetic: towards minus infinity."""
    return torch.div(x, 2**by, rounding_mode="floor")


_OWN: dict[Any, Callable[..., Any]] = {
    aten.sort.default: _sort,
    aten.sort.stable: _sort_stable,
    aten.var_mean.correction: _var_mean,
    aten.bitwise_left_shift.Tensor: _left_shift,
    aten.bitwise_left_shift.Tensor_Scalar: _left_shift,
    aten.bitwise_right_shift.Tensor: _right_shift,
    aten.bitwise_right_shift.Tensor_Scalar: _right_shift,
}
