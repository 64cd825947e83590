"""Small modules that reach the corners of the format, on both runtimes and from both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from support import (
    Fn,
    assert_close,
    eager,
    eager64,
    export,
    lower,
    partitioners,
    run_ours,
    run_peer,
)

pytestmark = pytest.mark.peer

M = torch.linspace(-2, 3, 12).reshape(3, 4)
IMAGE = torch.linspace(-2, 3, 240).reshape(2, 4, 6, 5)
LAST = IMAGE.to(memory_format=torch.channels_last)
IDS = torch.tensor([[1, 5, 2], [0, 3, 3]])


class Embed(nn.Module):
    """Ids in, a mask made of them, a softmax and the best token out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.linear = nn.Embedding(8, 6), nn.Linear(6, 8)

    def forward(self, ids: torch.Tensor) -> Any:
        x = self.table(ids) + torch.arange(3)[:, None]
        x = x.masked_fill((ids == 0)[..., None], 0.0)
        scores = self.linear(x).softmax(-1)
        return {"best": scores.argmax(-1), "scores": scores}


# Module | inputs. Undelegated operators between delegated ones, types, orders, several outputs.
CASES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "undelegated in between": (
        nn.Sequential(nn.Linear(4, 4), Fn(torch.atan), nn.Linear(4, 2)),
        (M,),
    ),
    "undelegated beside": (Fn(lambda x: (x * 2 + torch.atan(x)) * x), (M,)),
    "ids": (Embed(), (IDS,)),
    "integers": (Fn(lambda x, y: (x + y * 2, x // 2, x % 3, x.sum(), x > y)), (IDS, IDS.flip(0))),
    "lists of outputs": (
        Fn(lambda x: (*torch.ops.aten.split_copy.Tensor(x, 3, 1), x.roll(1, 0), x.roll(5))),
        (M,),
    ),
    "a list of one output": (Fn(lambda x: torch.ops.aten.split_copy.Tensor(x, 4, 1)[0] * 2), (M,)),
    "booleans": (
        Fn(lambda x: (x > 0, (x > 0) & (x < 1), (x > 0).logical_not(), (x > 0).any(0))),
        (M,),
    ),
    "norm with statistics": (Fn(lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5)), (M,)),
    "topk": (Fn(lambda x: tuple(x.topk(2))), (M,)),
    "maximum with places": (Fn(lambda x: tuple(x.max(1))), (M,)),
    "named results": (Fn(lambda x: {"best": x.topk(2), "largest": [x.max(1)]}), (M,)),
    "argmax": (Fn(lambda x: (x.argmax(1), x.argmin(0), x.argmax())), (M,)),
    "sums": (Fn(lambda x: (x.sum(), x.sum(0), x.mean(0), x.amax(1), x.prod(1), x.var(1))), (M,)),
    "cumulative sum": (Fn(lambda x: x.cumsum(1)), (M,)),
    "constants of every kind": (
        Fn(
            lambda x, a, b, c: (x + a, x * b, torch.where(c, x, -x)),
            a=torch.arange(4),
            b=torch.tensor(2.0, dtype=torch.float64),
            c=torch.tensor([True, False, True, False]),
        ),
        (M,),
    ),
    "casts": (
        Fn(lambda x: (x.to(torch.int32), x.double(), x.to(torch.int8), x.bool(), x.half().float())),
        (M,),
    ),
    "types that promote": (
        Fn(lambda x, i: (x + i, i * 2.5, i / 2, i.bool() | (i > 1))),
        (M, torch.arange(4)),
    ),
    "double": (Fn(lambda x: (x.sin() @ x.t()).exp()), (M.double() / 3,)),
    "a number for an output": (Fn(lambda x: (x * 2, 7, None, 1.5)), (M,)),
    "an input that is returned": (Fn(lambda x: (x, x + 1)), (M,)),
    "one result returned twice": (Fn(lambda x: ((y := x.sin()), y)), (M,)),
    "a constant that is returned": (Fn(lambda x, c: (x + 1, c), c=torch.arange(3.0)), (M,)),
    "views that are returned": (
        Fn(lambda x: (x.view(4, 3), x.t(), x[0], x[:, 1:3], x[1, 2])),
        (M,),
    ),
    "channels-last": (
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        (LAST,),
    ),
    "channels-last undelegated": (Fn(lambda x: torch.atan(x) * 2), (LAST,)),
    "to channels-last and back": (
        Fn(lambda x: torch.atan(x.to(memory_format=torch.channels_last)).contiguous()),
        (IMAGE,),
    ),
    "a transposed convolution in between": (
        nn.Sequential(nn.Conv2d(4, 4, 3), Fn(torch.atan), nn.ConvTranspose2d(4, 2, 3)),
        (IMAGE,),
    ),
    "indexing": (
        Fn(lambda x, i: (x[i], x[:, i], x.index_select(1, i), x.gather(1, i[None].expand(3, -1)))),
        (M, torch.tensor([2, 0])),
    ),
    "joining": (
        Fn(lambda x: (torch.cat([x, x.long()], 1), torch.stack([x, x + 1]), x.repeat(2, 1))),
        (M,),
    ),
    "resizing": (Fn(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest")), (IMAGE,)),
    "padding": (Fn(lambda x: F.pad(x, (1, -1, 2, 0), value=3.0)), (IMAGE,)),
    "pooling": (nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((2, 1))), (IMAGE,)),
    "group norm": (nn.GroupNorm(2, 4), (IMAGE,)),
    "batch norm alone": (nn.BatchNorm2d(4), (IMAGE,)),
    "recurrent": (nn.GRU(4, 3, batch_first=True), (M[None],)),
    "triangles": (Fn(lambda x: (x.tril(), x.triu(1))), (M,)),
    "no dimensions": (
        Fn(lambda x: (x * torch.tensor(0.5), x.sum(0), x.cumsum(0), x.roll(1), x.unfold(0, 1, 1))),
        (torch.tensor(1.5),),
    ),
    "views of no dimensions": (
        Fn(lambda x: ((x.exp().view(1) * 2).view(()), x.view(1, 1).sigmoid().view(()))),
        (torch.tensor(1.5),),
    ),
    "norms of no dimensions": (
        Fn(lambda x: (x.logsumexp(0), torch.linalg.vector_norm(x, dim=0, keepdim=True))),
        (torch.tensor(1.5),),
    ),
    "a share of more, added to one": (
        Fn(lambda x, y: (torch.add(x, y, alpha=3), torch.add(x[0, 0], y, alpha=0.5))),
        (M[:1, :1], M),
    ),
    "a full tensor": (Fn(lambda x: x + torch.full((4,), 2.0) * torch.ones(3, 1)), (M,)),
}


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str | None], bytes]:
    return {}


