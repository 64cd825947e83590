"""Dynamic shapes: row by dimension by size, against eager, on both runtimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.export import Dim
from xnnpack_cases import t

from edgewise.backends.xnnpack.lowering import reshape
from edgewise.edge.sizes import broadcast, divides, groups, same
from support import (
    DEEP,
    FLOOR,
    RUNTIMES,
    Fn,
    assert_close,
    eager,
    eager64,
    lower,
    operators,
    run_ours,
)

pytestmark = pytest.mark.matrix

N = Dim("n", min=1, max=5)
T = Dim("t", min=2, max=9)
LENGTH = Dim("length", min=3, max=9)
H, W = 2 * Dim("h", min=2, max=8), Dim("w", min=4, max=16)


@dataclass(frozen=True)
class Case:
    """A function of one tensor, what of its shape is dynamic, and the shapes it runs at."""

    module: torch.nn.Module
    dims: dict[int, Any]
    shapes: Sequence[tuple[int, ...]]
    example: tuple[int, ...]

    def inputs(self, shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        return (t(*shape, seed=sum(shape)),)

    def lower(self) -> Any:
        shapes: Any = (self.dims,)
        if isinstance(self.module, Fn):
            shapes = (shapes,)  # its forward takes *inputs
        return lower(self.module, self.inputs(self.example), dynamic_shapes=shapes)


def rows(function: Any, **constants: torch.Tensor) -> Case:
    """Of [n, t, 6]."""
    shapes = [(1, 2, 6), (3, 4, 6), (5, 9, 6), (2, 2, 6)]
    return Case(Fn(function, **constants), {0: N, 1: T}, shapes, (2, 3, 6))


def batches(function: Any) -> Case:
    """Of [n, 4, 6]."""
    return Case(Fn(function), {0: N}, [(1, 4, 6), (3, 4, 6), (5, 4, 6)], (2, 4, 6))


def images(module: Any) -> Case:
    """Of [n, 4, h, w]."""
    module = module if isinstance(module, torch.nn.Module) else Fn(module)
    shapes = [(1, 4, 4, 4), (3, 4, 10, 5), (5, 4, 16, 16), (2, 4, 4, 15)]
    return Case(module, {0: N, 2: H, 3: W}, shapes, (2, 4, 8, 7))


def heads(function: Any) -> Case:
    """Of [n, 2, t, 4]."""
    shapes = [(1, 2, 2, 4), (3, 2, 5, 4), (5, 2, 9, 4)]
    return Case(Fn(function), {0: N, 2: T}, shapes, (2, 2, 3, 4))


def conv(*args: Any, **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Conv2d(*args, **options)


def attend_eagerly(x: torch.Tensor) -> torch.Tensor:
    """Heads split and joined, products of four dimensions."""
    n, tokens, channels = x.shape
    q = (x * 2).view(n, tokens, 3, 2).transpose(1, 2)
    weights = (q @ q.transpose(-1, -2)).softmax(-1)
    return (weights @ q).transpose(1, 2).reshape(n, tokens, channels)


# One delegate, and nothing else.
DELEGATED: dict[str, Case] = {
    "unary": rows(lambda x: x.sigmoid()),
    "binary: itself": rows(lambda x: x + x),
    "slice": rows(lambda x: (x * 2)[:, :, 1:3]),
    "slice: of halves, changed about": rows(lambda x: torch.cat([x[..., 3:], x[..., :3]], -1) * x),
    "slice: every other": rows(lambda x: (x * 2)[:, :, ::2]),
    "slice: every other, from the second on": rows(lambda x: (x * 2)[:, :, 1::2]),
    "slice: every fourth, the last row cut": rows(lambda x: (x * 2)[..., 1::4]),
    "slice: every other channel": images(
        Fn(lambda x, w: F.conv2d(x, w, padding=1)[:, 1::2] * 2, w=t(8, 4, 3, 3))
    ),
    "slice: every other, of heads": heads(lambda x: (x * 2)[..., ::2]),
    "positions in pairs": heads(
        lambda x: x * 2 + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    ),
    "repeat_interleave": rows(lambda x: (x * 2).repeat_interleave(2, -1)),
    "expand": rows(lambda x: (x * 2).unsqueeze(2).expand(-1, -1, 3, -1)),
    "binary: a number": rows(lambda x: x * 3),
    "binary: a constant row": rows(lambda x, c: x - c, c=t(6)),
    "binary: a constant of more dimensions": rows(lambda x, c: x + c, c=t(2, 1, 1, 6)),
    "binary: columns": rows(lambda x: x * x.mean(-1, keepdim=True)),
    "binary: outer": rows(lambda x: x.unsqueeze(1) + x.unsqueeze(2)),
    "binary: fewer dimensions": rows(lambda x: (x * 2) + x[0]),
    "softmax": rows(lambda x: x.softmax(-1)),
    "gelu": rows(F.gelu),
    "linear": rows(lambda x, w, b: F.linear(x, w, b), w=t(3, 6), b=t(3)),
    "matmul with a constant": rows(lambda x, w: x @ w, w=t(6, 3)),
    "matmul": rows(lambda x: x @ x.transpose(1, 2)),
    "layer_norm": rows(lambda x, w, b: F.layer_norm(x, (6,), w, b), w=t(6), b=t(6, seed=1)),
    "mean of the last": rows(lambda x: x.mean(-1)),
    "largest of the last": batches(lambda x: x.amax(-1)),
    "smallest before the last": batches(lambda x: x.amin(1, keepdim=True)),
    "largest of all but the first": batches(lambda x: x.amax((1, 2))),
    "mean of a dynamic one": rows(lambda x: x.mean(1)),
    "cat along a static one": rows(lambda x: torch.cat([x, x * 2], 2)),
    "cat along a dynamic one": rows(lambda x: torch.cat([x, x * 2], 1)),
    "constant_pad_nd": rows(lambda x: F.pad(x, (1, 2, 1, 0))),
    "permute": rows(lambda x: (x + 1).permute(2, 1, 0)),
    "select: of a static one": rows(lambda x: x[:, :, 1] * 2),
    "select: the first of a dynamic one": rows(lambda x: x[:, 0] * 2),
    "unsqueeze": rows(lambda x: (x * 2).unsqueeze(1)),
    "unsqueeze and squeeze": rows(lambda x: ((x * 2).unsqueeze(0) + 1).squeeze(0)),
    "view: split": rows(lambda x: (x * 2).view(x.shape[0], x.shape[1], 3, 2)),
    "view: split and turned": rows(lambda x: (x * 2).unflatten(2, (2, 3)).permute(0, 2, 1, 3)),
    "view: merged": rows(lambda x: (x * 2).unflatten(2, (2, 3)).transpose(2, 3).flatten(2)),
    "view: of two into one": rows(lambda x: (x * 2).view(-1, 6)),
    "view: of two into one, transposed": rows(lambda x: (x * 2).transpose(0, 1).reshape(-1, 6)),
    "attention, spelt out": rows(attend_eagerly),
    "attention": heads(lambda x: F.scaled_dot_product_attention(x, x * 2, x)),
    "conv2d": images(conv(4, 6, 3, stride=2, padding=1)),
    "conv2d: depthwise": images(conv(4, 4, 3, padding=1, groups=4)),
    "max_pool2d": images(torch.nn.MaxPool2d(3, 2, 1)),
    "avg_pool2d": images(torch.nn.AvgPool2d(2)),
    "mean over an image": images(lambda x: (x * 2).mean((2, 3))),
    "a gate": images(lambda x: x * x.mean((2, 3), keepdim=True).sigmoid()),
    "an image flattened": Case(
        Fn(lambda x: (x * 2).flatten(2)),
        {2: H, 3: W},
        [(1, 4, 4, 4), (1, 4, 16, 16), (1, 4, 4, 15)],
        (1, 4, 8, 7),
    ),
    "flatten after the channels": Case(
        torch.nn.Sequential(conv(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(36, 3)),
        {0: N},
        [(1, 3, 5, 5), (5, 3, 5, 5)],
        (2, 3, 5, 5),
    ),
}


def test_data_is_as_declared() -> None:
    assert all(case.example not in case.shapes for case in DELEGATED.values())


@pytest.fixture(scope="module")
def lowered() -> Callable[[dict[str, Case], str], Any]:
    made: dict[str, Any] = {}

    def once(table: dict[str, Case], name: str) -> Any:
        if name not in made:
            made[name] = table[name].lower()
        return made[name]

    return once


NEEDS_2_13 = ("max_pool2d", "avg_pool2d")
"""Torch's own export of them guards the width before 2.13."""

