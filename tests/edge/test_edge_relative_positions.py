"""Attention by relative positions: rows of a product are cut, instead of `gather`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from edge_support import edge, spelling

from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewise.edge.indices import by_distance
from support import Fn, assert_close, lower, operators, run_ours, run_peer

X = torch.randn(3, 4, 8)
C = torch.randn(3, 8, 7)


def far(rows: int, columns: int, shift: int = 3, most: int = 6, factor: int = 1) -> torch.Tensor:
    """Distances [rows, columns], clamped as models do with those that they were not trained for."""
    return ((torch.arange(columns) - torch.arange(rows)[:, None]) * factor + shift).clamp(0, most)


def buckets(rows: int, columns: int) -> torch.Tensor:
    """One for each near distance, and one for many far ones."""
    return (far(rows, columns, 0, 100, -1).double() + 1).log2().round().long()


def batches(i: torch.Tensor) -> torch.Tensor:
    return i.expand(3, *i.shape)


# Function of x and c; x; c.
CUT: dict[str, tuple[Any, torch.Tensor, torch.Tensor]] = {
    "bmm": (lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 4))), X, C),
    "matmul": (
        lambda x, c: (x @ c).gather(-1, far(4, 5).expand(2, 3, 4, 5)),
        torch.randn(2, 3, 4, 8),
        torch.randn(1, 3, 8, 7),
    ),
    "one matrix": (lambda x, c: (x @ c).gather(-1, far(4, 4)), X[0], C[0]),
    "a matrix for a batch": (lambda x, c: (x @ c).gather(2, batches(far(4, 4))), X, C[0]),
    "backwards": (
        lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 6, factor=-1))),
        X,
        C,
    ),
    "buckets": (lambda x, c: torch.bmm(x, c).gather(-1, batches(buckets(4, 9))), X, C),
    "steps of two": (lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 4, 3, 6, 2))), X, C),
    "a row for a query": (lambda x, c: (x @ c).gather(-1, batches(far(1, 6, 0))), X[:, :1], C),
    "one column": (lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 1))), X, C),
    "views between": (
        lambda x, c: torch.bmm(x, c).view(1, 3, 4, 7).gather(-1, far(4, 4).expand(1, 3, 4, 4)),
        X,
        C,
    ),
    "views of other rows": (
        lambda x, c: torch.bmm(x, c).view(1, 12, 7).gather(-1, far(12, 12)[None]),
        X,
        C,
    ),
    "transposed weights": (
        lambda x, c: torch.bmm(x, c.transpose(1, 2)).gather(-1, batches(far(4, 4))),
        X,
        C.transpose(1, 2).contiguous(),
    ),
    "infinite": (
        lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 4))),
        X.clone().index_fill_(1, torch.tensor([2]), math.inf),
        C.abs(),
    ),
}
GATHERED: dict[str, tuple[Any, torch.Tensor, torch.Tensor]] = {
    "not by distance": (
        lambda x, c: torch.bmm(x, c).gather(-1, batches(torch.tensor([[0, 1]] * 3 + [[2, 0]]))),
        X,
        C,
    ),
    "others in each matrix": (
        lambda x, c: torch.bmm(x, c).gather(-1, torch.stack([far(4, 4, i) for i in range(3)])),
        X,
        C,
    ),
    "read as a whole, too": (
        lambda x, c: (lambda y: y.gather(-1, batches(far(4, 4))).sum() + y)(torch.bmm(x, c)),
        X,
        C,
    ),
    "no constant": (lambda x, c: torch.bmm(x, x.mT).gather(-1, batches(far(4, 4, 1, 3))), X, C),
    "along rows": (lambda x, c: torch.bmm(x, c).gather(1, batches(far(4, 7, 0, 3))), X, C),
    "of some rows": (lambda x, c: torch.bmm(x, c).gather(-1, batches(far(3, 4))), X, C),
    "many columns": (lambda x, c: torch.bmm(x, c).gather(-1, batches(far(4, 40))), X, C),
    "a view of half rows": (
        lambda x, c: torch.bmm(x, c)[..., :6].reshape(3, 8, 3).gather(-1, batches(far(8, 3, 2, 2))),
        X,
        C,
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_rows_are_cut(name: str) -> None:
    function, x, c = CUT[name]
    program = lower(Fn(function, c=c).eval(), (x,))
    assert operators(program.buffer) == ["delegate"]
    assert_close(run_ours(program.buffer, (x,))[0], (function(x, c),))


@pytest.mark.peer
def test_the_peer_cuts_them() -> None:
    function, x, c = CUT["bmm"]
    pte = lower(Fn(function, c=c).eval(), (x,)).buffer
    assert_close(run_peer(pte, (x,))[0], (function(x, c),))


@pytest.mark.parametrize("name", GATHERED)
def test_others_are_gathered(name: str) -> None:
    function, x, c = GATHERED[name]
    assert "gather.default" in spelling(edge(Fn(function, c=c).eval(), (x,)))


class Positions(torch.nn.Module):
    """Of which dropout comes before a linear layer, as in DeBERTa."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(7, 8))
        self.norm, self.key = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.key(self.dropout(self.norm(self.positions)))
        return (x @ keys.mT).gather(-1, batches(far(4, 4)))


@pytest.mark.parametrize("is_qat", [False, True])
def test_dropout_of_weights_is_no_hindrance(is_qat: bool) -> None:
    """While a program is still trained, its dropouts stay."""
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_qat=is_qat))
    graph = torch.export.export(Positions().eval(), (X,)).module()
    want = graph(X)
    quantizer.transform_for_annotation(graph)
    torch.testing.assert_close(graph(X), want)
    called = {str(node.target) for node in graph.graph.nodes}
    assert ("aten.gather.default" in called) == ("aten.dropout.default" in called) == is_qat


@pytest.mark.parametrize(
    ("indices", "known"),
    [
        (torch.tensor([[1, 2], [0, 1]]), [0, 1, 2]),
        (torch.tensor([[1, 2]]), [1, 2]),
        (torch.tensor([[1], [2]]), [2, 1]),
        (torch.tensor([[1, 2], [2, 2]]), None),
        (torch.tensor([[3]]), None),
        (torch.tensor([1, 2]), None),
        (torch.zeros(0, 2, 2, dtype=torch.int64), None),
        (torch.zeros(2, 2), None),
    ],
)
def test_distances(indices: torch.Tensor, known: list[int] | None) -> None:
    found = by_distance(indices)
    assert (found and found.picked.tolist()) == known
