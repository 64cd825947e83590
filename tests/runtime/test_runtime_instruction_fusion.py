"""What a file spells by several instructions and runs as one call computes what eager computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import edgewise
from edgewise.runtime import Method, Runtime
from support import Fn


@dataclass(frozen=True)
class Case:
    """calls: how many run. shapes: of the inputs."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    calls: int
    dynamic: bool = False


def _gate_too(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate = F.hardsigmoid(x)
    return x * gate, gate


def _norm(x: torch.Tensor, **how: Any) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x, **how)
    return norm


CASES = {
    "one row": Case(F.linear, ((1, 40), (33, 40)), 1),
    "rows": Case(F.linear, ((7, 40), (33, 40)), 1),
    # The result lies over the weight, which has less room.
    "more rows than columns": Case(F.linear, ((90, 3), (5, 3)), 2),
    "bias": Case(F.linear, ((7, 40), (33, 40), (33,)), 1),
    "bias that repeats": Case(lambda x, w, b: torch.addmm(b, x, w.t()), ((7, 4), (3, 4), (1,)), 2),
    "bias, scaled": Case(
        lambda x, w, b: torch.addmm(b, x, w.t(), beta=2), ((7, 4), (3, 4), (3,)), 2
    ),
    "transposed weight is read again": Case(
        lambda x, w: (x @ w.t(), w.t().contiguous().abs()), ((7, 4), (3, 4)), 3
    ),
    "some rows": Case(F.linear, ((7, 40), (33, 40)), 1, dynamic=True),
    "dot": Case(torch.dot, ((1000,), (1000,)), 1),
    "dot of itself": Case(lambda x: torch.dot(x, x), ((37,),), 1),
    "dot of one": Case(torch.dot, ((1,), (1,)), 1),
    "products of rows": Case(lambda a, b: (a * b).sum(), ((4, 5), (4, 5)), 2),
    "products with one number": Case(lambda a, b: (a * b).sum(), ((5,), (1,)), 2),
    "hardswish": Case(F.hardswish, ((9, 37),), 1),
    "hardsigmoid": Case(F.hardsigmoid, ((9, 37),), 1),
    "hardsigmoid of some rows": Case(F.hardsigmoid, ((9, 37),), 1, dynamic=True),
    "hardswish and its gate": Case(_gate_too, ((9, 37),), 2),
    "other bounds": Case(lambda x: torch.clamp(x + 3, 0, 5) * (1 / 6), ((9, 37),), 3),
    "one after the other": Case(lambda x: F.hardswish(F.hardswish(x)), ((9, 37),), 2),
    "norm of all": Case(_norm, ((9, 37),), 1),
    "norm of rows": Case(lambda x: _norm(x, dim=1), ((9, 37),), 1),
    "norm of columns, kept": Case(lambda x: _norm(x, dim=0, keepdim=True), ((9, 37),), 1),
    "norm of another order": Case(lambda x: _norm(x, ord=3, dim=1), ((9, 37),), 4),
}
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    # A rounding of each result, and one of what is multiplied afterwards.
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


def _load(case: Case, inputs: tuple[torch.Tensor, ...]) -> Method:
    rows = torch.export.Dim("rows", min=2, max=16)
    shapes = (tuple({0: rows} if i == 0 else None for i in range(len(inputs))),)
    exported = torch.export.export(
        Fn(case.function), inputs, dynamic_shapes=shapes if case.dynamic else None
    )
    program = edgewise.to_edge_transform_and_lower(exported, partitioner=[]).to_executorch()
    return Runtime.get().load_program(program.buffer, threads=1).load_method("forward")


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", CASES)
def test_fused_instructions(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    generator = torch.Generator().manual_seed(0)
    inputs = tuple((torch.randn(s, generator=generator) * 2).to(dtype) for s in case.shapes)
    method = _load(case, inputs)
    with torch.no_grad():
        wanted = case.function(*(x.double() for x in inputs))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    given = [x if dtype == torch.bfloat16 else x.numpy() for x in inputs]
    # Twice: what is left out must not have been needed for the next run.
    for _ in range(2):
        for got, want in zip(method.execute(given), wanted, strict=True):
            result = np.asarray(got).astype(np.float64)
            scale = max(1.0, float(want.abs().max()))
            np.testing.assert_allclose(result, want.numpy(), 0, TOLERANCE[dtype] * scale)
    with edgewise.profile() as profile:
        method.execute(given)
    (summary,) = profile.summaries()
    if dtype in (torch.float32, torch.float64):  # others convert before or afterwards
        assert sum(row.events for row in summary.instructions) == case.calls