BOTH = ["ours", pytest.param("peer", marks=pytest.mark.peer)]


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("name", DELEGATED)
def test_delegated(name: str, runtime: str, lowered: Callable) -> None:
    if name in NEEDS_2_13 and str(torch.__version__) < "2.13":
        pytest.skip("torch.export of 2.12 takes it for every other width only")
    case, program = DELEGATED[name], lowered(DELEGATED, name)
    assert operators(program.buffer) == ["delegate"], program.delegation_report()
    check(case, program.buffer, runtime)


def check(case: Case, pte: bytes, runtime: str, floor: float = FLOOR) -> None:
    # The largest first: the peer's runtime overwrites a broadcast operand that had the result's
    # size when it planned first (a gate over an image of one element).
    calls = [case.inputs(shape) for shape in sorted(case.shapes, reverse=True)]
    for inputs, outputs in zip(calls, RUNTIMES[runtime](pte, *calls), strict=True):
        assert_close(outputs, eager64(case.module, inputs), floor=floor)


# What is refused, with the reason, and still runs.
REFUSED: dict[str, tuple[Case, str, str]] = {
    "slice_copy: of a dynamic one": (
        Case(
            Fn(lambda x: (x * 2)[:, :2]),
            {1: LENGTH},
            [(2, 3, 6), (2, 9, 6)],
            (2, 5, 6),
        ),
        "aten.slice_copy.Tensor",
        "the size along dim is static; got dim=1",
    ),
    "select_copy: the last of a dynamic one": (
        rows(lambda x: (x * 2)[:, -1]),
        "aten.select_copy.int",
        "a negative index only where the size is static; got index=-1 of s",
    ),
    "view_copy: a dynamic one split": (
        Case(
            Fn(lambda x: (x * 2).view(x.shape[0], -1, 2, 6) * 3),
            {0: N, 1: 2 * Dim("k", min=2, max=4)},
            [(1, 4, 6), (5, 8, 6)],
            (2, 6, 6),
        ),
        "aten.view_copy.default",
        "a reshape with at most one symbolic size in the result, or symbolic sizes left as they "
        "are; got [s",
    ),
    "div: by a size": (
        rows(lambda x: x / x.shape[1]),
        "aten.div.Scalar",
        "numbers are known before; got other is computed from sizes",
    ),
    "max_pool2d: ceil_mode": (
        Case(
            torch.nn.MaxPool2d(2, 2, ceil_mode=True),
            {0: N, 2: H},
            [(1, 4, 4, 7), (5, 4, 16, 7)],
            (2, 4, 8, 7),
        ),
        "aten.max_pool2d_with_indices.default",
        "ceil_mode=False, or static sizes; got ceil_mode=True",
    ),
    "adaptive_avg_pool2d: a dynamic height": (
        Case(
            Fn(lambda x: F.adaptive_avg_pool2d(x * 2, (3, 2))),
            {2: H},
            [(2, 4, 4, 7), (2, 4, 16, 7)],
            (2, 4, 8, 7),
        ),
        "aten._adaptive_avg_pool2d.default",
        "static sizes of the image; got [2*s",
    ),
    "adaptive_avg_pool2d: as many rows as images": (
        Case(
            Fn(lambda x: F.adaptive_avg_pool2d(x * 2, (x.shape[0], 3))),
            {0: N},
            [(1, 4, 6, 7), (5, 4, 6, 7)],
            (2, 4, 6, 7),
        ),
        "aten._adaptive_avg_pool2d.default",
        "numbers are known before; got output_size is computed from sizes",
    ),
}


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, runtime: str) -> None:
    case, operator, reason = REFUSED[name]
    program = case.lower()
    found = [n for n in program.delegation_report().refused if n.operator == operator]
    reasons = [r for n in found for group in n.reasons.values() for r in group]
    assert any(r.startswith(reason) for r in reasons), reasons
    check(case, program.buffer, runtime)


