"""Operators that write arguments, also in programs that somebody has decomposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
import edgewise.edge.cache_operators  # (defines torch.ops.edgewise)
from edgewise import runtime
from edgewise.runtime import Runtime

Tensor = torch.Tensor


@torch.library.custom_op("edgewise_test::double_", mutates_args={"x"})
def double_(x: Tensor) -> None:
    x.mul_(2)


@runtime.register_kernel("edgewise_test::double_")
def _(x: Any) -> None:
    x *= 2


@torch.library.custom_op("edgewise_test::swap_", mutates_args={"x", "y"})
def swap_(x: Tensor, y: Tensor, times: int) -> None:
    for _ in range(times):
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)


@runtime.register_kernel("edgewise_test::swap_")
def _(x: Any, y: Any, times: int) -> None:
    for _ in range(times):
        kept = x.copy()
        x[...] = y
        y[...] = kept


class Net(torch.nn.Module):
    def __init__(self, call: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.call = call
        self.register_buffer("state", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("cache", torch.zeros(1, 6, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self, x)


def of_a_copy(net: Net, x: Tensor) -> Tensor:
    y = x + 1
    double_(y)
    return y - x


def of_a_buffer(net: Net, x: Tensor) -> Tensor:
    before = net.state.sum()
    double_(net.state)
    return net.state + x + before


def of_a_slice(net: Net, x: Tensor) -> Tensor:
    double_(net.state[1:])
    return net.state + x


def of_a_column(net: Net, x: Tensor) -> Tensor:
    double_(net.state[:, 2])
    return net.state + x


def of_a_transposed_view(net: Net, x: Tensor) -> Tensor:
    double_(net.state.t()[1:3])
    return net.state + x


def of_the_whole_by_another_name(net: Net, x: Tensor) -> Tensor:
    double_(net.state.view(3, 4))
    return net.state + x


def of_two_rows(net: Net, x: Tensor) -> Tensor:
    swap_(net.state[0], net.state[2], 1)
    return net.state * x


def of_two_tensors(net: Net, x: Tensor) -> Tensor:
    y = x * 3
    swap_(net.state, y, 3)
    return y + net.state * 2


def of_an_input(net: Net, x: Tensor) -> Tensor:
    double_(x)
    return x + net.state


def of_a_cache(net: Net, x: Tensor) -> Tensor:
    rows = x.view(1, 3, 1, 4)
    torch.ops.edgewise.update_cache(rows, net.cache, 2)
    return torch.ops.edgewise.custom_sdpa(rows, net.cache, net.cache, 2, None, 0.0, True)


def of_a_cache_twice(net: Net, x: Tensor) -> Tensor:
    rows = x.view(1, 3, 1, 4)
    torch.ops.edgewise.update_cache(rows, net.cache, 0)
    once = net.cache.sum()
    torch.ops.edgewise.update_cache(rows + once, net.cache, 3)
    return net.cache + once


def of_a_cache_of_this_call(net: Net, x: Tensor) -> Tensor:
    cache = torch.zeros(1, 5, 1, 4)
    torch.ops.edgewise.update_cache(x.view(1, 3, 1, 4), cache, 1)
    return cache + 0.0


def of_an_input_as_a_cache(net: Net, x: Tensor) -> Tensor:
    cache = x.view(1, 3, 1, 4)
    torch.ops.edgewise.update_cache(cache[:, :1] * 2, cache, 1)
    return cache + net.state.view(1, 3, 1, 4)


def of_a_constant(net: Net, x: Tensor) -> Tensor:
    y = torch.ones(3, 4)
    double_(y)
    double_(y[1:])
    return x + y


CASES = [
    of_a_constant,
    of_a_cache_of_this_call,
    of_an_input_as_a_cache,
    of_a_copy,
    of_a_buffer,
    of_a_slice,
    of_a_column,
    of_a_transposed_view,
    of_the_whole_by_another_name,
    of_two_rows,
    of_two_tensors,
    of_an_input,
    of_a_cache,
    of_a_cache_twice,
]


@pytest.mark.parametrize("decomposed", [False, True], ids=["exported", "decomposed"])
@pytest.mark.parametrize("call", CASES, ids=lambda call: call.__name__)
def test_operators_that_write(call: Any, decomposed: bool) -> None:
    x = torch.linspace(-1, 2, 12).reshape(3, 4)
    program = torch.export.export(Net(call), (x.clone(),))
    if decomposed:
        program = program.run_decompositions({})
    lowered = edgewise.to_edge_transform_and_lower(program).to_executorch()
    method = Runtime.get().load_program(lowered.buffer).load_method("forward")
    net = Net(call)
    for _ in range(2):  # the second call sees what the first one left
        given, got_of = x.clone(), x.numpy().copy()
        want = net(given)
        (got,) = method.execute([got_of])
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got_of, given.numpy())


def test_a_program_of_writes_to_caches_and_to_others_is_traced() -> None:
    """The trace wraps the operators over caches, too."""

    def both(net: Net, x: Tensor) -> Tensor:
        rows = x.view(1, 3, 1, 4)
        torch.ops.edgewise.update_cache(rows, net.cache, 1)
        net.cache[0, 0, 0, 1:3].mul_(0.5)
        net.cache.view(6, 4)[2:4].add_(1)
        torch.ops.edgewise.update_cache(rows * 2, net.cache, 3)
        return net.cache + 0.0

    x = torch.linspace(-1, 2, 12).reshape(3, 4)
    lowered = edgewise.to_edge_transform_and_lower(torch.export.export(Net(both), (x,)))
    method = Runtime.get().load_program(lowered.to_executorch().buffer).load_method("forward")
    net = Net(both)
    for _ in range(2):
        want = net(x)
        (got,) = method.execute([x.numpy()])
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)
