"""Caches of each kind, speculative decoding, going on beyond the context: the same tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.llm import DraftModel, Generator, PromptLookup, Sampling
from edgewise.llm.architectures import architecture_of
from edgewise.llm.export import lower_model

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from llm_architectures import greedy, prompt_of, small_model

CONTEXT, CHUNK = 100, 16
SHORTER = {"max_context_len": CONTEXT, "max_seq_len": CHUNK}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, Path]]:
    """The model in eager PyTorch, and its file."""
    folder = tmp_path_factory.mktemp("caches")
    known: dict[str, tuple[Any, Path]] = {}

    def make(kind: str = "llama", **options: Any) -> tuple[Any, Path]:
        name = kind + "".join(f"-{option}-{value}" for option, value in sorted(options.items()))
        if name not in known:
            model = small_model(architecture_of(kind))
            path = folder / f"{name}.pte"
            lower_model(model, **SHORTER, **options).save(path)
            known[name] = model, path
        return known[name]

    return make


Made = Callable[..., tuple[Any, Path]]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gemma4_text", "lfm2"])
def test_speculative_decoding_changes_no_token(kind: str, made: Made) -> None:
    """Also where most are wrong, and in caches that forget."""
    model, path = made(kind, all_logits=True)
    prompt = prompt_of(model, 20)
    want, _ = greedy(model, prompt, 40)
    generator = Generator(path)
    for draft in (PromptLookup(count=5, shortest=1), _Right(want, prompt), _Wrong()):
        assert list(generator.generate(prompt, max_new_tokens=40, draft=draft)) == want
    found = generator.statistics
    assert (found.new_tokens, found.accepted_tokens) == (40, 0)
    list(generator.generate(prompt, max_new_tokens=40, draft=_Right(want, prompt)))
    assert generator.statistics.accepted_tokens > 25


class _Right:
    def __init__(self, want: list[int], prompt: list[int]) -> None:
        self._text = [*prompt, *want]

    def propose(self, tokens: Any) -> list[int]:
        assert list(tokens) == self._text[: len(tokens)]
        return self._text[len(tokens) : len(tokens) + 4]


class _Wrong:
    def propose(self, tokens: Any) -> list[int]:
        return [(tokens[-1] + 1) % 7, 10**9, 3]


def test_a_small_model_drafts_and_sampled_tokens_are_the_same(made: Made) -> None:
    model, path = made(all_logits=True)
    prompt, generator = prompt_of(model, 9), Generator(path)
    drafts = DraftModel(Generator(path), count=3)
    sampling = Sampling(0.7, top_k=20, seed=3)
    plain = list(generator.generate(prompt, max_new_tokens=30, sampling=sampling))
    drafted = generator.generate(prompt, max_new_tokens=30, sampling=sampling, draft=drafts)
    assert list(drafted) == plain
    assert generator.statistics.accepted_tokens > 0


def test_speculative_decoding_needs_logits_of_each_token(made: Made) -> None:
    with pytest.raises(ValueError, match="--all-logits"):
        Generator(made()[1]).generate([1, 2], draft=PromptLookup())


def test_a_common_prefix_is_computed_once(made: Made) -> None:
    model, path = made()
    prompt, generator = prompt_of(model, 30), Generator(path)
    list(generator.generate(prompt, max_new_tokens=5, reuse_prefix=True))
    assert generator.statistics.reused_tokens == 0
    other = [*prompt[:20], 7, 8, 9]
    found = list(generator.generate(other, max_new_tokens=10, reuse_prefix=True))
    assert generator.statistics.reused_tokens == 20
    assert found == greedy(model, other, 10)[0]


@pytest.mark.parametrize("kind", ["gemma2", "lfm2"])
def test_a_ring_forgets_so_an_early_prefix_is_computed_again(kind: str, made: Made) -> None:
    model, path = made(kind, all_logits=True)
    prompt, generator = prompt_of(model, 60), Generator(path)
    for first, reused in ((60, 0), (50, 50), (12, 0)):
        text = [*prompt[:first], 5]
        found = list(generator.generate(text, max_new_tokens=6, reuse_prefix=True))
        assert generator.statistics.reused_tokens == reused
        assert found == greedy(model, text, 6)[0]


def test_a_state_goes_on_from_its_end_alone(made: Made) -> None:
    model, path = made("qwen3_5_text", prefix=True)
    prompt, generator = prompt_of(model, 60), Generator(path)
    generator.load(prompt[:20])
    for text, reused in ((prompt[:40], 20), ([*prompt[:30], 5], 0), ([7], 0), (prompt, 0)):
        found = list(generator.generate(text, max_new_tokens=6, reuse_prefix=True))
        assert generator.statistics.reused_tokens == reused
        assert found == greedy(model, text, 6)[0]
    text = [*text, *found]  # the last of them is not computed yet
    assert (
        list(generator.generate(text, max_new_tokens=6, reuse_prefix=True))
        == (greedy(model, text, 6)[0])
    )
    assert generator.statistics.reused_tokens == len(text) - 1


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gemma4_text", "lfm2", "qwen3_5_text"])
def test_a_prefix_is_kept_on_disk(kind: str, made: Made, tmp_path: Path) -> None:
    model, path = made(kind, prefix=True)
    prompt, saved = prompt_of(model, 40), tmp_path / "prefix.npz"
    first = Generator(path)
    first.load(prompt[:30])
    first.save_prefix(saved)
    second = Generator(path)
    assert second.load_prefix(saved) == prompt[:30]
    found = list(second.generate(prompt, max_new_tokens=12, reuse_prefix=True))
    assert second.statistics.reused_tokens == 30
    assert found == greedy(model, prompt, 12)[0]


def test_a_prefix_of_another_model_is_refused(made: Made, tmp_path: Path) -> None:
    saved = tmp_path / "prefix.npz"
    generator = Generator(made("llama", prefix=True)[1])
    with pytest.raises(ValueError, match="a prompt must be in the cache"):
        generator.save_prefix(saved)
    generator.load([1, 2, 3])
    generator.save_prefix(saved)
    with pytest.raises(ValueError, match="of the same model's file"):
        Generator(made("gemma2", prefix=True)[1]).load_prefix(saved)
    saved.write_bytes(saved.read_bytes()[:300])
    with pytest.raises(ValueError, match="a file of save_prefix"):
        generator.load_prefix(saved)
    with pytest.raises(ValueError, match="--prefix"):
        Generator(made()[1]).save_prefix(saved)


def test_the_oldest_half_is_left_out_where_the_context_is_full(made: Made) -> None:
    model, path = made()
    prompt, generator = prompt_of(model, 70), Generator(path)
    found = list(generator.generate(prompt, max_new_tokens=60, context_shift=8))
    assert generator.statistics.shifts == 1
    before = greedy(model, prompt, CONTEXT - 70 + 1)[0]
    assert found[: len(before)] == before
    text = [*prompt, *before]
    kept = [*text[:8], *text[-(CONTEXT // 2 - 8) - 1 :]]
    assert found[len(before) :] == greedy(model, kept, 60 - len(before))[0]


@pytest.mark.parametrize("kind", ["gemma2", "gemma4_text", "lfm2"])
def test_several_sequences_at_a_time(kind: str, made: Made) -> None:
    """Of other lengths, each with its own end."""
    from edgewise.llm import BatchGenerator

    model, path = made(kind, batch=3)
    prompts = [prompt_of(model, 45), prompt_of(model, 20)[::-1], [9]]
    want = [greedy(model, prompt, 20)[0] for prompt in prompts]
    assert BatchGenerator(path).generate(prompts, max_new_tokens=20) == want
    assert BatchGenerator(path).generate(prompts[1:2], max_new_tokens=20) == want[1:2]


@pytest.mark.parametrize("kind", ["llama", "gemma4_text", "lfm2", "gpt_oss"])
def test_keys_and_values_in_8_bits(kind: str, made: Made) -> None:
    """As with a cache of `transformers` that rounds each head's row to 255 steps."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scale) * scale

    check_rounding(*made(kind, kv_cache_dtype="int8"), rounded, least=1e-3)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gemma2", "gemma4_text"])