# --- around delegates --------------------------------------------------------------------


def test_sizes_are_no_inputs_of_a_delegate() -> None:
    """Sizes come from the program's inputs: the delegate is one, and has one output."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).relu()
        z = y.view(y.shape[0] * y.shape[1], 6).sigmoid()
        return z.view(x.shape[0], x.shape[1], 6)[:, : x.shape[1] - 1].sigmoid()

    case = Case(Fn(function), {1: LENGTH}, [(2, 9, 6), (2, 3, 6)], (2, 5, 6))
    program = case.lower()
    found = operators(program.buffer)
    assert found.count("delegate") == 2
    assert [o for o in found if "sym_size" in o] == ["aten::sym_size.int"]
    graph = program.exported_program().graph
    (size,) = [n for n in graph.nodes if n.target is torch.ops.aten.sym_size.int]
    assert size.args[0].op == "placeholder"
    refused = {n.operator for n in program.delegation_report().refused}
    assert refused == {"aten.slice_copy.Tensor"}
    check(case, program.buffer, "ours")


@pytest.mark.parametrize("runtime", BOTH)
def test_causal_attention_takes_its_mask_as_an_input(runtime: str) -> None:
    """The mask is computed once for both layers, outside of the one delegate."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return F.scaled_dot_product_attention(y, x, x, is_causal=True)

    case = heads(function)
    program = case.lower()
    found = operators(program.buffer)
    assert found.count("delegate") == 1
    assert found.count("aten::arange.start_out") == 2
    check(case, program.buffer, runtime)


