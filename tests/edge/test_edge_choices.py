"""Choices by computed booleans, as bounds: one delegate, and to the bit what `where` gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from edge_support import assert_equals_eager, edge, spelling

from support import Fn, eager64, lower, operators, run_ours, run_peer

INF = math.inf
X = torch.tensor([[1.5, -INF, 3e38, -3e38], [INF, -0.5, 1e-30, 7.0]])
Y = torch.tensor([[INF, 2.5, -INF, -1e-30], [-3.0, INF, -INF, 0.25]])
M = torch.tensor([[True, False, True, False], [False, True, False, True]])
ROW = M[:1]
LOWEST = torch.finfo(torch.float32).min

CHOICES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "two tensors": (lambda x, y, m: torch.where(m, x, y) * 2, (X, Y, M)),
    "one row for all": (lambda x, y, m: torch.where(m, x, y) * 2, (X, Y, ROW)),
    "expanded": (lambda x, y, m: torch.where(m.expand(2, 4), x, y) * 2, (X, Y, ROW)),
    "a number elsewhere": (lambda x, m: torch.where(m, x, -1e9) * 2, (X, M)),
    "a number where it holds": (lambda x, m: torch.where(m, 0.5, x) * 2, (X, M)),
    "a constant": (lambda x, m: torch.where(m, x, torch.tensor(0.0)) * 2, (X, M)),
    "infinity": (lambda x, m: torch.where(m, x, INF) * 2, (X, M)),
    "minus infinity filled in": (lambda x, m: x.masked_fill(m, -INF) * 2, (X, M)),
    "the least number filled in": (lambda x, m: x.masked_fill(~m, LOWEST) / 2, (X, M)),
    "filled in in place": (lambda x, m: (x * 0.5).masked_fill_(m == 0, -1e4) * 2, (X, M)),
    "of integers": (lambda x, m: x.masked_fill(m > 1, 3.0) * 2, (X, torch.arange(8).view(2, 4))),
    "of an input": (lambda x, m: x.masked_fill(m > 0.5, 3.0) * 2, (X, M.float())),
    "expanded as another": (
        lambda x, m: (x / 2).masked_fill((m == 0).view(1, 4).expand_as(x / 2), -1e9) * 2,
        (X, ROW.long()),
    ),
    "inverted": (
        lambda x, m: x.masked_fill((1.0 - m[:, None, :].float()).bool().view(2, 4), -1e9) * 2,
        (X, M.long()),
    ),
    "a mask made longer": (lambda x, m: torch.where(m, x, -1.0) * 2, (X[:1], M)),
}


def check_delegated(function: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """In one delegate, which comes last; to the bit what eager PyTorch gives, on both runtimes."""
    pte = lower(Fn(function), inputs).buffer
    assert operators(pte).count("delegate") == 1
    assert operators(pte)[-1] == "delegate"
    with torch.no_grad():
        expected = function(*(x.clone() for x in inputs))
    for run in (run_ours, run_peer):
        (found,) = run(pte, inputs)[0]
        assert torch.equal(found, expected), run


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_delegated(name: str) -> None:
    check_delegated(*CHOICES[name])


WHOLE = torch.tensor([[3, -2, 0, 7], [1, 2**24 + 1, -5, 4]])
REAL = torch.tensor([[1.5, -0.0, 3e38, -3e38], [INF, -0.5, 1e-30, 7.0]])
SMALL = REAL.clamp(-9, 9)
MIXED: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "booleans": (lambda x, m: (x / 2) * m * 2, (SMALL, M)),
    "booleans of integers": (lambda x, i: (x / 2) * (i > 1) * 2, (SMALL, WHOLE)),
    "a row of booleans": (lambda x, m: (x / 2 + m) * 2, (REAL, ROW)),
    "integers": (lambda x, i: (x / 2 + i) * 2, (REAL, WHOLE)),
    "small integers": (lambda x, i: (i * (x / 2)) * 2, (SMALL, WHOLE.to(torch.int8))),
    "divided by real numbers": (lambda x, i: (i / (x / 2)) * 2, (REAL, WHOLE)),
    "the larger one": (lambda x, i: torch.maximum(x / 2, i) * 2, (REAL, WHOLE)),
    "a number without dimensions": (lambda x, i: (x / 2 * i) * 2, (REAL, torch.tensor(3))),
    "twice": (lambda x, i: ((x / 2 + i).relu() - i) * 2, (REAL, WHOLE)),
}


@pytest.mark.parametrize("name", MIXED)
def test_arithmetic_with_integers_is_delegated(name: str) -> None:
    check_delegated(*MIXED[name])


def test_masks_by_way_of_real_numbers() -> None:
    """Which no real input leads to: one delegate, and a small one for the way."""

    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        away = torch.where(m, 0.0, -1e9)
        for _ in range(3):
            x = (x * 2).masked_fill(torch.nn.functional.pad(away, (1, 0))[:, 1:] != 0, -1.0)
        return x + 1

    pte = lower(Fn(function), (SMALL, M)).buffer
    assert operators(pte).count("delegate") == 2
    (found,) = run_ours(pte, (SMALL, M))[0]
    assert torch.equal(found, function(SMALL, M))


def written(x: torch.Tensor, mask: torch.Tensor, number: Any) -> torch.Tensor:
    made = x / 2
    made[mask] = number
    return made * 2


WRITES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "elements": (lambda x, m: written(x, m, 0), (X, M)),
    "rows": (lambda x, m: written(x, m[:, 0], -1.5), (X, M)),
    "rows of integers": (lambda x, i: written(x, ~i.bool(), 3.0), (X, M[:, 0].long())),
    "infinity": (lambda x, m: written(x, m, -INF), (X, M)),
    "a tensor of one element": (lambda x, m: written(x, m, torch.tensor([2.5])), (X, M)),
    "by the operator": (
        lambda x, m: torch.index_put(x / 2, (m,), torch.ones(())) * 2,
        (X, M[:, 1].contiguous()),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_numbers_written_by_a_mask_are_chosen(name: str) -> None:
    check_delegated(*WRITES[name])


def test_numbers_written_by_a_mask_without_a_backend() -> None:
    function, inputs = lambda x, m: written(x, m, 7), (WHOLE, M)
    pte = lower(Fn(function), inputs, partitioner=None).buffer
    assert not any("index_put" in name for name in operators(pte))
    assert torch.equal(run_ours(pte, inputs)[0][0], function(*inputs))


def test_state_is_written_in_place() -> None:
    class Kept(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(2, 4))

        def forward(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            self.kept[m] = 3.0
            return x + self.kept

    pte = lower(Kept(), (X, M)).buffer
    assert any("index_put" in name for name in operators(pte))
    assert torch.equal(run_ours(pte, (X, M))[0][0], Kept()(X, M))


def test_writes_that_stay() -> None:
    """Added to what is there, or as many values as are written."""
    for function in (
        lambda x, m: torch.index_put(x / 2, (m,), torch.tensor(1.0), accumulate=True),
        lambda x, m: torch.index_put(x / 2, (torch.tensor([1, 0]),), x),
    ):
        pte = lower(Fn(function), (X, M)).buffer
        assert any("index_put" in name for name in operators(pte))
        assert torch.equal(run_ours(pte, (X, M))[0][0], function(X, M))


ROOT = math.sqrt(2)
GELUS: dict[str, Any] = {
    "as papers": lambda x: x * 0.5 * (1.0 + torch.erf(x / ROOT)),
    "half first": lambda x: 0.5 * x * (1 + torch.erf(x / ROOT)),
    "half last": lambda x: x * (torch.erf(x * 0.70710678118) + 1) * 0.5,
    "half of the sum": lambda x: x * (0.5 * (1.0 + torch.erf(x / ROOT))),
    "divided": lambda x: x * (1 + torch.erf(x / ROOT)) / 2,
    "the sum first": lambda x: (1 + torch.erf(x / ROOT)) * 0.5 * x,
    "few digits": lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.41421)),
    "twice": lambda x: x * (1 + torch.erf(x / ROOT)),
    "twice, and divided": lambda x: x * (1 + torch.erf(x / ROOT)) / (x * x + 1),
    "a quarter": lambda x: x * 0.25 * (1 + torch.erf(x / ROOT)),
}


@pytest.mark.parametrize("name", GELUS)
def test_a_gelu_that_is_written_out(name: str) -> None:
    module, x = Fn(lambda x: GELUS[name](x * 1.5) * 2), torch.linspace(-8, 8, 4001)
    program = edge(module, (x,))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "aten.gelu.default" in targets
    assert "aten.erf.default" not in targets
    (found,) = run_ours(lower(module, (x,)).buffer, (x,))[0]
    assert (found.double() - eager64(module, (x,))[0]).abs().max() < 3e-5


NO_GELUS: dict[str, Any] = {
    "another slope": lambda x: x * 0.5 * (1 + torch.erf(x / 1.4)),
    "another factor": lambda x: (x + 1) * 0.5 * (1 + torch.erf(x / ROOT)),
    "another number": lambda x: x * 0.5 * (2 + torch.erf(x / ROOT)),
    "squared": lambda x: x * x * 0.5 * (1 + torch.erf(x / ROOT)),
    "read elsewhere": lambda x: x * 0.5 * (1 + torch.erf(x / ROOT)) + torch.erf(x / ROOT),
    "a row": lambda x: x[:1] * 0.5 * (1 + torch.erf(x / ROOT)),
}


@pytest.mark.parametrize("name", NO_GELUS)
def test_what_is_no_gelu(name: str) -> None:
    module, x = Fn(NO_GELUS[name]), torch.linspace(-8, 8, 40).view(2, 20)
    (found,) = run_ours(lower(module, (x,)).buffer, (x,))[0]
    assert (found.double() - eager64(module, (x,))[0]).abs().max() < 3e-5


def test_a_choice_in_half_precision() -> None:
    inputs = (X.clamp(-6e4, 6e4).half(), Y.clamp(-6e4, 6e4).half(), M)
    pte = lower(Fn(lambda x, y, m: torch.where(m, x, y) / 2), inputs).buffer
    assert operators(pte).count("delegate") == 1
    expected = torch.where(M, inputs[0], inputs[1]) / 2
    assert torch.equal(run_ours(pte, inputs)[0][0], expected)


def test_a_choice_of_any_size() -> None:
    class Filled(torch.nn.Module):
        def forward(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(m, -1e9) * 2

    length = torch.export.Dim("length", min=2, max=16)
    pte = lower(Filled(), (X, ROW[0]), dynamic_shapes=({1: length}, {0: length})).buffer
    assert operators(pte).count("delegate") == 1
    for size in (4, 2):
        inputs = (X[:, :size].contiguous(), ROW[0, :size].contiguous())
        assert torch.equal(run_ours(pte, inputs)[0][0], Filled()(*inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: torch.where(x * 2 > 1, x, -x) * 2,  # booleans of what is computed
        lambda x, m: torch.where(m, x.long(), 3) * 2,
    ],
    ids=["of results", "of integers"],
)
def test_what_stays(function: Any) -> None:
    inputs = (torch.randn(2, 4), M)
    pte = lower(Fn(function), inputs).buffer
    assert any("where" in op for op in operators(pte))
    (found,) = run_ours(pte, inputs)[0]
    (expected,) = eager64(Fn(function), inputs)
    assert torch.equal(found.double(), expected.double())


# Function, input; the calls that are left.
CASTS: dict[str, tuple[Any, torch.Tensor, list[str]]] = {
    "inverted": (lambda m: (1.0 - m.float()).bool(), M, ["logical_not.default"]),
    "inverted, of integers": (lambda m: (1 - m.float()).bool(), M.long() * 3, ["ne.Scalar"]),
    "inverted, of an input": (lambda m: (1 - m).bool(), M.float(), ["ne.Scalar"]),
    "to and fro": (lambda m: m.float().bool(), M.int() * 3, ["ne.Scalar"]),
    "moved": (
        lambda m: (1.0 - m[:, None].float()).bool(),
        M,
        ["unsqueeze_copy.default", "logical_not.default"],
    ),
    "twice": (lambda m: (1 - (1 - m.float())).bool(), M.int(), None),
    "equal to 0": (lambda m: m == 0, M, ["logical_not.default"]),
    "not equal to 1": (lambda m: m != 1, M, ["logical_not.default"]),
    "equal to 1": (lambda m: (m == 1).float(), M, ["_to_copy.default"]),
    "equal to 2": (lambda m: m == 2, M, ["eq.Scalar"]),
}


@pytest.mark.parametrize("name", CASTS)
def test_booleans_of_integers(name: str) -> None:
    function, x, left = CASTS[name]
    program = edge(Fn(function), (x,))
    assert left is None or spelling(program) == left
    assert_equals_eager(program, Fn(function), (x,))
