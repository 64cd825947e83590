"""One call, or several in one program: exported, lowered without a backend, run, compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import declared
import numpy as np
import torch
from samples import Call
from torch.utils import _pytree as pytree

import edgewise
from edgewise.runtime import Runtime

TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (2e-5, 2e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
"""Relative and absolute, of results that several kernels make: some units of the type's last
place, since decompositions round intermediate results to the type in other places than eager
does. What one kernel makes is held to what that declares."""


Execute = Callable[[bytes, Sequence[torch.Tensor]], list[Any]]
"""Runs a file on a runtime that is not edgewise's."""


@dataclass(frozen=True)
class Outcome:
    """What became of a call. `kind`: passed, failed, or not exported (by torch itself, or for the
    runtime that was asked for)."""

    kind: str
    reason: str = ""


class _Calls(torch.nn.Module):
    """Calls whose tensors are the inputs, in order."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.functions = [c.function for c in calls]
        flat = [pytree.tree_flatten((c.args, c.kwargs)) for c in calls]
        self.leaves = [[None if isinstance(x, torch.Tensor) else x for x in f] for f, _ in flat]
        self.slots = [[i for i, x in enumerate(f) if isinstance(x, torch.Tensor)] for f, _ in flat]
        self.specs = [spec for _, spec in flat]

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        given = iter(tensors)
        results = []
        for function, leaves, slots, spec in zip(
            self.functions, self.leaves, self.slots, self.specs, strict=True
        ):
            filled = list(leaves)
            for slot in slots:
                filled[slot] = next(given)
            args, kwargs = pytree.tree_unflatten(filled, spec)
            results.append(_outputs(function(*args, **kwargs)))
        return results


def check(
    calls: Sequence[Call], random: bool = False, execute: Execute | None = None
) -> list[Outcome]:
    """The outcome of each call. `random`: results are compared by type and shape only, as are
    those of a call that drops some at random. execute: on another runtime, of ExecuTorch's."""
    if not calls:
        return []
    try:
        got, expected, rows = _run(calls, execute)
    except Exception as error:
        if len(calls) > 1:
            return [o for call in calls for o in check([call], random, execute)]
        if isinstance(error, _NotExportedError):
            return [Outcome("not exported", _first_line(error))]
        return [Outcome("failed", _first_line(error))]
    drops = [call.kwargs.get("dropout_p", 0) > 0 for call in calls]
    outcomes = [_compare(g, e, random or d) for g, e, d in zip(got, expected, drops, strict=True)]
    outcomes = [
        _compare_wide(call, g, o) if o.kind == "failed" else o
        for call, g, o in zip(calls, got, outcomes, strict=True)
    ]
    for k, outcome in enumerate(outcomes):
        if outcome.kind == "passed" and not (random or drops[k]) and execute is None:
            reason = declared.difference(calls[k], got[k], expected[k], rows[k])
            outcomes[k] = Outcome("failed", reason) if reason else outcome
    return outcomes


_HALVES = (torch.float16, torch.bfloat16)


def _compare_wide(call: Call, got: Sequence[Any], first: Outcome) -> Outcome:
    """A result in half precision may also be that of eager in float32, rounded once.

    Eager rounds sums and intermediate results to the type, which is worse.
    """
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    if not any(isinstance(x, torch.Tensor) and x.dtype in _HALVES for x in leaves):
        return first
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda x: x.float() if x.dtype in _HALVES else x, (call.args, call.kwargs)
    )
    try:
        wide = _outputs(call.function(*args, **kwargs))
    except Exception:
        return first
    types = [torch.as_tensor(y).dtype for y in got]
    half = next(x.dtype for x in leaves if isinstance(x, torch.Tensor) and x.dtype in _HALVES)
    expected = [
        w.to(half) if isinstance(w, torch.Tensor) and t in (half, torch.float32) else w
        for w, t in zip(wide, types, strict=True)
    ]
    return Outcome("passed") if _compare(got, expected, False).kind == "passed" else first


class _NotExportedError(Exception):
    pass


def _run(
    calls: Sequence[Call], execute: Execute | None
) -> tuple[list[list[Any]], list[list[Any]], list[list[Any]]]:
    """Results of the runtime and of eager, and for each the row of the kernel that makes it."""
    module = _Calls(calls)
    tensors = [
        x for c in calls for x in pytree.tree_leaves((c.args, c.kwargs)) if torch.is_tensor(x)
    ]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            expected = module(*[x.detach().clone() for x in tensors])
            exported = torch.export.export(module, tuple(tensors))
        except Exception as error:
            raise _NotExportedError(f"{type(error).__name__}: {error}") from error
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[])
        rows = declared.rows(edge.exported_program().graph)
        program = edge.to_executorch()
        if execute is None:
            method = Runtime.get().load_program(program.buffer).load_method("forward")
            flat = [_tensor(y) for y in method.execute(tensors)]
        elif any(need.since is None for need in program.needs()):
            raise _NotExportedError("no release of ExecuTorch runs the file")
        else:
            flat = execute(bytes(program.buffer), tensors)
    given, of_given = iter(flat), iter(rows if len(rows) == len(flat) else [None] * len(flat))
    return (
        [[next(given) for _ in outputs] for outputs in expected],
        expected,
        [[next(of_given) for _ in outputs] for outputs in expected],
    )


def _tensor(y: Any) -> Any:
    if isinstance(y, (np.ndarray, np.generic)):
        y = np.ascontiguousarray(y).reshape(y.shape)
        if y.dtype.name == "bfloat16":
            return torch.from_numpy(y.view(np.uint16).astype(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(y)
    return y


def _outputs(result: Any) -> list[Any]:
    leaves = pytree.tree_leaves(result)
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]


def _compare(got: Sequence[Any], expected: Sequence[Any], random: bool) -> Outcome:
    for y, want in zip(got, expected, strict=True):
        y = torch.as_tensor(y) if isinstance(want, torch.Tensor) else y
        if not isinstance(want, torch.Tensor):
            if y != want and not random:
                return Outcome("failed", f"a number differs: {y} for {want}")
            continue
        if tuple(y.shape) != tuple(want.shape):
            return Outcome("failed", f"a shape differs: {list(y.shape)} for {list(want.shape)}")
        # The runtime hands out bfloat16 as float32 where numpy knows no bfloat16.
        if y.dtype != want.dtype and not (
            want.dtype == torch.bfloat16 and y.dtype == torch.float32
        ):
            return Outcome("failed", f"a type differs: {y.dtype} for {want.dtype}")
        if random:
            continue
        rtol, atol = TOLERANCE.get(want.dtype, (0.0, 0.0))
        try:
            torch.testing.assert_close(
                y, want.to(y.dtype), rtol=rtol, atol=atol, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return Outcome("failed", "values differ: " + " ".join(str(error).split())[:200])
    return Outcome("passed")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]
