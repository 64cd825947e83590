"""Kernels whose loops differ by type and length, against eager PyTorch: lengths leave rests."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import edgewise
from edgewise.runtime import Runtime
from support import Fn, export

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
HALVES = [torch.float16, torch.bfloat16]
INF = float("inf")


def _run(function: Any, *inputs: torch.Tensor) -> list[Any]:
    program = edgewise.to_edge_transform_and_lower(export(Fn(function), inputs), partitioner=[])
    method = Runtime.get().load_program(program.to_executorch().buffer).load_method("forward")
    return [_tensor(value) for value in method.execute(list(inputs))]


def _tensor(value: Any) -> torch.Tensor:
    if value.dtype.name == "bfloat16":  # which PyTorch does not take from numpy
        return torch.as_tensor(value.view("int16")).view(torch.bfloat16)
    return torch.as_tensor(value)


def _assert_equal(function: Any, *inputs: torch.Tensor, rtol: float = 0) -> None:
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, eager in zip(_run(function, *inputs), expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=rtol, atol=0, equal_nan=True)


def _integers(dtype: torch.dtype, count: int) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    torch.manual_seed(0)
    values = torch.randint(limits.min, limits.max, (count,), dtype=dtype)
    values[:2] = torch.tensor([limits.min, limits.max], dtype=dtype)
    return values


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_divided_as_eager_does(dtype: torch.dtype) -> None:
    a, b = _integers(dtype, 613), _integers(dtype, 613).roll(7)
    b = torch.where((b == 0) | (b == -1), torch.tensor(3, dtype=dtype), b)
    b[100:300] = torch.arange(1, 201).to(torch.int8).abs().clamp(1, 100).to(dtype)
    if dtype not in (torch.int32, torch.int64):
        b[1] = torch.tensor(-1).to(dtype)

    def quotients(x: torch.Tensor, y: torch.Tensor) -> Any:
        truncated = torch.div(x, y, rounding_mode="trunc")
        return torch.floor_divide(x, y), truncated, torch.remainder(x, y), torch.fmod(x, y)

    _assert_equal(quotients, a, b)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_a_zero_divisor_is_told(dtype: torch.dtype) -> None:
    a, b = _integers(dtype, 70), torch.ones(70, dtype=dtype)
    b[65] = 0
    with pytest.raises(Exception, match="not divided by zero"):
        _run(torch.floor_divide, a, b)


@pytest.mark.parametrize("count", [511, 512, 513, 3000])
def test_operands_that_are_converted_first(count: int) -> None:
    """In blocks of 512, where others are taken as they lie."""
    x, y, i = torch.randn(count), torch.randn(count).half(), torch.arange(count) - 99
    _assert_equal(lambda x, y, i: (x + i, i * x, x - y, torch.maximum(x, i), i < x), x, y, i)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_of_all_sizes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = torch.randn(300, dtype=dtype) * torch.logspace(-6, 6, 300, dtype=dtype)
    b = torch.randn(300, dtype=dtype)
    a[:6] = torch.tensor([1, -1, INF, float("nan"), 0, -0.0])
    b[:6] = torch.tensor([INF, INF, 2, 2, 0, -INF])
    _assert_equal(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(2100,), (7, 300), (300, 7)])
def test_integers_are_sorted_and_compared(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = _integers(dtype, 2100).reshape(shape)

    def orders(x: torch.Tensor) -> Any:
        up, down = x.sort(dim=-1, stable=True), x.sort(dim=0, descending=True, stable=True)
        return (*up, *down, x.amax(0), x.amin(-1), x.max(), x.min(), x.sum(0), x.sum())

    _assert_equal(orders, x)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float16])
def test_matrices_are_turned(dtype: torch.dtype) -> None:
    x = torch.arange(50 * 67).reshape(50, 67).to(dtype)
    _assert_equal(lambda x: (x.t().contiguous(), x[:48, :64].t().contiguous()), x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32])
@pytest.mark.parametrize("boundaries", [1, 2, 7, 64, 1000])
def test_places_are_found(dtype: torch.dtype, boundaries: int) -> None:
    b = torch.arange(boundaries).div(3, rounding_mode="floor").clamp(max=100).to(dtype)
    v = torch.arange(-3, 110).to(dtype)

    def places(b: torch.Tensor, v: torch.Tensor) -> Any:
        return (
            torch.searchsorted(b, v),
            torch.searchsorted(b, v, right=True),
            torch.bucketize(3, b),
            torch.bucketize(3, b, right=True),
        )

    _assert_equal(places, b, v)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.bool, torch.uint8])
def test_runs_of_indices_are_followed(dtype: torch.dtype) -> None:
    x = (torch.arange(5 * 40) % 23).reshape(5, 40).to(dtype)
    i = torch.tensor([3, 0, *range(30), 39, 39, 38])
    _assert_equal(lambda x, i: (x[:, i], x[i % 5, i], x.index_put((i % 5,), x[i % 5], True)), x, i)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_rounded_to_even(dtype: torch.dtype) -> None:
    x = torch.arange(0, 1 << 16, 7, dtype=torch.int32).to(torch.uint16).view(dtype)
    wide = torch.logspace(-9, 9, 5001) * torch.tensor([1.0, -1, 1]).repeat(1667)
    wide[:3] = torch.tensor([INF, -INF, float("nan")])
    _assert_equal(lambda x: (x.float(), -x, x.abs(), x * 1), x)
    _assert_equal(lambda x: x.to(dtype), wide)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_products_of_every_number_of_rows(dtype: torch.dtype) -> None:
    b = (torch.arange(9 * 37) % 11 - 5).reshape(9, 37).to(dtype)
    for rows in (1, 3, 4, 11, 12, 30):
        a = (torch.arange(rows * 9) % 7 - 3).reshape(rows, 9).to(dtype)
        _assert_equal(torch.mm, a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elementary_functions(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 1, 2049, dtype=dtype)
    rtol = 5e-7 if dtype == torch.float32 else 5e-15
    _assert_equal(lambda x: (x.asin(), x.acos(), (7 * x).erf()), x, rtol=rtol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("shape", [(1, 77, 11), (13, 77, 1), (1, 200, 6), (9, 16, 1)], ids=str)
def test_products_with_a_vector(
    dtype: torch.dtype, transposed: bool, shape: tuple[int, int, int]
) -> None:
    """One row or one column: sums over whole vectors of elements and the rest."""
    m, k, n = shape
    torch.manual_seed(0)
    # Small whole numbers: every order of the sum gives the same.
    a, b = (torch.randint(-9, 10, s).to(dtype) for s in ((m, k), (n, k) if transposed else (k, n)))
    _assert_equal(lambda x, y: x @ (y.t() if transposed else y), a, b)