@pytest.mark.parametrize("run", [run_ours, run_peer], ids=["ours", "peer"])
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("name", CASES)
def test_our_file(name: str, partitioner: str | None, run: Any, made: dict[Any, bytes]) -> None:
    module, inputs = CASES[name]
    if (name, partitioner) not in made:
        made[name, partitioner] = lower(module, inputs, partitioner=partitioner).buffer
    (outputs,) = run(made[name, partitioner], inputs)
    assert_close(outputs, expected_of(module, inputs))


def expected_of(module: nn.Module, inputs: tuple[Any, ...]) -> list[Any]:
    """Float32 results in float64; other types as eager gives them."""
    module.eval()
    plain = eager(module, inputs)
    if any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in inputs):
        return plain
    return [
        exact if isinstance(p, torch.Tensor) and p.dtype == torch.float32 else p
        for p, exact in zip(plain, eager64(module, inputs), strict=True)
    ]


# The peer lowers these: a few, for each takes it about a second.
PEERS = [
    "undelegated in between",
    "ids",
    "topk",
    "maximum with places",
    "casts",
    "channels-last",
    "norm with statistics",
    "views that are returned",
    "constants of every kind",
    "indexing",
]


@pytest.mark.parametrize("delegate", [True, False], ids=["xnnpack", "portable"])
@pytest.mark.parametrize("name", PEERS)
def test_the_peers_file(name: str, delegate: bool, peer_pte: Callable[..., bytes]) -> None:
    module, inputs = CASES[name]
    pte = peer_pte(name.replace(" ", "_"), export(module, inputs), delegate)
    (outputs,) = run_ours(pte, inputs)
    assert_close(outputs, expected_of(module, inputs))


