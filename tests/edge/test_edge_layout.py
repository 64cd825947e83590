"""Memory formats follow rules, not the strides that eager mode happens to produce."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from edge_support import assert_equals_eager, edge
from torch import nn

from edgewise.edge.layout import CHANNELS_LAST, dim_order
from support import Fn, assert_close, eager64, lower, run_ours, run_peer

PLAIN = (0, 1, 2, 3)
IMAGE = torch.randn(1, 4, 6, 5)
LAST = IMAGE.to(memory_format=torch.channels_last)

# Module | inputs | order of dimensions of the result.
CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...], tuple[int, ...]]] = {
    "convolution": (nn.Conv2d(4, 6, 3), (LAST,), CHANNELS_LAST),
    "convolution, plain input": (nn.Conv2d(4, 6, 3), (IMAGE,), PLAIN),
    "convolution with channels-last weights": (
        nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        (IMAGE,),
        PLAIN,
    ),
    "pooling": (nn.MaxPool2d(2), (LAST,), CHANNELS_LAST),
    "elementwise": (Fn(lambda x: x.relu() * 2), (LAST,), CHANNELS_LAST),
    "sum of two": (Fn(lambda x, y: x + y), (LAST, LAST), CHANNELS_LAST),
    "sum with another order": (Fn(lambda x, y: x + y), (LAST, IMAGE), PLAIN),
    "sum with a vector": (Fn(lambda x, y: x + y), (LAST, torch.randn(5)), CHANNELS_LAST),
    "sum with one value per channel": (
        Fn(lambda x, y: x + y),
        (LAST, torch.randn(1, 4, 1, 1)),
        CHANNELS_LAST,
    ),
    "permute": (Fn(lambda x: x.permute(0, 2, 3, 1)), (LAST,), PLAIN),
    "a permuted plain tensor": (Fn(lambda x: x.permute(0, 3, 1, 2)), (IMAGE,), PLAIN),
    "view": (Fn(lambda x: x.reshape(1, 2, 12, 5)), (LAST,), PLAIN),
    "flatten": (Fn(lambda x: x.flatten(1)), (LAST,), (0, 1)),
    "to channels-last": (
        Fn(lambda x: x.contiguous(memory_format=torch.channels_last)),
        (IMAGE,),
        CHANNELS_LAST,
    ),
    "to plain": (Fn(lambda x: x.contiguous()), (LAST,), PLAIN),
    "conversion keeps": (Fn(lambda x: x.double().float() + 1), (LAST,), CHANNELS_LAST),
    "conversion to": (
        Fn(lambda x: x.to(torch.float64, memory_format=torch.channels_last).float()),
        (IMAGE,),
        CHANNELS_LAST,
    ),
    "elements of a tuple": (
        Fn(
            lambda x: (
                torch.max_pool2d(x, 2)
                + torch.nn.functional.max_pool2d(x, 2, return_indices=True)[0]
            )
        ),
        (LAST,),
        CHANNELS_LAST,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name: str) -> None:
    module, inputs, expected = CASES[name]
    program = edge(module, inputs)
    (result,) = next(iter(reversed(program.graph.nodes))).args[0]
    assert dim_order(result.meta["val"]) == expected
    assert_equals_eager(program, module, inputs, 1e-5)


@pytest.mark.parametrize("run", [run_ours, pytest.param(run_peer, marks=pytest.mark.peer)])
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("name", CASES)
def test_elements(name: str, partitioner: str | None, run: Any) -> None:
    module, inputs, _ = CASES[name]
    if run is run_peer and (name, partitioner) in PEER_REFUSES:
        pytest.skip(
            "the peer's kernels take operands of one order only, and views only of plain ones"
        )
    pte = lower(module, inputs, partitioner=partitioner).buffer
    (outputs,) = run(pte, inputs)
    assert_close(outputs, eager64(module, inputs))


PEER_REFUSES = {
    ("sum with another order", None),
    ("sum with a vector", None),
    ("sum with one value per channel", None),
    ("permute", None),
    ("view", None),
    ("view", "xnnpack"),
    ("flatten", None),
    ("flatten", "xnnpack"),
}
