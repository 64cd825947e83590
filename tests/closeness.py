"""Comparing results element by element with the bound that a row declares."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.func import functional_call

from edgewise.partition.accuracy import Accuracy

_MOST_SHOWN = 5


def ulp(x: torch.Tensor, type_: torch.dtype) -> torch.Tensor:
    """The distance to the next number of the type, of numbers in float64."""
    info = torch.finfo(type_)
    magnitude = x.abs().clamp(info.smallest_normal, info.max)
    return torch.exp2(torch.floor(torch.log2(magnitude))) * info.eps


def magnitudes(module: torch.nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """For each element y of each output the sum of |x * dy/dx| over all inputs and parameters x;
    zero where that is not finite. In float64; the module is not changed."""
    module = in_float64(module)
    given = [_double(x) for x in inputs]
    places = [i for i, x in enumerate(given) if _is_real(x)]
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = [name for name, value in state.items() if _is_real(value)]
    try:
        return _magnitudes(module, given, places, state, names)
    except RuntimeError as error:  # by statistics of a norm, for one
        if "not differentiable" not in str(error):
            raise
        return _magnitudes(module, given, places, state, [])


MOST_SLOPES = 1 << 26
"""Most derivatives that are worth computing; of more, the terms count as zero: a closer bound."""


def _magnitudes(
    module: torch.nn.Module,
    given: list[Any],
    places: list[int],
    state: dict[str, torch.Tensor],
    names: list[str],
) -> list[torch.Tensor]:
    points = (*(given[i] for i in places), *(state[n] for n in names))

    def outputs(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args = list(given)
        for place, value in zip(places, values, strict=False):
            args[place] = value
        held = dict(zip(names, values[len(places) :], strict=True))
        found = torch.utils._pytree.tree_leaves(functional_call(module, held, tuple(args)))
        return tuple(y if _is_real(y) else torch.zeros(y.shape) for y in found)

    points = tuple(x.detach().clone() for x in points)
    with torch.no_grad():
        exact = outputs(*points)
    results = sum(y.numel() for y in exact)
    # autograd makes a matrix of as many rows and columns as there are results, too.
    if max(results * sum(x.numel() for x in points), results * results // 4) > MOST_SLOPES:
        return [torch.zeros(y.shape, dtype=torch.float64) for y in exact]
    sums = []
    for row in torch.autograd.functional.jacobian(outputs, points, vectorize=True):
        total: Any = 0
        for x, jacobian in zip(points, row, strict=True):
            part = (jacobian * x).abs().nan_to_num(0, 0, 0)
            total = total + part.flatten(jacobian.dim() - x.dim()).sum(-1) if x.dim() else part
        sums.append(total)
    return sums


def in_float64(module: torch.nn.Module) -> torch.nn.Module:
    """A copy for evaluation in float64. An epsilon that depends on the type stays as it was."""
    types = {value.dtype for value in module.state_dict().values() if value.is_floating_point()}
    module = copy.deepcopy(module).eval()
    for part in module.modules():
        if isinstance(part, torch.nn.RMSNorm) and part.eps is None:
            part.eps = torch.finfo(next(iter(types), torch.float32)).eps
    return module.double()


def allowed(
    want: torch.Tensor, accuracy: Accuracy, type_: torch.dtype, terms: torch.Tensor | None = None
) -> torch.Tensor:
    """The bound for each element of the exact result."""
    bound = accuracy.ulps * ulp(want, type_) + accuracy.floor
    if accuracy.terms and terms is not None:
        bound = bound + accuracy.terms * torch.finfo(type_).eps * terms
    return bound


def assert_within(
    got: torch.Tensor,
    wanted: torch.Tensor,
    accuracy: Accuracy,
    *,
    terms: torch.Tensor | None = None,
    inputs: Sequence[Any] = (),
    where: str = "",
) -> None:
    """got: the result, in its type. wanted: the exact one, in float64. An exact result beyond the
    type's numbers is an infinity."""
    assert got.shape == wanted.shape, f"{where}: {tuple(got.shape)}, not {tuple(wanted.shape)}"
    if not got.is_floating_point():
        bound = torch.full(wanted.shape, float(accuracy.steps or 0))
        assert_bounded(got, wanted, bound, inputs=inputs, where=where, why=str(accuracy))
        return
    bound = allowed(wanted.double(), accuracy, got.dtype, terms)
    assert_bounded(got, wanted, bound, inputs=inputs, where=where, why=str(accuracy))


def assert_bounded(
    got: torch.Tensor,
    wanted: torch.Tensor,
    bound: torch.Tensor,
    *,
    inputs: Sequence[Any] = (),
    where: str = "",
    why: str = "",
) -> None:
    """Each element differs by its bound at most; infinities and NaN stand where they are wanted.

    A failure tells index, both values, the inputs there, and the bound."""
    off = outside(got, wanted, bound)
    if not bool(off.any()):
        return
    lines = [f"{where or 'result'}: {int(off.sum())} of {off.numel()} elements out of bounds"]
    places = off.nonzero().tolist()
    worst = sorted(places, key=lambda at: -_excess(got, wanted, bound, tuple(at)))
    for place in worst[:_MOST_SHOWN]:
        at = tuple(place)
        y, want, limit = (float(t[at]) for t in (got, wanted, bound))
        found = f"  [{', '.join(map(str, at))}] got {y:.9g}, expected {want:.9g}"
        found += f"; off by {abs(y - want):.3g}, allowed {limit:.3g}"
        there = [_at(x, at, got.shape) for x in inputs]
        shown = ", ".join(x for x in there if x)
        lines.append(found + (f"; inputs {shown}" if shown else ""))
    raise AssertionError("\n".join([*lines, *([f"  bound: {why}"] if why else [])]))


def outside(got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Where a result is out of its bounds."""
    y, want = got.double(), wanted.double()
    held = wanted.to(got.dtype).double()  # infinite beyond the type's numbers
    same = (y == held) | (y == want) | (y.isnan() & want.isnan())
    near = ((y - want).abs() <= bound) & y.isfinite()
    return ~(same | near)


def _excess(
    got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor, at: tuple[int, ...]
) -> float:
    difference = abs(float(got[at]) - float(wanted[at]))
    limit = float(bound[at])
    return difference / limit if difference == difference and limit else float("inf")


def _at(x: Any, at: tuple[int, ...], shape: torch.Size) -> str:
    """The operand's element for a result's, if the operand broadcasts to its shape."""
    if not isinstance(x, torch.Tensor):
        return repr(x) if isinstance(x, (int, float)) else ""
    try:
        return f"{x.expand(shape)[at].item():.9g}"
    except RuntimeError:
        return ""


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _double(x: Any) -> Any:
    return x.double() if _is_real(x) else x
