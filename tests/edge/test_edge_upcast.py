"""bfloat16 is computed in float32 where a backend is asked; the caller sees bfloat16."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from edge_support import assert_values_are_as_said, spelling
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.edge.upcast import computes_bfloat16, upcast
from edgewise.emit import ExecutorchBackendConfig, MemoryPlanningConfig
from support import (
    RUNTIMES,
    Fn,
    assert_close,
    eager,
    eager64,
    export,
    kinds,
    lower,
    operators,
    payloads,
)

BF16 = torch.bfloat16
ROUNDED = 2**-8
"""An output is rounded to 8 binary digits; what it is computed from, hardly."""
X = torch.linspace(-1, 1, 24).reshape(3, 8)


class Block(nn.Module):
    """A norm in float32, as language models have it, between operators in the input's type."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.norm(x).to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x + self.outer(nn.functional.silu(self.inner(wide.to(x.dtype))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one(x).view(-1, 2, 4).transpose(0, 1)[None] for one in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y[0].transpose(0, 1).reshape(-1, 8)


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3)).softmax(-1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).tanh())


class Cache(nn.Module):
    """State in bfloat16, which nobody outside sees."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(4, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, at, self.linear(x))
        return self.keys.sum(0) * 2


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 1, lambda a: self.one(a), lambda a: self.other(a) * 3, (x,))


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def more(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < 3

        def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, self.linear(y).tanh()

        return torch._higher_order_ops.while_loop(more, body, (torch.tensor(0), x))[1]


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=BF16):
            return nn.functional.gelu(self.linear(x)) + x


def in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A cast is a copy: what is written to it does not show in what was cast."""
    y = x * 2
    z = y.to(torch.float32)
    z.add_(1)
    w = z.to(BF16)
    w.mul_(2)
    return y, z, w


def written_input(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    made = torch.full((2,), 1.5, dtype=BF16), torch.arange(3).to(BF16)
    return x, x + 1, *made, x.split(4, 1)[1], x.max(1).values


@dataclass(frozen=True)
class Case:
    module: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, ...] = (X,)
    dynamic: Any = None
    is_narrow: bool = True
    """Whether the module and its inputs become bfloat16; else the module itself has some."""


N = torch.export.Dim("n", min=2, max=16)
CASES = {
    "block": Case(Block),
    "block of open size": Case(Block, dynamic=({0: N},)),
    "attention": Case(Attention),
    "attention of open size": Case(Attention, dynamic=({0: N},)),
    "image": Case(Image, (torch.linspace(-1, 1, 243).reshape(1, 3, 9, 9),)),
    "LSTM": Case(lambda: First(nn.LSTM(8, 4, batch_first=True)), (X[None],)),
    "tied": Case(Tied, (torch.tensor([[1, 5, 2]]),)),
    "state": Case(Cache, (X[:1], torch.tensor([2]))),
    "branches": Case(Branches),
    "loop": Case(Loop),
    "autocast": Case(Autocast),
    "autocast of float32": Case(Autocast, is_narrow=False),
    "in place": Case(lambda: Fn(in_place)),
    "written input": Case(lambda: Fn(written_input)),
    "several": Case(lambda: Fn(several)),
    "a cast that is returned": Case(lambda: Fn(lambda x: (x.float().exp().to(BF16), x.float()))),
    "float32 around": Case(lambda: Fn(lambda x: (x.to(BF16).exp() + 1).float()), is_narrow=False),
}


class First(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)[0]


def made(case: Case) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    module = case.module().eval()
    if not case.is_narrow:
        return module, case.inputs
    return module.to(BF16), tuple(x.to(BF16) if x.is_floating_point() else x for x in case.inputs)


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize("name", CASES)
def test_it_is_computed_in_float32(name: str, runtime: str) -> None:
    module, inputs = made(CASES[name])
    want = [y.dtype for y in eager(copy.deepcopy(module), inputs)]
    program = lower(copy.deepcopy(module), inputs, dynamic_shapes=CASES[name].dynamic)
    (got,) = RUNTIMES[runtime](program.buffer, copy.deepcopy(inputs))
    assert [y.dtype for y in got] == want
    rounded = ROUNDED if CASES[name].is_narrow else 2 * ROUNDED  # inside, in float64
    assert_close(got, eager64(module, inputs), rounded, 1e-5)
    assert program.delegation_report().upcast
    assert "delegate" in operators(program.buffer) or CASES[name].module in (Branches, Loop)


@pytest.mark.parametrize("name", CASES)
def test_the_program_says_what_it_computes(name: str) -> None:
    module, inputs = made(CASES[name])
    exported = export(module, inputs, dynamic_shapes=CASES[name].dynamic)
    before = str(exported)
    assert computes_bfloat16(exported)
    wide = upcast(exported)
    assert not computes_bfloat16(wide)
    assert upcast(wide) is wide
    assert str(exported) == before
    if name not in ("branches", "loop"):  # whose bodies take no flat inputs
        assert_values_are_as_said(wide, inputs)


def test_programs_that_were_changed_since_are_upcast_as_well() -> None:
    module, inputs = made(CASES["block"])
    edge = edgewise.to_edge(export(module, inputs))
    assert computes_bfloat16(edge.exported_program())  # nobody asked for a backend
    edge = edge.transform(lambda graph: None).to_backend(XnnpackPartitioner())
    assert edge.delegation_report().upcast
    program = edge.to_executorch()
    (got,) = RUNTIMES["ours"](program.buffer, inputs)
    assert_close(got, eager64(module, inputs), ROUNDED, 1e-5)


