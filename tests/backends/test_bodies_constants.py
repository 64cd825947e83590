"""Constants of branches and loops after quantizing, where the export lifts none of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer
from edgewise.edge.bodies import _value_of
from edgewise.errors import ExportError
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e
from support import Fn, run_ours

STEPS = (3.0, 1.0, 2.0)


def branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x * torch.tensor(STEPS), lambda x: x - 1, (x,))


def loop(x: torch.Tensor) -> Any:
    def step(x: torch.Tensor) -> Any:
        smaller = x + torch.tensor(STEPS)
        return (torch.where(smaller > 2.0, smaller + 1.0, smaller * torch.tensor(STEPS[::-1])),)

    return torch.while_loop(lambda x: x.sum() < 10.0, step, (x,))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("function", [branch, loop], ids=lambda f: f.__name__)
def test_they_keep_their_values(function: Any, target: str) -> None:
    spec, inputs = EthosUCompileSpec(target), (torch.tensor([0.1, 0.7, 0.4]),)
    exported = torch.export.export(Fn(function), inputs)
    prepared = prepare_pt2e(exported.module(), EthosUQuantizer(spec))
    for x in (torch.tensor([0.9, 0.2, 0.1]), torch.tensor([2.0, 4.0, 5.0]), *inputs):
        prepared(x)
    converted = convert_pt2e(prepared)
    edge = edgewise.to_edge_transform_and_lower(
        torch.export.export(converted, inputs), partitioner=[EthosUPartitioner(spec)]
    )
    (found,) = run_ours(edge.to_executorch().buffer, inputs)
    # Of the converted module: torch's own program of it computes with fake tensors.
    expected = torch.utils._pytree.tree_leaves(converted(*inputs))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=0.05, rtol=0)


def test_a_value_that_is_nowhere_is_said() -> None:
    program = torch.export.export(nn.ReLU(), (torch.ones(3),))
    fake = next(iter(program.graph.nodes)).meta["val"]
    with pytest.raises(ExportError, match=r"\[c\] constants of a branch .* \[3\]; try register"):
        _value_of(program, "c", fake)
