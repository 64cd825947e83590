"""Writes into parts of a tensor whose sizes are open: a number, a row, a part of another tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

import edgewise
from support import (
    RUNTIMES,
    Fn,
    all_sizes_open,
    assert_close,
    at_other_sizes,
    eager,
    export,
    run_ours,
)

pytestmark = pytest.mark.matrix

X = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))


def zeros(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(x.shape)


def a_number(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[:, :2, 1:] = 3.0
    return m + x


def true(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x).bool()
    m[:, :2] = True
    return m


def a_size(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x).long()
    m[:, 0] = x.shape[0]
    return m


def a_constant(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[..., 0] = torch.tensor(2)
    return m


def an_element(x: torch.Tensor) -> torch.Tensor:
    m = x.clone()
    m.fill_(x[0, 0, 0])
    return m


def a_row_of_each(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[:, 1] = x[:, 0]
    m[:, 2] = x[0, 0]
    return m


def one_image_for_all(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m.copy_(x[:1])
    return m


def steps(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[:, :, ::2] = x[:, :1, :1]
    return m


def sums(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[:, 1:3, 1:3] += x[:, :1, :1]
    m[:, 0].add_(x[:, 1])
    return m


def all_but_two(x: torch.Tensor) -> torch.Tensor:
    m = x.clone()
    m[: x.shape[0] - 2] = 0
    return m


def one_more(x: torch.Tensor) -> torch.Tensor:
    m = torch.zeros(x.shape[0] + 1, x.shape[1], x.shape[2])
    m[1:] = x
    m[0] = x[-1]
    return m


def in_turns(x: torch.Tensor) -> torch.Tensor:
    m = torch.zeros(x.shape[0] * 2, 5)
    m[::2] = x[:, 0]
    m[1::2] = x[:, 1]
    return m


def numbers_in_columns(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m[:, :, 0] = torch.arange(x.shape[0])[:, None]
    return m


def through_a_view(x: torch.Tensor) -> torch.Tensor:
    m = zeros(x)
    m.view(x.shape[0], -1)[:, 3] = 1.0
    m.transpose(0, 1)[0] = 2.0
    return m


def a_row_of_a_square(x: torch.Tensor) -> torch.Tensor:
    m = torch.ones(x.shape[2], x.shape[2]).tril()
    m[0] = 0
    return x @ m


def softmax_in_place(x: torch.Tensor) -> torch.Tensor:
    m = x.clone()
    m[:, 0, :] = m[:, 0, :].softmax(-1)
    return m


WRITES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    a_number,
    true,
    a_size,
    a_constant,
    an_element,
    a_row_of_each,
    one_image_for_all,
    steps,
    sums,
    all_but_two,
    one_more,
    in_turns,
    numbers_in_columns,
    through_a_view,
    a_row_of_a_square,
    softmax_in_place,
]


@pytest.mark.parametrize("runtime", [pytest.param("peer", marks=pytest.mark.peer), "ours"])
@pytest.mark.parametrize("write", WRITES)
def test_of_an_open_batch(write: Any, runtime: str) -> None:
    program = export(Fn(write), (X,), dynamic_shapes=(({0: Dim("n", min=4, max=12)},),))
    calls = [(X,), (torch.cat([X, X]),), (X[:4],)]
    pte = edgewise.to_edge_transform_and_lower(program).to_executorch().buffer
    for call, got in zip(calls, RUNTIMES[runtime](pte, *calls), strict=True):
        assert_close(got, eager(Fn(write), call))


@pytest.mark.parametrize("write", WRITES)
def test_of_sizes_that_are_all_open(write: Any) -> None:
    program = export(Fn(write), (X,), dynamic_shapes=(all_sizes_open((X,)),))
    others = [at_other_sizes(program, (X,), step) for step in (3, -1)]
    calls = [(X,), *(other for other in others if other is not None)]
    assert len(calls) == 3
    pte = edgewise.to_edge_transform_and_lower(program).to_executorch().buffer
    for call, got in zip(calls, run_ours(pte, *calls), strict=True):
        assert_close(got, eager(Fn(write), call))
