"""Attention over a cache: the runtime's kernels against PyTorch in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
import edgewise.edge.cache_operators  # (defines torch.ops.edgewise)
from edgewise.runtime import Error, Runtime

CONTEXT = 150


@dataclass(frozen=True)
class Case:
    heads: int = 4
    key_heads: int = 2
    depth: int = 16
    length: int = 1
    start: int = 0
    causal: bool = True
    masked: bool = False
    dtype: torch.dtype = torch.float32
    caches: torch.dtype | None = None
    """Of the caches; None: the same."""
    batch: int = 1
    scale: float | None = None
    context: int = CONTEXT
    hidden: int = 0
    """Keys from the first on that the mask hides."""


CASES: dict[str, Case] = {
    "one position, the first": Case(),
    "one position, later": Case(start=100),
    "one position, the last": Case(start=CONTEXT - 1),
    "one position, heads in odd numbers": Case(heads=7, key_heads=7, depth=48, start=99),
    "one position, three share keys": Case(heads=6, key_heads=2, depth=64, start=64),
    "one position, far along": Case(heads=8, depth=64, context=700, start=650),
    "one position, odd depth": Case(depth=19, start=101),
    "one position, two at once": Case(batch=2, depth=32, start=45),
    "a mask, one position, many keys hidden": Case(
        start=100, depth=64, causal=False, masked=True, hidden=70
    ),
    "a mask, one position, all keys hidden": Case(
        start=100, depth=64, causal=False, masked=True, hidden=CONTEXT
    ),
    "a prompt": Case(length=40),
    "a prompt of one block": Case(length=16, start=3),
    "a prompt that fills the cache": Case(length=CONTEXT),
    "more after a prompt": Case(length=23, start=70),
    "each head of keys has one of queries": Case(heads=3, key_heads=3, start=77),
    "one head of keys for many": Case(heads=20, key_heads=1, start=130),
    "odd depth": Case(depth=19, length=5, start=9),
    "depth above one part": Case(depth=80, length=5, start=90),
    "depth of two parts": Case(depth=128, start=149),
    "two at once": Case(batch=2, length=18, start=31),
    "large, shared by threads": Case(heads=16, key_heads=8, depth=64, length=64, start=60),
    "not causal": Case(length=7, start=12, causal=False),
    "a mask": Case(length=6, start=40, causal=False, masked=True),
    "a mask, one position": Case(start=90, causal=False, masked=True),
    "a scale": Case(length=6, start=40, scale=0.9),
    "float16": Case(length=20, start=50, dtype=torch.float16),
    "bfloat16": Case(start=66, depth=64, dtype=torch.bfloat16),
    "caches in float16, one position": Case(start=101, depth=64, caches=torch.float16),
    "caches in float16, shared by threads": Case(
        heads=16, key_heads=8, depth=64, start=149, caches=torch.float16
    ),
    "caches in float16, odd depth": Case(start=40, depth=19, caches=torch.float16),
    "caches in float16, a mask": Case(
        start=90, depth=32, causal=False, masked=True, caches=torch.float16
    ),
    "caches in float16, a prompt": Case(length=40, start=3, caches=torch.float16),
    "caches in bfloat16": Case(length=1, start=77, depth=32, caches=torch.bfloat16),
    "caches in float32, the rest in float16": Case(
        start=77, depth=32, dtype=torch.float16, caches=torch.float32
    ),
}


class Attention(torch.nn.Module):
    """`sdpa_with_kv_cache`, or the two operators that it is made of."""

    def __init__(self, case: Case, whole: bool) -> None:
        super().__init__()
        self.case, self.whole = case, whole
        generator = torch.Generator().manual_seed(1)
        shape = (case.batch, case.context, case.key_heads, case.depth)
        for name in ("keys", "values"):
            filled = torch.randn(shape, generator=generator).to(case.caches or case.dtype)
            self.register_buffer(name, filled)
        mask = torch.randn(case.length, case.context, generator=generator)
        mask[torch.rand(mask.shape, generator=generator) < 0.3] = -torch.inf
        mask[:, : case.hidden] = -torch.inf
        self.register_buffer("mask", mask if case.masked else None)

    def forward(self, q: Any, k: Any, v: Any, start: Any) -> Any:
        ops: Any = torch.ops.edgewise
        at = start.item()
        rest = (self.mask, 0.0, self.case.causal, self.case.scale)
        if self.whole:
            return ops.sdpa_with_kv_cache(q, k, v, self.keys, self.values, at, q.shape[1], *rest)
        ops.update_cache(k, self.keys, at)
        ops.update_cache(v, self.values, at)
        return ops.custom_sdpa(q, self.keys, self.values, at, *rest)


def inputs_of(case: Case) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    heads = (case.heads, case.key_heads, case.key_heads)
    made = [torch.randn(case.batch, case.length, n, case.depth, generator=generator) for n in heads]
    return (*(t.to(case.dtype) for t in made), torch.tensor([case.start]))


def expected(module: Attention, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """In float64, with PyTorch's own attention."""
    case = module.case
    q, k, v = (t.double().transpose(1, 2) for t in inputs[:3])
    keys, values = (t.double().transpose(1, 2).clone() for t in (module.keys, module.values))
    end = case.start + case.length
    k, v = (t.to(module.keys.dtype).double() for t in (k, v))
    keys[:, :, case.start : end], values[:, :, case.start : end] = k, v
    mask = torch.zeros(case.length, case.context, dtype=torch.float64)
    if case.masked:
        mask = module.mask.double()
    else:
        mask[:, end:] = -torch.inf
    if case.causal:
        after = torch.arange(case.context) > torch.arange(case.start, end).unsqueeze(1)
        mask = mask.masked_fill(after, -torch.inf)
    result = torch.nn.functional.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, scale=case.scale, enable_gqa=True
    )
    sees_nothing = (mask == -torch.inf).all(-1, keepdim=True)  # NaN in PyTorch
    return result.masked_fill(sees_nothing, 0).transpose(1, 2)


