"""Sizes that data tell, symbolic numbers, values of every kind in and out, nested structures."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import edgewise
from edgewise.errors import EmitError
from support import RUNTIMES, Fn, assert_close, eager, export, lower

pytestmark = pytest.mark.matrix

Tensor = torch.Tensor
X = torch.linspace(-2, 3, 12).reshape(3, 4)
LONG = torch.cat([X, -X])
ROWS = ({0: Dim("rows", min=2, max=8)},)


def counted(x: Tensor, k: Tensor) -> Any:
    n = k.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2, torch.arange(n), torch.full((n, 2), 1.5), n


def rows_where(x: Tensor) -> Any:
    chosen = x[x[:, 0] > 0]
    return chosen @ torch.ones(4, 2), chosen.shape[0] * 2


def written_where(x: Tensor) -> Any:
    """As a flow of VITS transforms what is within its bounds."""
    inside = (x > -1) & (x < 1)
    y = torch.zeros_like(x)
    y[inside] = torch.sigmoid(x[inside])
    y[~inside] = x[~inside]
    return y


def rows_written_where(x: Tensor) -> Any:
    rows, y = x[:, 0] > 0, x.clone()
    y[rows] = x[rows] * 2
    return y


def attended(x: Tensor) -> Any:
    """The sums are over as many rows as data choose."""
    chosen = x[x[:, 0] > 0]
    return torch.softmax(x @ chosen.t(), -1) @ chosen, chosen.t() @ chosen


def by_places(x: Tensor) -> Any:
    places = torch.nonzero(x > 0)
    return x[places[:, 0], places[:, 1]] * 2, places.shape[0]


def columns_that_are_needed(x: Tensor, k: Tensor) -> Tensor:
    """Of four dimensions, as the positions of Reformer."""
    largest = k.max().item()
    torch._check(largest >= 0)
    torch._check(largest < 12)
    columns = (largest + 4) // 4
    rows, places = x[:, None, :], x[None]
    parts = [t.expand(2, 3, 3, 4)[:, :columns] for t in (rows, places)]
    return torch.cat(parts, -1).reshape(2, -1, 8)


def some_at_least(x: Tensor) -> Tensor:
    """With one element at least, a delegate may take it."""
    chosen = x[x > -9]
    torch._check(chosen.shape[0] > 0)
    return torch.sigmoid(chosen * 2)


def repeated(x: Tensor, counts: Tensor) -> Any:
    """Decomposed into indices and a selection: both have the bound."""
    y = x.repeat_interleave(counts, 1)
    torch._check(y.shape[1] <= 12)
    return y * 2, y.shape[1]


def suppress(boxes: Tensor, scores: Tensor) -> Any:
    """A detector's end: the best eight, less those that overlap a better one, as indices."""
    best, order = scores.topk(8)
    b = boxes[order]
    low = torch.maximum(b[:, None, :2], b[None, :, :2])
    high = torch.minimum(b[:, None, 2:], b[None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    overlap = both / (area[:, None] + area[None, :] - both)
    later = torch.arange(8)

    def step(i: Tensor, keep: Tensor) -> Any:
        row = overlap.index_select(0, i.reshape(1)).reshape(8)
        mine = keep.index_select(0, i.reshape(1))
        return i + 1, keep & ~((row > 0.5) & (later > i) & mine)

    start = torch.zeros((), dtype=torch.int64)
    _, keep = torch.while_loop(lambda i, keep: i < 8, step, (start, best > 0.1))
    return order[torch.nonzero(keep)[:, 0]], best[keep]


torch.manual_seed(0)
_corner, _size = torch.rand(20, 2) * 4, torch.rand(20, 2) * 3 + 1
BOXES, SCORES = torch.cat([_corner, _corner + _size], 1), torch.rand(20)

BOTH = ("ours", "peer")
# Function | calls | dynamic shapes | runtimes that take it.
CASES: dict[str, tuple[Any, list[tuple[Any, ...]], Any, tuple[str, ...]]] = {
    "nonzero": (torch.nonzero, [(X,), (X * 0,), (X.relu(),)], None, BOTH),
    "nonzero by dimension": (lambda x: torch.nonzero(x > 0, as_tuple=True), [(X,)], None, BOTH),
    "nonzero of dynamic": (lambda x: torch.nonzero(x > 0), [(X,), (LONG,)], (ROWS,), BOTH),
    "argwhere": (lambda x: torch.argwhere(x > 0), [(X,)], None, BOTH),
    "masked_select": (lambda x: x.masked_select(x > 0) * 2, [(X,), (-X.abs(),)], None, BOTH),
    "a mask": (lambda x: x[x > 1] + 1, [(X,), (X - 9,)], None, BOTH),
    "rows by a mask": (rows_where, [(X,), (-X.abs(),)], None, BOTH),
    "rows of dynamic by a mask": (rows_where, [(X,), (LONG,)], (ROWS,), BOTH),
    "written by a mask": (written_where, [(X,), (X * 9,), (X * 0,)], None, BOTH),
    "rows written by a mask": (rows_written_where, [(X,), (-X.abs(),)], None, BOTH),
    "sums over rows by a mask": (attended, [(X,), (X.abs(),)], None, BOTH),
    "by places": (by_places, [(X,), (X * 0,)], None, BOTH),
    "joined": (lambda x: torch.cat([x[x > 0], x[x < 0] * 2]), [(X,), (-X,)], None, BOTH),
    "one at least": (some_at_least, [(X,), (X - 8,)], None, BOTH),
    "item": (counted, [(X, torch.tensor(k)) for k in (2, 0, 3)], None, BOTH),
    "item of dynamic": (
        counted,
        [(X, torch.tensor(2)), (LONG, torch.tensor(5))],
        ((ROWS[0], None),),
        BOTH,
    ),
    "repeats": (
        repeated,
        [(X, torch.tensor(counts)) for counts in ([1, 0, 2, 1], [0, 0, 0, 0], [3, 3, 3, 3])],
        None,
        BOTH,
    ),
    "columns by the largest": (
        columns_that_are_needed,
        [(X, torch.tensor([k, 1])) for k in (9, 0, 4)],
        None,
        BOTH,
    ),
    "item that is a float": (lambda x: x * x.sum().item(), [(X,), (-X,)], None, BOTH),
    "any size": (lambda x: (x @ x.t(), x[x > 0]), [(X,), (LONG,)], (({0: Dim.AUTO},),), ("ours",)),
    "suppression in a loop": (
        suppress,
        [(BOXES, SCORES), (BOXES, SCORES.flip(0)), (BOXES * 0.1, SCORES * 0.05)],
        None,
        BOTH,
    ),
    "an int": (lambda x, k: x * k, [(X, 3)], None, BOTH),
    "a float": (lambda x, k: x * k, [(X, 3.5)], None, BOTH),
    "a bool": (lambda x, k: x * 2 if k else x, [(X, True)], None, BOTH),
    "a string": (lambda x, k: x * 2 if k == "a" else x, [(X, "a")], None, ("ours",)),
    "none": (lambda x, k: x * 2 if k is None else x, [(X, None)], None, BOTH),
    "a symbolic int": (
        lambda x, k: (x * k, k + 1, k * 2),
        [(X, 3), (X, 5)],
        ((None, Dim.DYNAMIC),),
        ("ours",),
    ),
    "values out": (lambda x: (x, 1, 2.5, True, None, "s", [x + 1]), [(X,)], None, BOTH),
    "sizes out": (
        lambda x: (x * 2, x.shape[0], x.shape[0] * 2 + 1, x.shape[0] // 2),
        [(X,), (LONG,)],
        (ROWS,),
        BOTH,
    ),
}
RUNS = [(n, r) for n, case in CASES.items() for r in case[3]]


@pytest.mark.peer
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize(("name", "runtime"), RUNS, ids=[f"{n}-{r}" for n, r in RUNS])
def test_equal_to_eager(name: str, runtime: str, partitioner: str | None) -> None:
    function, calls, shapes, _ = CASES[name]
    module = Fn(function)
    pte = lower(
        module, calls[0], dynamic_shapes=shapes and (shapes[0],), partitioner=partitioner
    ).buffer
    for got, inputs in zip(RUNTIMES[runtime](pte, *calls), calls, strict=True):
        assert_close(got, eager(module, inputs))


def test_a_size_without_a_bound_is_refused() -> None:
    def unbounded(k: Tensor) -> Tensor:
        return torch.zeros(k.item()) + 1

    with pytest.raises(EmitError, match=r"must have a bound.*try torch\._check"):
        lower(Fn(unbounded), (torch.tensor(2),))


# --- structures -----------------------------------------------------------------------------


@dataclass
class Pair:
    left: Tensor
    right: Any


torch.utils._pytree.register_dataclass(Pair, serialized_type_name="edgewise_test.Pair")


class Structures(nn.Module):
    def forward(self, d: Any, pair: Any, scale: float = 2.0) -> Any:
        total = d["a"] + d["b"][0] + pair.left
        return {
            "pair": Pair(total * scale, {"none": None, "list": [d["a"] + 1, 3]}),
            "ordered": OrderedDict(z=total - 1, a=(total, "text")),
        }


def test_structures() -> None:
    a, b, left = (torch.full((2,), float(i)) for i in range(1, 4))
    inputs = ({"a": a, "b": (b, None)}, Pair(left, 4))
    module = Structures()
    program = torch.export.export(module, inputs, {"scale": 2.0})
    model = edgewise.runtime.load(edgewise.to_edge(program).to_executorch().buffer)
    given = {"b": (b.numpy(), None), "a": a.numpy()}
    got = model(given, {"left": left.numpy(), "right": 4}, scale=2.0)
    want = module(*inputs, scale=2.0)
    assert set(got) == {"pair", "ordered"}
    assert set(got["pair"]) == {"left", "right"}  # a class of the model's own comes as a dict
    assert isinstance(got["ordered"], OrderedDict)
    assert got["pair"]["right"]["none"] is None
    assert got["pair"]["right"]["list"][1] == 3
    assert got["ordered"]["a"][1] == "text"
    np.testing.assert_array_equal(got["pair"]["left"], want["pair"].left.numpy())
    np.testing.assert_array_equal(got["ordered"]["z"], want["ordered"]["z"].numpy())


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_methods_share_weights(partitioner: str | None) -> None:
    from support import partitioners

    linear = nn.Linear(256, 256)
    modules = {
        "encode": nn.Sequential(linear, nn.ReLU()),
        "decode": nn.Sequential(linear, nn.Tanh()),
    }
    x = torch.rand(1, 256)

    def size(names: list[str]) -> int:
        programs = {n: export(modules[n], (x,)) for n in names}
        edge = edgewise.to_edge_transform_and_lower(
            programs, partitioner=partitioners(partitioner), constant_methods={"bound": [1, x]}
        )
        pte = edge.to_executorch().buffer
        for name in names:
            got = RUNTIMES["ours"](pte, (x,), method=name)
            assert_close(got[0], eager(modules[name], (x,)))
        return len(pte)

    assert size(["encode", "decode"]) < size(["encode"]) + 8000  # the matrix has 262144 bytes
