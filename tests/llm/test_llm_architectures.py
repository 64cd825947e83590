"""Models of other architectures generate what they do in eager PyTorch.

`benchmarks/llm_architectures.py` runs them all; here are those that need something of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewise.llm.architectures import ARCHITECTURES, architecture_of
from edgewise.llm.export import load_model, lower_model, quantize_model, random_model
from edgewise.llm.export.decoder import CachedDecoder
from edgewise.llm.export.experts import with_linear_experts
from edgewise.llm.export.quantization import Recipe
from edgewise.runtime import Runtime

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from llm_architectures import CHUNK, CONTEXT, along, greedy, ours, peers, prompt_of, small_model

COUNT = 32


def lowered(model: Any, path: Path, **options: Any) -> Any:
    program = lower_model(model, max_context_len=CONTEXT, max_seq_len=CHUNK, **options)
    program.save(path)
    return program


def tokens_of(execute: Any, model: Any, want: list[int]) -> list[int]:
    """The best ones along eager's text."""
    return [int(logits.argmax()) for logits in along(execute, prompt_of(model), want)]


@pytest.mark.parametrize(
    ("kind", "scheme", "delegates"),
    [
        ("mistral", "none", 4),
        ("gemma2", "8da4w", 4),
        ("gemma3_text", "none", 4),
        ("phi3", "none", 4),
        ("smollm3", "8da4w", 4),
        ("gemma4_text", "none", 6),
        ("lfm2", "8da4w", 3),
        ("youtu", "none", 4),
        ("qwen3_5_text", "8da4w", 6),
        ("olmo_hybrid", "none", 6),
        ("falcon_h1", "8da4w", 4),
        ("zamba2", "none", 3),
        ("mamba", "8da4w", 6),
        pytest.param("gpt_oss", "8da4w", 16, marks=pytest.mark.slow),
        pytest.param("kimi_linear", "none", 15, marks=pytest.mark.slow),
        pytest.param("qwen3_moe", "8da4w", 16, marks=pytest.mark.slow),
    ],
)
def test_32_tokens_are_those_of_eager_pytorch(
    kind: str, scheme: str, delegates: int, tmp_path: Path
) -> None:
    model = small_model(architecture_of(kind))
    if scheme != "none":
        model = quantize_model(model, Recipe(scheme))
    program = lowered(model, tmp_path / "model.pte")
    want, _ = greedy(model, prompt_of(model), COUNT)
    assert tokens_of(ours(tmp_path / "model.pte"), model, want) == want
    # One before the first attention, one behind each, one behind the last token's choice; one in
    # each loop.
    assert len(program.delegation_report().delegates) == delegates


def test_layers_that_share_keys_have_one_cache() -> None:
    """The last one of each kind has it, in the layers that make keys."""
    model = small_model(architecture_of("gemma4_text"))
    decoder = CachedDecoder(model, CONTEXT, CHUNK)
    caches = [name for name, _ in decoder.named_buffers() if "cache" in name]
    assert caches == ["k_cache_0", "v_cache_0", "k_cache_1", "v_cache_1"]


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["gemma2", "qwen3_5_text"])
def test_the_peer_runs_what_is_computed_beside_its_attention(kind: str, tmp_path: Path) -> None:
    """Windows and soft caps; states of linear attention."""
    model = small_model(architecture_of(kind))
    lowered(model, tmp_path / "model.pte")
    want, _ = greedy(model, prompt_of(model), 12)
    assert tokens_of(peers(tmp_path / "model.pte"), model, want) == want