# --- state, methods ---------------------------------------------------------------------


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        self.count.add_(1)
        self.mean.mul_(0.5).add_(y.mean(0), alpha=0.5)
        return y - self.mean, self.count + 0


CALLS = [(M * factor,) for factor in (1.0, -2.0, 0.5)]


@pytest.mark.parametrize("maker", ["ours", "peer"])
@pytest.mark.parametrize("run", [run_ours, run_peer], ids=["ours", "peer"])
def test_state_is_kept_over_calls(maker: str, run: Any, peer_pte: Callable[..., bytes]) -> None:
    module = Average().eval()
    if maker == "ours":
        pte = lower(module, CALLS[0]).buffer
    else:
        pte = peer_pte("state", export(module, CALLS[0]))
    for inputs, outputs in zip(CALLS, run(pte, *CALLS), strict=True):
        assert_close(outputs, eager(module, inputs))


@pytest.mark.parametrize("run", [run_ours, run_peer], ids=["ours", "peer"])
def test_several_methods_and_constant_methods(run: Any) -> None:
    linear = nn.Linear(4, 4)
    encode = nn.Sequential(linear, nn.ReLU()).eval()
    decode = Fn(lambda x, w: torch.atan(x) @ w, w=linear.weight.detach())
    pte = (
        edgewise.to_edge_transform_and_lower(
            {"encode": export(encode, (M,)), "decode": export(decode, (M,))},
            partitioner=partitioners("xnnpack"),
            constant_methods={"vocabulary": 1000, "scale": 0.25, "table": torch.arange(4.0)},
        )
        .to_executorch()
        .buffer
    )
    assert_close(run(pte, (M,), method="encode")[0], eager64(encode, (M,)))
    assert_close(run(pte, (M,), method="decode")[0], eager64(decode, (M,)))
    assert run(pte, (), method="vocabulary") == [[1000]]
    assert run(pte, (), method="scale") == [[0.25]]
    assert_close(run(pte, (), method="table")[0], [torch.arange(4.0)])


# --- dynamic shapes -----------------------------------------------------------------------

N = torch.export.Dim("n", min=3, max=8)

DYNAMIC: dict[str, tuple[nn.Module, Any]] = {
    "elementwise": (Fn(lambda x: torch.atan(x) * 2 + 1), (({0: N},),)),
    "linear": (nn.Linear(4, 3), ({0: N},)),
    "reshaped": (Fn(lambda x: x.reshape(x.shape[0] * 2, 2).sum(1)), (({0: N},),)),
    "a size that is computed with": (
        Fn(lambda x: x / x.shape[0] + torch.arange(x.shape[0])[:, None]),
        (({0: N},),),
    ),
    # What holds for the export's size of 3 alone must not become a rule.
    "a slice as long as the example": (Fn(lambda x: torch.atan(x)[:3] * 2), (({0: N},),)),
    "normed": (
        Fn(lambda x, c: torch.nn.functional.layer_norm(x, (4,), c) @ x.t(), c=torch.rand(4)),
        (({0: N},),),
    ),
    "added in place": (Fn(lambda x: x.atan().add_(1).mul_(x)), (({0: N},),)),
    "joined": (Fn(lambda x: torch.cat([x, x * 2])), (({0: N},),)),
}


@pytest.mark.parametrize("run", [run_ours, run_peer], ids=["ours", "peer"])
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_shapes(name: str, run: Any) -> None:
    module, shapes = DYNAMIC[name]
    pte = lower(module, (M,), dynamic_shapes=shapes).buffer
    calls = [(torch.linspace(-1, 1, 4 * n).reshape(n, 4),) for n in (3, 8, 4)]
    for inputs, outputs in zip(calls, run(pte, *calls), strict=True):
        assert_close(outputs, eager64(module, inputs))