def test_methods_that_share_state_have_it_in_one_type() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.sum(0))
            return self.total * 2

    adds = Counter().to(BF16)
    x = X.to(BF16)
    methods = {"add": export(adds, (x,)), "again": export(adds, (x,))}
    edge = edgewise.to_edge_transform_and_lower(
        methods, partitioner={"add": [XnnpackPartitioner()]}
    )
    shared = MemoryPlanningConfig(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning=shared)
    program = edgewise.load(edge.to_executorch(config).buffer)
    first = torch.as_tensor(program.add(x).astype("float32"))
    second = torch.as_tensor(program.again(x).astype("float32"))
    assert_close([first], [X.sum(0) * 2], 2**-7, 1e-2)
    assert_close([second], [first * 2], 2**-7, 1e-2)


def _twice(x: torch.Tensor) -> torch.Tensor:
    assert x.dtype == BF16
    return x * 2


def test_operators_of_others_get_what_they_were_given() -> None:
    with torch.library._scoped_library("upcast_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", _twice, "CPU")
        library.impl("twice", torch.empty_like, "Meta")

        module = nn.Sequential(nn.Linear(8, 8), Fn(torch.ops.upcast_test.twice), nn.ReLU())
        x = X.to(BF16)
        wide = upcast(export(module.to(BF16), (x,)))
        cast = "_to_copy.default"
        found = [cast, "linear.default", cast, "upcast_test.twice.default", cast, "relu.default"]
        assert spelling(wide) == [*found, cast]
        assert_values_are_as_said(wide, (x,))


def test_the_report_says_so() -> None:
    module, inputs = made(CASES["block"])
    program = lower(module, inputs)
    text = str(program.delegation_report())
    assert "bfloat16 is computed and stored in float32" in text
    assert program.delegation_report().to_dict()["upcast"] is True
    assert not lower(module.float(), (X,)).delegation_report().upcast


SCHEMES = ("int8", "int8-dynamic", "int8-weight", "int4-dynamic", "int4-weight")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_quantized(scheme: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32)).to(BF16)
    x = torch.randn(4, 64).to(BF16)
    program = edgewise.compile(
        module, x, quantize=scheme, calibration=[x] if scheme == "int8" else None, verbose=False
    )
    (got,) = RUNTIMES["ours"](program.buffer, (x,))[0]
    (want,) = eager64(module, (x,))
    assert got.dtype == BF16
    assert torch.cosine_similarity(got.double().flatten(), want.flatten(), 0) > 0.99
    assert operators(program.buffer).count("delegate") == 1
    smaller = edgewise.compile(module.float(), x.float(), verbose=False)
    assert len(program.buffer) < 0.6 * len(smaller.buffer)


class Writes(nn.Module):
    """Its first input is a cache that the caller keeps."""

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.linear, self.write = nn.Linear(8, 8), write

    def forward(self, cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.write(cache, y)
        return cache.sum(0) + y


WRITES = {
    "itself": lambda cache, y: cache.add_(y),
    "a row": lambda cache, y: cache[1].copy_(y[0]),
    "a view": lambda cache, y: cache.view(-1).mul_(y.sum()),
    "by an index": lambda cache, y: cache.index_copy_(0, torch.tensor([2]), y[:1]),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_quantized_program_writes_to_its_input(write: str) -> None:
    torch.manual_seed(0)
    module = Writes(WRITES[write]).to(BF16)
    cache, x = torch.randn(3, 8).to(BF16), X.to(BF16)
    before = cache.clone()
    program = edgewise.compile(
        module, (cache, x), quantize="int8", calibration=[(cache.clone(), x)], verbose=False
    )
    assert torch.equal(cache, before)
    got, want = cache.clone(), cache.clone()
    edgewise.load(program.buffer)(got, x)
    module(want, x)
    assert not torch.equal(want, before)
    assert torch.cosine_similarity((got - before).flatten(), (want - before).flatten(), 0) > 0.99


def test_layers_that_torchao_quantized_are() -> None:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 32, dtype=BF16)).eval()
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )
    quantize_(module, config)
    x = torch.randn(4, 64).to(BF16)
    program = lower(module, (x,))
    (delegate,) = payloads(program.buffer)
    assert kinds(delegate) == ["Convert", "FullyConnected"]
    ((got,),) = RUNTIMES["ours"](program.buffer, (x,))
    (want,) = eager(module, (x,))
    assert got.dtype == BF16
    assert float((got - want).norm() / want.norm()) < 0.02  # rows of 8 bits


@pytest.mark.parametrize("backend", ["ethos-u55-128", "neutron-imxrt700-reference"])
def test_npus_take_it_in_integers(backend: str) -> None:
    from support import needs

    needs(backend)
    module, inputs = made(CASES["image"])
    program = edgewise.compile(
        module, inputs, backend=backend, quantize="int8", calibration=[inputs], verbose=False
    )
    kinds: Sequence[str] = operators(program.buffer)
    assert kinds.count("delegate") == 1
    report = program.delegation_report()
    assert {n.operator for n in report.refused} <= {
        "aten._to_copy.default",
        "quantized_decomposed.quantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_tensor.default",
    }