def test_keys_and_values_in_float16(kind: str, made: Made) -> None:
    """Of the whole context, of a window, with soft caps, and that layers share."""
    check_rounding(*made(kind, kv_cache_dtype="float16"), lambda x: x.half().float(), least=1e-6)


def check_rounding(
    model: Any, path: Path, rounded: Callable[[torch.Tensor], torch.Tensor], least: float
) -> None:
    """Logits are those of a cache of `transformers` that rounds keys and values."""
    from transformers import DynamicCache

    class Rounding(DynamicCache):
        def update(self, key_states: Any, value_states: Any, *rest: Any, **named: Any) -> Any:
            return super().update(rounded(key_states), rounded(value_states), *rest, **named)

    prompt = prompt_of(model, 2 * CHUNK + 1)  # the last token comes alone
    with torch.no_grad():
        result = model(
            torch.tensor([prompt]), past_key_values=Rounding(config=model.config), use_cache=True
        )
    want = result.logits[0, -1].numpy()
    assert np.abs(Generator(path).logits(prompt) - want).max() < 1e-4 * want.std()
    exact = greedy(model, prompt, 1)[1][0].numpy()
    assert np.abs(want - exact).max() > least * want.std(), "it does round"


def test_caches_in_float16_are_kept_on_disk_and_for_several_texts(
    made: Made, tmp_path: Path
) -> None:
    from edgewise.llm import BatchGenerator

    model, path = made("llama", prefix=True, kv_cache_dtype="float16")
    prompt, saved = prompt_of(model, 40), tmp_path / "prefix.npz"
    want = greedy(model, prompt, 12)[0]
    first = Generator(path)
    first.load(prompt[:30])
    first.save_prefix(saved)
    second = Generator(path)
    second.load_prefix(saved)
    assert list(second.generate(prompt, max_new_tokens=12, reuse_prefix=True)) == want
    with pytest.raises(ValueError, match="of the same model's file"):
        Generator(made("llama", prefix=True)[1]).load_prefix(saved)
    several = made("llama", batch=2, kv_cache_dtype="float16")[1]
    assert BatchGenerator(several).generate([prompt, prompt], max_new_tokens=12) == [want, want]


def test_the_type_of_a_cache_is_one_of_three(made: Made) -> None:
    model = made()[0]
    with pytest.raises(ValueError, match="kv_cache_dtype must be one of float32, float16, int8"):
        lower_model(model, **SHORTER, kv_cache_dtype="bfloat16")
    with pytest.warns(DeprecationWarning, match='kv_cache_dtype="int8"'):
        lower_model(model, **SHORTER, int8_cache=True)
