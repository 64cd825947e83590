"""Masks and positions: what is known of them ahead of time, and attention under computed ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edge_support import assert_equals_eager, edge, spelling

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from support import Fn, assert_close, eager64, export, lower, operators, run_ours, run_peer

TRUE, ROW = torch.ones(4, dtype=torch.bool), torch.tensor([True, False, True, True])
TOKENS = torch.tensor([[3, 1, 2, 0]])
BATCH, PLACES = torch.arange(1)[:, None, None, None], torch.arange(4)[None, None, None]

SCORES = torch.linspace(-2, 3, 12).reshape(3, 4)
HEADS = torch.linspace(-2, 3, 24).reshape(1, 2, 3, 4)
ATTENTION = spelling(edge(Fn(lambda x: F.scaled_dot_product_attention(x, x, x)), (HEADS,)))

# Function, constants, input; the calls that are left.
KNOWN: dict[str, tuple[Any, dict[str, torch.Tensor], torch.Tensor, list[str]]] = {
    "and true": (lambda x, c: c & x, {"c": TRUE}, ROW, []),
    "and true, expanded": (
        lambda x, c: x.logical_and(c),
        {"c": torch.ones(2, 4, dtype=torch.bool)},
        ROW,
        ["expand_copy.default"],
    ),
    "or false": (lambda x, c: x | c, {"c": ~TRUE}, ROW, []),
    "and something": (lambda x, c: x & c, {"c": ROW}, ~ROW, ["bitwise_and.Tensor"]),
    "or true": (lambda x, c: x | c, {"c": TRUE}, ROW, ["bitwise_or.Tensor"]),
    "bits of integers": (
        lambda x, c: x & c,
        {"c": torch.ones(4, dtype=torch.int64)},
        torch.arange(4),
        ["bitwise_and.Tensor"],
    ),
    "every element in order": (
        lambda x, b, p: x[b, p],
        {"b": BATCH, "p": PLACES},
        TOKENS,
        ["view_copy.default"],
    ),
    "every element in another order": (
        lambda x, p: x[:, p],
        {"p": torch.tensor([1, 0, 2, 3])},
        TOKENS,
        ["index.Tensor"],
    ),
    "some elements": (lambda x, p: x[:, p], {"p": torch.arange(3)}, TOKENS, ["index.Tensor"]),
    "gathered zeros": (
        lambda x, c: torch.gather(c, 1, x),
        {"c": torch.zeros(1, 8, dtype=torch.int64)},
        TOKENS,
        [],
    ),
    "a softmax of scores and zeros": (
        lambda x, c: F.softmax(x + c, -1),
        {"c": torch.zeros(4)},
        SCORES,
        ["_softmax.default"],
    ),
    "zeros that make scores larger": (
        lambda x, c: F.softmax(x + c, -1),
        {"c": torch.zeros(2, 1, 4)},
        SCORES,
        ["add.Tensor", "_softmax.default"],
    ),
    "zeros that others read, too": (
        lambda x, c: (lambda s: F.softmax(s, -1) + s)(x + c),
        {"c": torch.zeros(4)},
        SCORES,
        ["add.Tensor", "_softmax.default", "add.Tensor"],
    ),
    "attention with a mask that is all true": (
        lambda x, c: F.scaled_dot_product_attention(x, x, x, c),
        {"c": torch.ones(3, 3, dtype=torch.bool)},
        HEADS,
        ATTENTION,
    ),
    "attention with a mask of zeros": (
        lambda x, c: F.scaled_dot_product_attention(x, x, x, attn_mask=c),
        {"c": torch.zeros(1, 1, 3, 3)},
        HEADS,
        ATTENTION,
    ),
    "gathered numbers": (
        lambda x, c: torch.gather(c, 1, x),
        {"c": torch.arange(8)[None]},
        TOKENS,
        ["gather.default"],
    ),
    "indexed ones": (lambda x, c: c[x], {"c": torch.ones(9, dtype=torch.int32)}, TOKENS, []),
    "nothing added": (lambda x: x + 0, {}, TOKENS, []),
    "nothing added to a bool": (lambda x: x + 0, {}, ROW, ["_to_copy.default", "add.Scalar"]),
    "nothing added to a float": (lambda x: x + 0, {}, torch.randn(3), ["add.Scalar"]),
    "a causal mask": (
        lambda x: x * (torch.arange(4)[:, None] >= torch.arange(4)[None]).to(torch.int64),
        {},
        TOKENS,
        ["mul.Tensor"],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name: str) -> None:
    function, constants, x, left = KNOWN[name]
    module = Fn(function, **constants)
    program = edge(module, (x,))
    assert [op for op in spelling(program) if op != "full.default"] == left
    assert_equals_eager(program, module, (x,))


def test_memory_that_was_not_written_is_no_constant() -> None:
    left = spelling(edge(Fn(lambda x: x + torch.empty(4) * 0), (torch.randn(4),)))
    assert any(op.startswith("empty") for op in left)


Q, K, V = (torch.randn(2, 3, 5, 8) for _ in range(3))
PADDING = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
NOTHING = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
LOWER = torch.ones(5, 5, dtype=torch.bool).tril()


def padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    mask = m.to(torch.bool)[:, None, None, :].expand(2, 1, 5, 5)
    return F.scaled_dot_product_attention(q, k, v, mask)


def causal_and_padded(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
) -> torch.Tensor:
    mask = LOWER & m.to(torch.bool)[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, mask)


def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    mask = (m > 0)[:, None, None, :]
    return F.scaled_dot_product_attention(F.scaled_dot_product_attention(q, k, v, mask), k, v, mask)


TO_BOOL, TO_FLOAT = "dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_to_dim_order_copy.out"
ATTENTION: dict[str, tuple[Any, torch.Tensor, list[str]]] = {
    "padding": (padded, PADDING, [TO_BOOL, TO_FLOAT, "delegate"]),
    "rows that attend to nothing": (padded, NOTHING, [TO_BOOL, TO_FLOAT, "delegate"]),
    "left padding under a causal mask": (
        causal_and_padded,
        PADDING.flip(-1),
        [TO_BOOL, TO_FLOAT, "delegate"],
    ),
    "one mask for two layers": (twice, PADDING, ["aten::gt.Scalar_out", TO_FLOAT, "delegate"]),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_under_a_computed_mask_is_delegated(name: str) -> None:
    function, mask, expected = ATTENTION[name]
    module, inputs = Fn(function), (Q, K, V, mask)
    pte = lower(module, inputs).buffer
    assert operators(pte) == expected
    wanted = eager64(module, inputs)
    assert_close(run_ours(pte, inputs)[0], wanted)
    assert_close(run_peer(pte, inputs)[0], wanted)


def test_attention_under_a_computed_mask_in_half_precision() -> None:
    inputs = (Q.half(), K.half(), V.half(), NOTHING)
    pte = lower(Fn(padded), inputs).buffer
    assert operators(pte)[-1] == "delegate"
    # Half precision has 11 bits; the scores pass through an exponential.
    assert_close(run_ours(pte, inputs)[0], eager64(Fn(padded), inputs), 1e-2)


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner(["linear"])]])
def test_a_mask_stays_boolean_where_nobody_takes_the_attention(partitioner: Any) -> None:
    inputs = (Q, K, V, NOTHING)
    program = edgewise.to_edge_transform_and_lower(
        export(Fn(padded), inputs), partitioner=partitioner
    ).to_executorch()
    assert "delegate" not in operators(program.buffer)
    assert not any("clamp" in op for op in operators(program.buffer))
    assert_close(run_ours(program.buffer, inputs)[0], eager64(Fn(padded), inputs))


def test_attention_under_a_computed_mask_of_any_size() -> None:
    class Padded(torch.nn.Module):
        def forward(
            self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
        ) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, (m > 0)[:, None, None, :])

    length = torch.export.Dim("length", min=2, max=16)
    dynamic = ({2: length}, {2: length}, {2: length}, {1: length})
    pte = lower(Padded(), (Q, K, V, PADDING), dynamic_shapes=dynamic).buffer
    assert operators(pte).count("delegate") == 1
    for mask in (PADDING, NOTHING, NOTHING[:, :3]):
        inputs = (*(x[:, :, : mask.shape[1]].contiguous() for x in (Q, K, V)), mask.contiguous())
        assert_close(run_ours(pte, inputs)[0], eager64(Padded(), inputs))