@pytest.mark.parametrize("dim", [Dim.AUTO, Dim.DYNAMIC])
def test_no_bound(dim: Any) -> None:
    """Outputs have memory for what is there. (The peer's runtime does not load such files.)"""
    torch.manual_seed(0)
    module = torch.nn.Sequential(conv(4, 6, 3), torch.nn.ReLU())
    shapes = [(2, 4, 5, 5), (3, 4, 70, 80), (2, 4, 9, 3)]
    case = Case(module, {0: dim, 2: dim, 3: dim}, shapes, (2, 4, 8, 7))
    program = case.lower()
    assert operators(program.buffer) == ["delegate"]
    check(case, program.buffer, "ours")


def test_memory_follows_the_size_at_hand() -> None:
    """A result of the bound would be 512 MiB."""
    side = Dim("side", min=4, max=2048)
    module = Fn(lambda x: (((x * 2).sigmoid() + 1).tanh() * x).mean((2, 3)))
    case = Case(module, {2: side}, [(1, 32, 8, 2048), (1, 32, 16, 2048)], (1, 32, 5, 2048))
    pte = case.lower().buffer
    before = resident()
    check(case, pte, "ours")
    assert resident() - before < 128 << 20


def resident() -> int:
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


# --- models ------------------------------------------------------------------------------


