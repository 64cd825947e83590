"""Open sizes of which the export has checks that no range tells, and examples whose sizes are equal
by chance: a batch of two, and two heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from support import Fn, assert_close, eager64

Shape = tuple[int, ...]
PARTITIONERS: dict[str, Callable[[], list[Any]]] = {
    "kernels": list,
    "xnnpack": lambda: [XnnpackPartitioner()],
}


@dataclass(frozen=True)
class Case:
    """dims: which of the example's sizes are open. others: shapes that run, too."""

    module: nn.Module
    example: Shape
    dims: dict[int, Any]
    others: tuple[Shape, ...] = ()


class Attention(nn.MultiheadAttention):
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(*inputs * 3, need_weights=False)[0]


HALVES = torch.tensor([0.5, 0.25])
AUTO, TO_TEN = Dim.AUTO, Dim.AUTO(min=3, max=10)
CASES: dict[str, Case] = {
    "half of the batch is one": Case(
        Fn(lambda x: F.glu(x, 0) @ x.transpose(-1, -2)), (2, 4, 4), {0: AUTO}
    ),
    "every other row is one of two": Case(
        Fn(lambda x, c: x[:, :100:2] * c, c=torch.rand(2, 2, 8)),
        (2, 3, 8),
        {1: AUTO},
        ((2, 4, 8),),
    ),
    "norm of every other number, two": Case(
        Fn(lambda x: F.layer_norm(x[..., ::2], (2,))), (3, 4), {1: AUTO}, ((3, 3),)
    ),
    "channels of a norm, every other": Case(
        Fn(lambda x, m, v: F.batch_norm(x.sigmoid()[:, ::2], m, v), m=torch.zeros(2), v=HALVES),
        (2, 4, 3, 3),
        {1: AUTO},
        ((2, 3, 3, 3),),
    ),
    "channels of a norm, up to ten": Case(
        Fn(lambda x, m, v: F.batch_norm(x.sigmoid()[:, ::2], m, v), m=torch.zeros(2), v=HALVES),
        (2, 4, 3, 3),
        {1: TO_TEN},
        ((2, 3, 3, 3),),
    ),
    "rows of three, one": Case(
        Fn(lambda x: x.unflatten(0, (-1, 3)).squeeze(0) * 2), (3,), {0: AUTO}
    ),
    "rows of three, up to ten numbers": Case(
        Fn(lambda x: (x * 2).unflatten(0, (-1, 3)).sigmoid()), (6, 2), {0: TO_TEN}, ((3, 2), (9, 2))
    ),
    "what two ends share": Case(Fn(lambda x: x[-2:2].sigmoid() * 2), (2, 3), {0: AUTO}, ((3, 3),)),
    "attention of two heads, a batch of two": Case(
        Attention(2, 2, batch_first=True).eval(), (2, 2, 2), {0: AUTO}, ((3, 2, 2), (5, 2, 2))
    ),
    "turned, a batch of two": Case(
        Fn(lambda x: F.group_norm(x.unbind(3)[1].permute(3, 2, 1, 0) * 1, 4)),
        (2, 8, 4, 2, 8),
        {0: AUTO},
        ((3, 8, 4, 2, 8),),
    ),
}


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_eager_does(name: str, partitioner: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    example = (torch.randn(case.example),)
    exported = torch.export.export(case.module, example, dynamic_shapes=((case.dims,),))
    lowered = edgewise.to_edge_transform_and_lower(
        exported, partitioner=PARTITIONERS[partitioner]()
    )
    model = edgewise.load(lowered.to_executorch().buffer)
    for shape in (case.example, *case.others):
        inputs = (torch.randn(shape),)
        assert_close([torch.as_tensor(model(*inputs))], eager64(case.module, inputs))
