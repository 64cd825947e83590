"""Programs with `torch.ops.llama` and modules of caches, next to attention without a cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest
import torch

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.compat import uninstall
from edgewise.compat.exir import to_edge_transform_and_lower
from edgewise.llm import Generator
from edgewise.runtime import Runtime

if TYPE_CHECKING:
    from edgewise.compat.llama import CustomRingKVCache

HEADS, DEPTH, CONTEXT, WINDOW = 2, 8, 24, 6


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    """Are there for these tests alone: others load ExecuTorch's library with the same ones."""
    import edgewise.compat.llama  # noqa: F401

    yield
    uninstall()


class Attention(torch.nn.Module):
    """Keys and values of a call behind those of the calls before it."""

    def __init__(self, is_ring: bool) -> None:
        super().__init__()
        from edgewise.compat.llama import CustomKVCache, CustomRingKVCache

        torch.manual_seed(0)
        self.project = torch.nn.Linear(HEADS * DEPTH, 3 * HEADS * DEPTH)
        cache = CustomKVCache(1, CONTEXT, HEADS, DEPTH)
        self.cache = CustomRingKVCache.from_custom_kv_cache(cache, WINDOW) if is_ring else cache
        self.is_ring = is_ring

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.project(x).view(1, x.shape[1], 3, HEADS, DEPTH).unbind(2)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start < CONTEXT - x.shape[1])
        q, k, v = self.split(x)
        keys, values = self.cache.update(position, k.transpose(1, 2), v.transpose(1, 2))
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        if not self.is_ring:
            return torch.ops.llama.custom_sdpa(
                q, keys, values, start_pos=start, drpout_p=0.0, is_causal=True
            )
        ring = cast("CustomRingKVCache", self.cache)
        mask = ring.create_causal_mask_for_ring_buffer(start, x.shape[1])
        return torch.ops.llama.custom_sdpa(q, keys, values, start_pos=0, attn_mask=mask)

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in self.split(x))
        ages = torch.arange(x.shape[1]).view(-1, 1) - torch.arange(x.shape[1])
        seen = (ages >= 0) & (ages < (WINDOW if self.is_ring else CONTEXT))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, attn_mask=seen).transpose(1, 2)


@pytest.mark.parametrize("is_ring", [False, True], ids=["cache", "ring"])
def test_calls_go_on_with_what_is_cached(is_ring: bool) -> None:
    model = Attention(is_ring).eval()
    length = torch.export.Dim("length", min=1, max=WINDOW)
    inputs = (torch.randn(1, 3, HEADS * DEPTH), torch.arange(3))
    program = torch.export.export(model, inputs, dynamic_shapes=({1: length}, {0: length}))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    runs = edgewise.load(lowered.to_executorch().buffer)
    text = torch.randn(1, CONTEXT - 3, HEADS * DEPTH)
    with torch.no_grad():
        wanted = model.whole(text)
    at, found = 0, []
    for count in (5, 1, 1, 6, 2, 1, 4, 1):
        found.append(runs(text[:, at : at + count], torch.arange(at, at + count)))
        at += count
    assert at == text.shape[1]
    torch.testing.assert_close(torch.cat([torch.as_tensor(f) for f in found], 1), wanted)


class Language(torch.nn.Module):
    """As optimum-executorch writes a model: all positions of a call are an input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(50, HEADS * DEPTH)
        self.attention = Attention(is_ring=False)
        self.head = torch.nn.Linear(HEADS * DEPTH, 50)

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        attended = self.attention(self.words(input_ids), cache_position)
        return self.head(attended.flatten(2))

    def text(self, prompt: list[int], count: int) -> list[int]:
        ids = list(prompt)
        for _ in range(count):
            attended = self.attention.whole(self.words(torch.tensor([ids])))
            ids.append(int(self.head(attended.flatten(2))[0, -1].argmax()))
        return ids[len(prompt) :]


def test_a_model_with_all_positions_generates() -> None:
    model = Language().eval()
    length = torch.export.Dim("length", min=1, max=WINDOW)
    program = torch.export.export(
        model,
        (),
        {"input_ids": torch.ones(1, 3, dtype=torch.long), "cache_position": torch.arange(3)},
        dynamic_shapes={"input_ids": {1: length}, "cache_position": {0: length}},
    )
    wanted = model.text([5, 6, 7, 8, 9, 10, 11, 12], 8)
    end = wanted[6]
    constants = {"get_max_seq_len": CONTEXT, "get_vocab_size": 50, "get_eos_id": end}
    lowered = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], constant_methods=constants
    )
    file = Runtime.get().load_program(lowered.to_executorch().buffer)
    generator = Generator(file)
    assert generator.eos_ids == {end}
    for prompt in ([5, 6, 7, 8, 9, 10, 11, 12], [5, 6, 7, 8]):  # more than a call, and less
        got = list(generator.generate(prompt, max_new_tokens=8, ignore_eos=True))
        assert got == model.text(prompt, 8)
    said = list(generator.generate([5, 6, 7], max_new_tokens=3, ignore_eos=True))
    # A text goes on from its end, and is computed again else: the caches may be rings.
    for prompt, reused in (([5, 6, 7, *said, 9], 5), ([5, 6, 7, 8], 0)):
        got = list(generator.generate(prompt, max_new_tokens=3, reuse_prefix=True, ignore_eos=True))
        assert got == model.text(prompt, 3)
        assert generator.statistics.reused_tokens == reused
    stops = list(generator.generate([5, 6, 7, 8, 9, 10, 11, 12]))
    assert stops == wanted[: wanted.index(end)]


def test_eager_is_the_same() -> None:
    """The operators compute in PyTorch, too: what calibration and evaluation run."""
    for is_ring in (False, True):
        model, text = Attention(is_ring).eval(), torch.randn(1, 12, HEADS * DEPTH)
        with torch.no_grad():
            parts = [model(text[:, i : i + 4], torch.arange(i, i + 4)) for i in (0, 4, 8)]
            torch.testing.assert_close(torch.cat(parts, 1), model.whole(text))


def test_keys_and_values_in_one_call() -> None:
    query, key, value = torch.randn(3, 1, 2, HEADS, DEPTH).unbind(0)
    caches = torch.zeros(2, 1, CONTEXT, HEADS, DEPTH)
    got = torch.ops.llama.sdpa_with_kv_cache(
        query, key, value, caches[0], caches[1], 0, 2, None, 0.0, True
    )
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    attend = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(got, attend(q, k, v, is_causal=True).transpose(1, 2))
    torch.testing.assert_close(caches[:, :, :2], torch.stack([key, value]))


@pytest.mark.peer
def test_uninstalled_they_are_gone() -> None:
    """ExecuTorch's library, which ends a process that has its operators already, can be loaded."""
    code = (
        "import edgewise.compat as compat; compat.install()\n"
        "from executorch.extension.llm.custom_ops.custom_ops import custom_sdpa\n"
        "compat.uninstall()\n"
        "from executorch.extension.llm.custom_ops import custom_ops\n"
        "import torch; print(torch.ops.llama.custom_sdpa.default)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "llama.custom_sdpa.default" in done.stdout, done.stderr[-2000:]