def tokens(n: int, length: int) -> tuple[torch.Tensor, ...]:
    """Ids, a mask whose end is padding, and token types."""
    ids = torch.randint(1, 1000, (n, length), generator=torch.Generator().manual_seed(n))
    mask = (torch.arange(length) < length - length // 4).long().expand(n, -1).contiguous()
    return ids, mask, torch.zeros(n, length, dtype=torch.long)


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("dynamic", [(0,), (1,), (0, 1)], ids=["batch", "length", "both"])
def test_bert(dynamic: tuple[int, ...], runtime: str) -> None:
    """All that computes with floats is one delegate, whatever is dynamic."""
    from examples.models import MODELS

    model = MODELS["bert_small"].build()
    dims = [Dim("batch", min=1, max=4), Dim("length", min=2, max=64)]
    shapes = ({d: dims[d] for d in dynamic},) * 3
    program = lower(model, tokens(2, 32), dynamic_shapes=shapes)
    found = operators(program.buffer)
    assert found.count("delegate") == 1
    sizes = {(0,): [(4, 32), (1, 32)], (1,): [(2, 64), (2, 2)], (0, 1): [(4, 64), (1, 2), (3, 9)]}
    calls = [tokens(*size) for size in sizes[dynamic]]
    for inputs, outputs in zip(calls, RUNTIMES[runtime](program.buffer, *calls), strict=True):
        assert_close(outputs, eager(model, inputs))


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small", "resnet18"])
def test_images(name: str, runtime: str) -> None:
    """Batch, height and width at once: one delegate and nothing else."""
    from examples.models import MODELS

    model = MODELS[name].build()
    dims = {0: N, 2: 32 * Dim("rows", min=1, max=3), 3: 32 * Dim("columns", min=1, max=3)}
    case = Case(model, dims, [(5, 3, 96, 96), (1, 3, 32, 64), (2, 3, 96, 32)], (2, 3, 64, 64))
    program = case.lower()
    assert operators(program.buffer) == ["delegate"], program.delegation_report()
    check(case, program.buffer, runtime, DEEP)


@pytest.mark.parametrize("runtime", BOTH)
def test_vision_transformer(runtime: str) -> None:
    """The class token is repeated for each image before the one delegate."""
    from examples.models import randomize_layer_norm
    from examples.models.vit import VisionTransformer

    model = VisionTransformer(image=32, width=48, depth=2, heads=3, hidden=96, classes=7).eval()
    randomize_layer_norm(model, 0)
    case = Case(model, {0: N}, [(5, 3, 32, 32), (1, 3, 32, 32)], (2, 3, 32, 32))
    program = case.lower()
    expected = ["aten::sym_size.int", "aten::expand_copy.out", "delegate"]
    assert operators(program.buffer) == expected
    check(case, program.buffer, runtime)


# --- sizes -------------------------------------------------------------------------------

a, b = sympy.Symbol("a", integer=True, positive=True), sympy.Symbol("b", integer=True)


def test_sizes() -> None:
    assert same(2 * (a + 1), 2 * a + 2)
    assert not same(a, b)
    assert not same(a, 2)
    assert divides(a, 6 * a * b)
    assert not divides(a, 2 * b)
    assert broadcast((a, 1, 3), (b, 3)) == (a, b, 3)
    assert broadcast((a,), (4,)) == (4,)
    with pytest.raises(ValueError, match=r"got \[2\] and \[3\]"):
        broadcast((2,), (3,))


def test_groups() -> None:
    assert groups((a, b, 6), (a, b, 2, 3)) == [([0], [0]), ([1], [1]), ([2], [2, 3])]
    assert groups((a, b, 6), (a * b, 6)) == [([0, 1], [0]), ([2], [1])]
    assert groups((2, 3), (3, 2)) == [([0, 1], [0, 1])]
    assert groups((a, 2), (2, a)) is None
    assert groups((a,), (b,)) is None


PLANS: dict[str, tuple[Any, Any, list[Any] | None]] = {
    "same ones elsewhere": ((1, a, b), (a, 1, b), []),
    "a new one": ((a, b), (a, 1, b), [reshape.Insert()]),
    "two ones less": ((a, 1, b, 1), (a, b), [reshape.Drop(1, 3)]),
    "a one less": ((a, 1, b), (a, b), [reshape.Insert(), reshape.Drop(0, 2)]),
    "split": ((a, b, 6), (a, b, 2, 3), [reshape.Split(2, 2)]),
    "merged": (
        (a, b, 2, 3),
        (a, b, 6),
        [reshape.Merge(2, 3), reshape.Insert(), reshape.Drop(0, 3)],
    ),
    "a symbol split": ((a, 2 * b), (a, b, 2), None),
    "symbols merged": ((a, b, 3), (a * b, 3 * a), None),
    "too many pieces": ((a, b, 300), (a, b, 100, 3), None),
    "too many dimensions": ((a, b, 2, 3, 2, 2), (a, b, 2, 3, 2, 2, 1), None),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str) -> None:
    shape, target, steps = PLANS[name]
    assert reshape.plan(shape, target) == steps
    assert (reshape.refusal(shape, target) is None) == (steps is not None)


def test_one_symbolic_size_is_always_in_reach() -> None:
    assert reshape.refusal((a, b, 3), (3, a * b)) is None
    assert reshape.refusal((a, 2, 300), (300, 2 * a)) is None


def test_the_runtime_refuses_a_size_beyond_the_bound() -> None:
    from edgewise.runtime import InvalidArgumentError

    pte = DELEGATED["unary"].lower().buffer
    with pytest.raises(InvalidArgumentError, match="6"):
        run_ours(pte, (t(6, 2, 6),))
