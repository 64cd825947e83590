"""Operators that no runtime has a kernel of, in terms of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewise.errors import InvalidGraphError
from support import Fn, assert_close, eager64, lower, run_ours, run_peer

pytestmark = pytest.mark.matrix  # the private parts of torch that it rests on change

X, Y = torch.randn(4, 6), torch.randn(4, 6)
BATCH = torch.randn(3, 4, 5)
SIGNS = torch.tensor([-2.0, -0.0, 0.0, 3.0, float("inf"), float("-inf")])
ONES = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0])


def matrices(size: int) -> torch.Tensor:
    return torch.randn(5, size, size) + 2 * torch.eye(size)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "addmv": (lambda x, y: torch.addmv(y[:, 0], x, y[0], beta=0.5, alpha=2), (X, Y)),
    "addbmm": (
        lambda b: torch.addbmm(b[0, :4, :4], b, b.mT, beta=0.5, alpha=2),
        (BATCH,),
    ),
    "bilinear": (
        lambda x, y, b: torch.nn.functional.bilinear(x, y, b, b[:, 0, 0]),
        (X, Y, torch.randn(3, 6, 6)),
    ),
    "signbit": (torch.signbit, (SIGNS,)),
    "signbit of integers": (lambda x: torch.signbit(x.long()), (X * 3,)),
    "copysign": (torch.copysign, (X[0], SIGNS)),
    "copysign of a number": (lambda x: torch.copysign(x, -2.0), (X,)),
    "angle": (torch.angle, (torch.tensor([-1.0, 0.0, 2.0, float("nan")]),)),
    "copysign of two types": (
        lambda x, y: (torch.copysign(x.half(), y), torch.copysign(x, y.double())),
        (X, Y),
    ),
    "hypot": (torch.hypot, (X, Y)),
    "hypot of two types": (lambda x, y: torch.hypot(x.half(), y), (X, Y)),
    "hypot of large numbers": (lambda x, y: torch.hypot(x * 1e20, y * 1e20) / 1e20, (X, Y)),
    "hypot of zeros": (lambda x: torch.hypot(x * 0, x * 0), (X,)),
    "ldexp": (lambda x: torch.ldexp(x, torch.tensor([1, -2, 3, 0, 5, -1])), (X,)),
    "dist": (lambda x, y: torch.dist(x, y, 3), (X, Y)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x * 80, 1), (X,)),
    "cummax": (lambda x: torch.cummax(x, 0), (X,)),
    "cummin": (lambda x: torch.cummin(x, 1), (X,)),
    "cummax of integers": (lambda x: torch.cummax((x * 3).long(), 1), (X,)),
    "cummin of bytes": (lambda x: torch.cummin((x.abs() * 9).to(torch.uint8), 0), (X,)),
    "cummax of booleans": (lambda x: torch.cummax(x > 0, 1), (X,)),
    "cummax from minus infinity": (
        lambda x: torch.cummax(torch.where(x < 1, -math.inf, x), 1),
        (X,),
    ),
    "cummax of equal numbers": (lambda x: torch.cummax(x, 0), (ONES,)),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, 1), (X,)),
    "kthvalue that keeps": (lambda x: torch.kthvalue(x, 3, 0, True), (X,)),
    "as_strided_scatter": (
        lambda x, y: torch.as_strided_scatter(x, y[:2, :2], (2, 2), (3, 1), 1),
        (X, Y),
    ),
    "diagonal_scatter": (lambda x, y: torch.diagonal_scatter(x, y[:, 0]), (X, Y)),
    "diagonal_scatter below": (
        lambda b, y: torch.diagonal_scatter(b, y[:3, :3], -1, 1, 2),
        (BATCH, Y),
    ),
    "index_reduce": (
        lambda x, y: torch.index_reduce(x, 1, torch.tensor([0, 4, 4]), y[:, :3], "amax"),
        (X, Y),
    ),
    "index_reduce, mean": (
        lambda x, y: torch.index_reduce(
            x, 0, torch.tensor([2, 2]), y[:2], "mean", include_self=False
        ),
        (X, Y),
    ),
    "take": (lambda x: torch.take(x, torch.tensor([[0, 5], [23, 1]])), (X,)),
    "take of a number": (lambda x: torch.take(x, torch.tensor(-2)), (X,)),
    "put": (lambda x, y: x.clone().put_(torch.tensor([0, 9]), y[0, :2]), (X, Y)),
    "histc": (lambda x: torch.histc(x, 7, -1, 1.5), (X,)),
    "histc of all": (lambda x: torch.histc(x, 5), (X,)),
    "kthvalue of a number": (lambda x: torch.kthvalue(x.sum(), 1), (X,)),
    "cummin of a number": (lambda x: torch.cummin(x.sum(), 0), (X,)),
    "det": (torch.linalg.det, (matrices(3),)),
    "slogdet": (torch.linalg.slogdet, (matrices(3),)),
    "inv of 1": (torch.linalg.inv, (matrices(1),)),
    "inv of 2": (torch.linalg.inv, (matrices(2),)),
    "inv of 3": (torch.linalg.inv, (matrices(3),)),
    "inv of 4": (torch.inverse, (matrices(4),)),
    "inv of 7": (torch.linalg.inv, (matrices(7),)),
    "inv with a pivot of zero": (torch.linalg.inv, (matrices(5).roll(1, -1),)),
    "det of 5": (torch.linalg.det, (matrices(5),)),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(6)), (matrices(6),)),
    "cholesky above": (
        lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(3), upper=True),
        (matrices(3),),
    ),
    "solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        (matrices(3) + 3 * torch.eye(3), torch.randn(5, 3, 2)),
    ),
    "solve of 6": (torch.linalg.solve, (matrices(6), torch.randn(5, 6, 2))),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, -2), (matrices(3),)),
    "solve": (torch.linalg.solve, (matrices(3), torch.randn(5, 3, 2))),
    "solve for a vector": (torch.linalg.solve, (matrices(4)[0], torch.randn(4))),
    "solve from the right": (
        lambda a, b: torch.linalg.solve(a, b, left=False),
        (matrices(2), torch.randn(5, 3, 2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_computed(name: str) -> None:
    function, inputs = CASES[name]
    module = Fn(function)
    pte = lower(module, inputs).buffer
    expected = eager64(module, inputs)
    assert_close(run_ours(pte, inputs)[0], expected, rel=1e-4, floor=1e-5)


@pytest.mark.peer
@pytest.mark.parametrize(
    "name", ["copysign", "logcumsumexp", "kthvalue", "inv of 4", "solve", "histc"]
)
def test_it_is_computed_on_executorch(name: str) -> None:
    function, inputs = CASES[name]
    module = Fn(function)
    pte = lower(module, inputs).buffer
    assert_close(run_peer(pte, inputs)[0], eager64(module, inputs), rel=1e-4, floor=1e-5)


@pytest.mark.parametrize("rows", [3, 9])
@pytest.mark.parametrize("ends", [[1, 1, 2, 3], [0, 0, 0, 0], [0, 1, 1, 2], [2, 2, 3, 3]])
def test_rows_by_one_of_several_matrices(ends: list[int], rows: int) -> None:
    """Experts: few rows and many, experts without rows, rows without an expert."""
    pytest.importorskip("transformers.integrations.moe")
    several = Fn(torch.ops.transformers.grouped_mm_fallback)
    inputs = torch.randn(rows, 6), torch.randn(4, 6, 5), torch.tensor(ends, dtype=torch.int32)
    pte = lower(several, inputs).buffer
    assert_close(run_ours(pte, inputs)[0], eager64(several, inputs), floor=1e-5)


WEIGHTS = torch.tensor([[0.1, 0.0, 0.6, 0.3]])
# A function that draws numbers; their mean and standard deviation.
DRAWN: dict[str, tuple[Callable[..., Any], float, float]] = {
    "normal_": (lambda x: torch.empty_like(x).normal_(2, 0.5), 2, 0.5),
    "normal": (lambda x: torch.normal(x * 0 + 1, x * 0 + 3), 1, 3),
    "normal around a number": (lambda x: torch.normal(2.0, x * 0 + 3), 2, 3),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-1, 3), 1, 4 / 12**0.5),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2), 0.5, 0.5),
    "geometric_": (lambda x: torch.empty_like(x).geometric_(0.25), 4, 12**0.5),
    "log_normal_": (lambda x: torch.empty_like(x).log_normal_(0, 0.5).log(), 0, 0.5),
    "randint_like": (lambda x: torch.randint_like(x, 2, 10), 5.5, (63 / 12) ** 0.5),
    "multinomial": (
        lambda x: torch.multinomial(WEIGHTS, x.numel(), True).float(), 2.1, 0.69**0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_drawn(name: str) -> None:
    function, mean, deviation = DRAWN[name]
    x = torch.ones(40, 500)
    drawn = torch.as_tensor(run_ours(lower(Fn(function), (x,)).buffer, (x,))[0][0]).double()
    assert abs(float(drawn.mean()) - mean) < 0.05 * max(1, deviation)
    assert abs(float(drawn.std()) - deviation) < 0.05 * max(1, deviation)
    assert drawn.flatten().unique().numel() > 2


def test_a_draw_without_replacement() -> None:
    pte = lower(Fn(lambda w: torch.multinomial(w, 3)), (WEIGHTS,)).buffer
    for _ in range(5):
        assert set(run_ours(pte, (WEIGHTS,))[0][0].reshape(-1).tolist()) == {0, 2, 3}


@pytest.mark.parametrize(
    "function",
    [lambda x: x.tensor_split(torch.tensor([1, 3])), lambda x: x.tensor_split(torch.tensor(3))],
)
def test_what_depends_on_what_tensors_hold(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidGraphError, match=r"what tensors hold; got aten\.tensor_split"):
        lower(Fn(function), (X,))