RECIPES = {
    "8-bit weights and activations": Recipe("8da8w"),
    "4-bit weights": Recipe("4w"),
    "8-bit weights": Recipe("8w", embedding=32),
    "mixed": Recipe(head="8da8w", embedding=4, keep_float=["model.layers.0.mlp"]),
    "the head alone": Recipe("none", head="8da4w"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name: str, tmp_path: Path) -> None:
    """The file has the tokens of the quantized model in eager PyTorch, and is smaller for it."""
    model = small_model(architecture_of("qwen3"))
    quantized = quantize_model(model, RECIPES[name])
    program = lowered(quantized, tmp_path / "model.pte")
    want, _ = greedy(quantized, prompt_of(model), 12)
    assert tokens_of(ours(tmp_path / "model.pte"), quantized, want) == want
    floats = 4 * sum(p.numel() for p in model.parameters())
    assert len(program.buffer) < 0.85 * floats
    kept = quantized.get_submodule("model.layers.0.mlp.up_proj").weight
    is_float = type(kept.data) is torch.Tensor or type(kept) is torch.nn.Parameter
    assert is_float == (name in ("mixed", "the head alone"))


def test_what_is_narrower_than_a_group_stays_in_floating_point() -> None:
    """And tables of embeddings for each layer do not."""
    model = small_model(architecture_of("gemma3n_text"))
    with pytest.warns(UserWarning, match=r"fewer inputs than a group has, 32, stay.*and 13 others"):
        quantized = quantize_model(model)
    inner = quantized.model
    for name, is_float in {
        "layers.0.altup.correction_coefs": True,
        "layers.0.mlp.up_proj": False,
        "embed_tokens_per_layer": False,
    }.items():
        assert hasattr(inner.get_submodule(name).weight, "qdata") != is_float, name


def test_weights_rounded_in_turn_lose_less() -> None:
    """GPTQ, on texts of the kind that it was shown."""
    model = small_model(architecture_of("qwen3"))
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, 60, (1, 48), generator=generator) for _ in range(9)]
    gaps = []
    with torch.no_grad():
        want = model(texts[0]).logits
        for options in ({}, {"methods": ["gptq"], "calibration": texts[1:]}):
            got = quantize_model(model, **options)(texts[0]).logits
            gaps.append(float((got - want).square().mean().sqrt() / want.std()))
    assert gaps[1] < 0.95 * gaps[0]
    assert model.config.use_cache
    with pytest.raises(ValueError, match="must come with calibration"):
        quantize_model(model, methods=["gptq"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"linear": "3w"}, "linear must be one of 8da4w"),
        ({"embedding": 5}, "2, 4, 8, 32 bits; got 5"),
        ({"group_size": 33}, "multiple of 32"),
        ({"keep_float": ["nothing"]}, "must name modules of the model; got nothing"),
    ],
)
def test_recipes_that_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize_model(small_model(architecture_of("llama")), Recipe(**values))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert"}, "attention"),
        ({"model_type": "rwkv", "num_hidden_layers": 2}, "got RwkvForCausalLM, which does not"),
        ({"model_type": "doge"}, "got a mask that DogeAttention makes of its own"),
        ({"model_type": "xlstm"}, "inputs of convolutions or states.*no attribute 'rnn_state'"),
        ({"model_type": "lfm2", "layer_types": ["nothing"]}, "no lfm2 can be made of it"),
        ({"model_type": "nothing"}, "no nothing can be made"),
    ],
)
def test_models_that_are_refused(config: dict[str, Any], message: str) -> None:
    small = {"hidden_size": 64, "vocab_size": 64, "num_attention_heads": 4, "head_dim": 16}
    more = {"num_key_value_heads": 2, "intermediate_size": 64, "num_local_experts": 2}
    with pytest.raises(ValueError, match=message):
        lower_model(random_model({**small, **more, **config}), max_context_len=32)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch": 2}, "batch needs.*shorter texts of a batch are padded.*Qwen3_5ForCausalLM"),
        ({"all_logits": True}, "all_logits needs.*drafts can be wrong.*whose recurrent state"),
    ],
)
def test_a_state_that_would_have_to_forget_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lower_model(small_model(architecture_of("qwen3_5_text")), max_context_len=32, **asked)


def test_the_text_part_of_a_model_that_also_sees(tmp_path: Path) -> None:
    """Checkpoints of Qwen3.5 have both."""
    from transformers import AutoModelForImageTextToText, Qwen3_5Config

    text = small_model(architecture_of("qwen3_5_text")).config.to_dict()
    sight = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32}
    config = Qwen3_5Config(text_config=text, vision_config={**sight, "out_hidden_size": 64})
    whole: Any = AutoModelForImageTextToText.from_config(config)
    whole.save_pretrained(tmp_path)
    model, tokens = load_model(tmp_path), torch.arange(1, 9).unsqueeze(0)
    assert architecture_of(model.config.model_type) is not None
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, whole(tokens).logits)


def test_the_page_lists_the_architectures() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "llm.md").read_text()
    for row in ARCHITECTURES:
        types = ", ".join(f"`{one}`" for one in row.model_types)
        assert f"| {row.name} | {types} | {row.needs} |" in page


def test_a_context_is_as_long_as_the_models_positions_reach() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "vocab_size": 64, "num_hidden_layers": 1}
    more = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
    model = random_model({**config, **more, "max_position_embeddings": 24})
    with pytest.warns(UserWarning, match="at most the model's max_position_embeddings, 24; got 64"):
        program = lower_model(model, max_context_len=64, max_seq_len=32)
    loaded = Runtime.get().load_program(program.buffer)
    told = {
        name: int(loaded.load_method(name).execute([])[0])
        for name in ("get_max_context_len", "get_max_seq_len")
    }
    assert told == {"get_max_context_len": 24, "get_max_seq_len": 24}


class Experts(torch.nn.Module):
    """As LongCat's: the last of six stand for the token itself. scale: of what experts give."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.randn(6, 16, 8))
        self.down_proj = torch.nn.Parameter(torch.randn(4, 8, 8))
        self.scale, self.act_fn = scale, torch.nn.SiLU()

    def forward(self, states: Any, chosen: Any, shares: Any) -> Any:
        rows = []
        for state, numbers, weights in zip(states, chosen, shares, strict=True):
            results = [self.scale * self.expert(state, int(number)) for number in numbers]
            rows.append(sum(w * result for w, result in zip(weights, results, strict=True)))
        return torch.stack(rows)

    def expert(self, state: Any, number: int) -> Any:
        if number >= len(self.down_proj):
            return state
        gate, up = (self.gate_up_proj[number] @ state).chunk(2)
        return self.down_proj[number] @ (self.act_fn(gate) * up)


def test_experts_compute_what_the_models_own_do() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(Experts()).eval()
    made = with_linear_experts(model)
    states, shares = torch.randn(5, 8), torch.rand(5, 2)
    chosen = torch.tensor([[0, 5], [1, 4], [4, 5], [2, 3], [3, 0]])
    want = model[0](states, chosen, shares)
    torch.testing.assert_close(made[0](states, chosen, shares), want)
    with pytest.raises(ValueError, match="a gate between them; got Experts, which computes"):
        with_linear_experts(torch.nn.Sequential(Experts(scale=2.0)))
