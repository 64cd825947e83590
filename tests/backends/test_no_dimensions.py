"""Operators of tensors without dimensions, of which PyTorch takes 0 and -1 for a dimension: every
backend computes them or leaves them to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from support import Fn, needs, quantized_for

# Function of one number | of what it makes.
REDUCED: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: (x.sum(0), x.sum(-1, keepdim=True)),
    "mean": lambda x: (x.mean(0), x.mean(-1, keepdim=True)),
    "amax": lambda x: (x.amax(0), x.amin(-1, keepdim=True)),
    "max": lambda x: (x.max(0)[0], x.min(-1)[0]),
    "argmax": lambda x: (x.argmax(0), x.argmin(-1)),
    "variance": lambda x: x.var(0, unbiased=False),
    "variance and mean": lambda x: torch.var_mean(x, 0, unbiased=False),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp(-1, keepdim=True)),
    "norm": lambda x: (x.norm(3, 0), torch.linalg.vector_norm(x, dim=0, keepdim=True)),
    "product": lambda x: x.prod(0),
    "any": lambda x: ((x > 0).any(0), (x > 9).all(0)),
}
OTHERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: (x.softmax(0), x.log_softmax(-1)),
    "flip": lambda x: x.flip([0]) * 2,
    "roll": lambda x: x.roll(1) * 2,
    "unfold": lambda x: x.unfold(0, 1, 1) * 2,
    "scans": lambda x: (x.cumsum(0), x.cumprod(0)),
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.tensor(0)),
    "topk": lambda x: x.topk(1, 0)[0] * 2,
    "times a constant": lambda x: (x * torch.tensor(0.7), torch.tensor(2.0) - x),
    "with more": lambda x: x + torch.tensor([0.5, 2.0]),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    "shapes": lambda x: (x.view(1, 1) * 2, x.expand(3, 2) * 2, torch.stack([x, x * 2])),
    "activations": lambda x: (F.gelu(x), F.hardswish(x), F.softplus(x), x.clamp(-1, 1)),
}
FUNCTIONS = REDUCED | OTHERS
IN_FLOATING_POINT = FUNCTIONS | {"deviation": lambda x: x.std(0, unbiased=False)}
NUMBER = torch.tensor(-1.5)
TARGETS = [
    "xnnpack",
    "ethos-u55-128",
    "ethos-u85-256",
    pytest.param("neutron-imxrt700-reference", marks=pytest.mark.litert),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("name", IN_FLOATING_POINT)
def test_in_floating_point(name: str, dtype: torch.dtype) -> None:
    x = NUMBER.to(dtype)
    module = Fn(IN_FLOATING_POINT[name])
    expected = tree_leaves(module(x))
    lowered = edgewise.to_edge_transform_and_lower(
        torch.export.export(module, (x,)), partitioner=[XnnpackPartitioner()]
    )
    got = edgewise.load(lowered.to_executorch().buffer)(x)
    bound = 1e-6 if dtype == torch.float32 else 2e-3
    for y, wanted in zip(tree_leaves(got), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(y), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_integers(name: str, target: str) -> None:
    needs(target)
    batches = [(NUMBER,), (-NUMBER,)]
    program = quantized_for(target, Fn(FUNCTIONS[name]), batches)
    compiled = edgewise.compile(program, backend=target, verbose=False)
    with torch.no_grad():
        expected = program.module()(NUMBER)
    got = edgewise.load(compiled.buffer)(NUMBER)
    for y, wanted in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        torch.testing.assert_close(torch.as_tensor(y), wanted, rtol=0.02, atol=0.02)
