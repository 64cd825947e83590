"""Inputs that a program writes are written in the caller's arrays, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.runtime import InvalidArgumentError, Method, Runtime


class Accumulate(torch.nn.Module):
    """Adds y to x in place; returns something else."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2


class FirstRow(torch.nn.Module):
    """Writes a part of x."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[0].mul_(y[1])
        return x.sum()


class Filled(torch.nn.Module):
    """Writes x from a loop and returns it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.where(y > 0, y, x))
        return x


MODELS = {"whole": Accumulate, "a part": FirstRow, "returned": Filled}
ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "plain": np.copy,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "spread": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "memoryview": lambda x: memoryview(x.copy()),
    "torch": lambda x: torch.from_numpy(x.copy()),
    "torch transposed": lambda x: torch.from_numpy(np.ascontiguousarray(x.T)).T,
}
REFUSED: dict[str, Callable[[np.ndarray], Any]] = {
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "broadcast": lambda x: torch.from_numpy(x[:1].copy()).expand(2, 3),
    "negated view": lambda x: torch._neg_view(torch.from_numpy(x.copy())),
}

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.array([[-1, 2, 3], [4, -5, 6]], dtype=np.float32)


def load(make_pte: Any, model: str, delegated: bool, dtype: torch.dtype = torch.float32) -> Method:
    partitioner = [XnnpackPartitioner()] if delegated else None
    example = (torch.ones(2, 3, dtype=dtype), torch.ones(2, 3, dtype=dtype))
    data = make_pte(MODELS[model](), example, partitioner=partitioner)
    return Runtime.get().load_program(data).load_method("forward")


@pytest.mark.parametrize("delegated", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_caller_sees_what_was_written(make_pte: Any, model: str, delegated: bool) -> None:
    method = load(make_pte, model, delegated)
    expected = torch.from_numpy(X.copy())
    result = MODELS[model]()(expected, torch.from_numpy(Y))
    for name, layout in ARRAYS.items():
        x, y = layout(X), Y.copy()
        (out,) = method.execute([x, y])
        np.testing.assert_array_equal(out, result, err_msg=name)
        np.testing.assert_array_equal(np.asarray(x), expected, err_msg=name)
        np.testing.assert_array_equal(y, Y, err_msg=name)


def test_what_lies_between_the_elements_stays(make_pte: Any) -> None:
    method = load(make_pte, "whole", delegated=False)
    memory = np.zeros((4, 9), np.float32)
    memory[::2, ::3] = X
    method.execute([memory[::2, ::3], Y])
    np.testing.assert_array_equal(memory[::2, ::3], X + Y)
    assert np.count_nonzero(memory) == np.count_nonzero(X + Y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.uint8])
def test_element_types(make_pte: Any, dtype: torch.dtype) -> None:
    method = load(make_pte, "whole", delegated=False, dtype=dtype)
    x, y = torch.from_numpy(X).to(dtype), torch.from_numpy(abs(Y)).to(dtype)
    expected = x + y
    method.execute([x, y])
    torch.testing.assert_close(x, expected, rtol=0, atol=0)


@pytest.mark.parametrize("array", REFUSED)
def test_what_cannot_be_written_is_refused(make_pte: Any, array: str) -> None:
    method = load(make_pte, "whole", delegated=False)
    with pytest.raises(InvalidArgumentError, match=r"input 0 is written by the method; .*try"):
        method.execute([REFUSED[array](X), Y])
    method.execute([X.copy(), REFUSED[array](Y)])  # y is only read


def test_a_failed_call_writes_nothing(make_pte: Any) -> None:
    method = load(make_pte, "whole", delegated=False)
    x = X.copy()
    with pytest.raises(InvalidArgumentError):
        method.execute([x, Y[:, :2]])
    np.testing.assert_array_equal(x, X)