def lowered(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    program = torch.export.export(module, inputs)
    return edgewise.to_edge_transform_and_lower(program).to_executorch().buffer


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "parts"])
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, whole: bool) -> None:
    case = CASES[name]
    module, inputs = Attention(case, whole), inputs_of(case)
    want = expected(module, inputs)
    method = Runtime.get().load_program(lowered(module, inputs)).load_method("forward")
    (got,) = method.execute(list(inputs))
    error = np.abs(np.asarray(got, dtype=np.float64) - want.numpy()).max()
    limits = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
    assert error < limits[case.dtype]


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    case = CASES["one position, far along"]
    inputs = inputs_of(case)
    program = lowered(Attention(case, whole=True), inputs)
    results = []
    for threads in (1, 2, 3):
        method = Runtime.get().load_program(program, threads=threads).load_method("forward")
        results.append(method.execute(list(inputs))[0])
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_the_cache_is_written_in_place_and_kept() -> None:
    """One position after the other sees what the calls before it left."""
    case = Case(length=1)
    module = Attention(case, whole=True)
    first = inputs_of(case)
    method = Runtime.get().load_program(lowered(module, first)).load_method("forward")
    q, k, v = (torch.randn(1, 9, n, case.depth) for n in (4, 2, 2))
    for at in range(9):
        part = [t[:, at : at + 1].contiguous() for t in (q, k, v)]
        (got,) = method.execute([*part, torch.tensor([at])])
    whole = Attention(Case(length=9), whole=True)
    want = expected(whole, (q, k, v, torch.tensor([0])))[:, -1:]
    assert np.abs(got - want.numpy()).max() < 2e-6


@pytest.mark.parametrize("start", [-1, CONTEXT, CONTEXT - 2])
def test_a_place_outside_of_the_cache_is_refused(start: int) -> None:
    case = Case(length=3)
    inputs = inputs_of(case)
    program = lowered(Attention(case, whole=True), inputs)
    method = Runtime.get().load_program(program).load_method("forward")
    with pytest.raises(Error, match=f"the cache holds 150 positions; got 3 from position {start}"):
        method.execute([*inputs[:3], torch.tensor([start])])


QUANTIZED: dict[str, tuple[Case, bool]] = {
    "one position": (Case(length=1, start=77), False),
    "a prompt": (Case(length=40, start=3), False),
    "heads before positions": (Case(length=9, start=31), True),
    "two at once": (Case(batch=2, length=5, start=12, depth=19), False),
    "two at once, heads before positions": (Case(batch=2, length=5, start=12), True),
    "a mask": (Case(length=6, causal=False, masked=True), False),
    "a scale": (Case(length=6, start=40, scale=0.9), False),
}
"""And whether heads are the dimension before positions."""


class QuantizedAttention(torch.nn.Module):
    """Of int8 tensors with a scale and a zero point for each row."""

    def __init__(self, case: Case, heads_first: bool) -> None:
        super().__init__()
        self.case, self.heads_first = case, heads_first
        module = Attention(case, whole=False)
        generator = torch.Generator().manual_seed(3)
        shape = (case.batch, case.context, case.key_heads, case.depth)
        for name in ("keys", "values"):
            ints, zeros, scales = rows_of(shape, generator)
            order = (0, 2, 1, 3) if heads_first else (0, 1, 2, 3)
            for part, tensor in zip(("", "_zeros", "_scales"), (ints, zeros, scales), strict=True):
                self.register_buffer(name + part, tensor.permute(order).contiguous())
        self.register_buffer("mask", module.mask)

    def forward(self, q: Any, q_zeros: Any, q_scales: Any, start: Any) -> Any:
        return torch.ops.edgewise.custom_quantized_sdpa(
            q,
            self.keys,
            self.values,
            start.item(),
            self.mask,
            0.0,
            self.case.causal,
            self.case.scale,
            q_zeros,
            q_scales,
            self.keys_zeros,
            self.keys_scales,
            self.values_zeros,
            self.values_scales,
            self.heads_first,
        )


