"""Rules about sizes that must be known before, or small: what a row says of an exported node."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from edgewise.backends.xnnpack.operators import TABLE
from edgewise.edge.program import Constants
from support import Fn, export

AUTO = Dim.AUTO
MATRIX = torch.randn(3, 5)
IMAGE = torch.randn(1, 4, 8, 6)
LONG = torch.zeros(1025, 1, 5)

# Row: module, inputs, symbolic dimensions of the first input, and the refusal; "" for none.
Case = tuple[nn.Module, tuple[torch.Tensor, ...], tuple[int, ...], str]
ROWS = {
    "sum": lambda x, d: x.sum(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "max_dim": lambda x, d: x.max(d)[0],
    "min_dim": lambda x, d: x.min(d)[0],
    "var": lambda x, d: x.var(d),
    "std": lambda x, d: x.std(d),
    "var_mean": lambda x, d: torch.var_mean(x, d),
    "std_mean": lambda x, d: torch.std_mean(x, d),
    "linalg_vector_norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
    "logsumexp": lambda x, d: x.logsumexp(d),
}


def along(function: Any, dim: int) -> nn.Module:
    return Fn(lambda x: function(x, dim))


CASES: dict[str, Case] = {
    **{
        f"{name}: along a symbolic size": (
            along(function, 0),
            (MATRIX,),
            (0,),
            "the reduced sizes are static; got",
        )
        for name, function in ROWS.items()
    },
    **{
        f"{name}: beside a symbolic size": (along(function, 1), (MATRIX,), (0,), "")
        for name, function in ROWS.items()
    },
    "group_norm: channels": (
        Fn(lambda x: nn.functional.group_norm(x, 2)),
        (IMAGE,),
        (1,),
        "a static number of channels; got",
    ),
    "instance_norm: channels": (
        Fn(nn.functional.instance_norm),
        (IMAGE,),
        (1,),
        "a static number of channels; got",
    ),
    "group_norm: size": (nn.GroupNorm(2, 4), (IMAGE,), (2,), ""),
    "max_pool2d: ceil_mode": (
        nn.MaxPool2d(3, 2, ceil_mode=True),
        (IMAGE,),
        (2, 3),
        "ceil_mode=False, or static sizes; got ceil_mode=True",
    ),
    "max_pool2d: ceil_mode of a symbolic batch": (
        nn.MaxPool2d(3, 2, ceil_mode=True),
        (IMAGE,),
        (0,),
        "",
    ),
    "upsample_bilinear2d: size": (
        nn.Upsample(scale_factor=2, mode="bilinear"),
        (IMAGE,),
        (2, 3),
        "static sizes; got size",
    ),
    "upsample_bilinear2d: batch": (nn.Upsample(size=(9, 9), mode="bilinear"), (IMAGE,), (0,), ""),
    "upsample_nearest: size": (
        nn.Upsample(scale_factor=2),
        (IMAGE,),
        (2, 3),
        "static sizes; got size",
    ),
    "unfold_copy: size": (
        Fn(lambda x: torch.ops.aten.unfold_copy(x, 0, 2, 1)),
        (MATRIX,),
        (0,),
        "windows of a static size, at most 64 or of as many steps; got",
    ),
    "unfold_copy: beside a symbolic size": (
        Fn(lambda x: torch.ops.aten.unfold_copy(x, 1, 2, 1)),
        (torch.randn(2, 5, 16),),
        (0,),
        "",
    ),
    "unfold_copy: windows": (
        Fn(lambda x: torch.ops.aten.unfold_copy(x, 1, 70, 1)),
        (torch.randn(2, 200, 16),),
        (0,),
        "windows of a static size, at most 64 or of as many steps; got 70",
    ),
    "roll: size": (Fn(lambda x: x.roll(1, 0)), (MATRIX,), (0,), "static sizes and shifts; got"),
    "slice_scatter: size": (
        Fn(lambda x: torch.slice_scatter(x, x[:1] * 2, 0, 0, 1)),
        (MATRIX,),
        (0,),
        "a static range of a static size; got",
    ),
    "select_scatter: size": (
        Fn(lambda x: torch.select_scatter(x, x[0] * 2, 0, 1)),
        (MATRIX,),
        (0,),
        "the size along dim is static; got",
    ),
    "select_scatter: beside a symbolic size": (
        Fn(lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 1)),
        (MATRIX,),
        (0,),
        "",
    ),
    "select_scatter: several symbolic sizes": (
        Fn(lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 1)),
        (IMAGE,),
        (0, 2, 3),
        "",
    ),
    "lstm: steps": (
        nn.LSTM(5, 4),
        (LONG,),
        (),
        "a batch of sequences of static length, at most 1024; got 1025 steps",
    ),
    "gru: steps": (
        nn.GRU(5, 4),
        (LONG,),
        (),
        "a batch of sequences of static length, at most 1024; got 1025 steps",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    module, inputs, dims, reason = CASES[name]
    shapes: Any = (dict.fromkeys(dims, AUTO), *itertools.repeat({}, len(inputs) - 1))
    if isinstance(module, Fn):
        shapes = (shapes,)
    program = export(module, inputs, dynamic_shapes=shapes)
    (row,) = [row for row in TABLE.definitions if row.name == name.partition(":")[0]]
    (node,) = [n for n in program.graph.nodes if n.target in row.targets]
    reasons = [str(refusal) for refusal in row.refusals(node, Constants(program))]
    if reason:
        assert any(r.startswith(reason) for r in reasons), reasons
    else:
        assert not reasons