def rows_of(shape: tuple[int, ...], generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """int8 numbers, zero points and scales."""
    one = (*shape[:-1], 1)
    ints = torch.randint(-128, 128, shape, generator=generator).to(torch.int8)
    zeros = torch.randint(-20, 20, one, generator=generator).to(torch.int8)
    return ints, zeros, torch.rand(one, generator=generator) / 50


def quantized_inputs(case: Case, heads_first: bool) -> tuple[torch.Tensor, ...]:
    shape = (case.batch, case.length, case.heads, case.depth)
    order = (0, 2, 1, 3) if heads_first else (0, 1, 2, 3)
    rows = rows_of(shape, torch.Generator().manual_seed(4))
    return (*(t.permute(order).contiguous() for t in rows), torch.tensor([case.start]))


def quantized_in_float64(
    module: QuantizedAttention, inputs: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """[B, S, heads, D], with PyTorch's own attention."""
    case = module.case

    def real(ints: Any, zeros: Any, scales: Any) -> torch.Tensor:
        numbers: torch.Tensor = (ints.double() - zeros.double()) * scales.double()
        return numbers if module.heads_first else numbers.transpose(1, 2)

    q = real(*inputs[:3])
    k = real(module.keys, module.keys_zeros, module.keys_scales)
    v = real(module.values, module.values_zeros, module.values_scales)
    if case.masked:
        mask = module.mask.double()
    else:
        seen = torch.arange(case.context) <= torch.arange(case.length).unsqueeze(1) + case.start
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    result = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=case.scale, enable_gqa=True
    )
    return result if module.heads_first else result.transpose(1, 2)


@pytest.mark.parametrize("name", QUANTIZED)
def test_attention_of_quantized_rows(name: str) -> None:
    case, heads_first = QUANTIZED[name]
    module, inputs = QuantizedAttention(case, heads_first), quantized_inputs(case, heads_first)
    want = quantized_in_float64(module, inputs).numpy()
    assert np.abs(module(*inputs).numpy() - want).max() < 1e-5
    method = Runtime.get().load_program(lowered(module, inputs)).load_method("forward")
    (got,) = method.execute(list(inputs))
    assert np.abs(got - want).max() < 1e-5


class Rows(torch.nn.Module):
    """A cache whose rows are written where indices say."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 7, 1, 3))

    def forward(self, value: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        torch.ops.edgewise.update_cache_with_indices(value, self.cache, 0, indices)
        return self.cache + 0.0


def test_rows_are_written_where_indices_say() -> None:
    value, indices = torch.randn(2, 3, 1, 3), torch.tensor([[5, 0, 2], [1, 6, 3]])
    module = Rows()
    method = Runtime.get().load_program(lowered(module, (value, indices))).load_method("forward")
    want = torch.zeros(2, 7, 1, 3)
    for first, at in ((value, indices), (value * 2, (indices + 2) % 7)):
        for batch in range(2):
            want[batch, at[batch]] = first[batch]
        (got,) = method.execute([first, at])
        assert np.array_equal(got, want.numpy())
    with pytest.raises(Error, match=r"an index must be in \[0, 6\]; got 7"):
        method.execute([value, indices + 2])


@pytest.mark.peer
@pytest.mark.parametrize("name", ["one position", "a prompt", "a mask", "two at once"])
def test_quantized_attention_computes_the_same_on_the_peer(name: str) -> None:
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
    from executorch.runtime import Runtime as PeerRuntime

    case, heads_first = QUANTIZED[name]
    module, inputs = QuantizedAttention(case, heads_first), quantized_inputs(case, heads_first)
    program = PeerRuntime.get().load_program(lowered(module, inputs))
    (got,) = program.load_method("forward").execute(list(inputs))
    assert (got.double() - quantized_in_float64(module, inputs)).abs().max() < 1e-5


@pytest.mark.peer
@pytest.mark.parametrize("name", ["a prompt", "one position, later", "a scale", "a mask"])
def test_a_program_with_the_peers_operators_computes_the_same_there(name: str) -> None:
    """The file runs on the peer's runtime, with its kernels of the same names."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
    from executorch.runtime import Runtime as PeerRuntime

    case = CASES[name]
    module, inputs = Attention(case, whole=False), inputs_of(case)
    program = PeerRuntime.get().load_program(lowered(module, inputs))
    (got,) = program.load_method("forward").execute(list(inputs))
    assert (got.double() - expected(module, inputs)).abs().max() < 2e-6
