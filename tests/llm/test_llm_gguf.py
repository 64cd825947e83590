"""GGUF files as llama.cpp's converter lays them out: what is read is the model that was written, or
what the package gguf makes of its types."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.llm.architectures import architecture_of
from edgewise.llm.config import read_config
from edgewise.llm.export import load_model, random_model

pytest.importorskip("transformers")
gguf: Any = pytest.importorskip("gguf", reason="the extra models is not installed")
OPTIONS = {**read_config("tiny"), "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 256}


@dataclass(frozen=True)
class Case:
    """architecture: llama.cpp's. values: of the configuration. metadata: beside what all files
    have, without the architecture's name. unused: more tensors."""

    architecture: str
    model_type: str
    values: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def positions(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


_EXPERTS = {"expert_count": 4, "expert_used_count": 2}
_QWEN_MOE = {**_EXPERTS, "expert_feed_forward_length": 64}
_GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 20}
_GEMMA |= {"tie_word_embeddings": True}
_WINDOW = {"attention.sliding_window": 20}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
_YARN_FILE = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
_YARN_FILE |= {"rope.scaling.original_context_length": 16}
_LONG, _SHORT = [1.0 + i for i in range(6)], [1.0 + i / 10 for i in range(6)]
_LLAMA3 = positions(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
_SHARED_KEYS = {"vocab_size_per_layer_input": 256, "tie_word_embeddings": True}
_SHARED_KEYS_FILE = {
    **_WINDOW,
    "rope.freq_base": 1e6,
    "attention.shared_kv_layers": 2,
    "attention.sliding_window_pattern": [True, False] * 2,
    "embedding_length_per_layer_input": 16,
}
_PROPORTIONAL = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
        },
    }
}
_DELTA_RULE_FILE = {
    "ssm.inner_size": 64,
    "ssm.time_step_rank": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.conv_kernel": 4,
    "rope.dimension_count": 4,
    "rope.dimension_sections": [11, 11, 10, 0],
    "attention.recurrent_layers": [True, True, False, True],
}
_MAMBA2_FILE = {
    "ssm.inner_size": 128,
    "ssm.time_step_rank": 8,
    "ssm.state_size": 16,
    "ssm.group_count": 1,
    "ssm.conv_kernel": 4,
}
_GRANITE_4 = {"position_embedding_type": "nope", "shared_intermediate_size": 192}
_GRANITE_4_FILE = {
    **_MAMBA2_FILE,
    "attention.head_count_kv": [0, 2, 0],
    "attention.scale": 0.2,
}
_GRANITE_4 |= {"attention_multiplier": 0.2}
_FALCON_MULTIPLIERS = [
    f"{of_what}_multiplier"
    for of_what in ("attention_in", "attention_out", "ssm_in", "ssm_out", "key", "embedding")
] + ["lm_head_multiplier"]
_COHERE = {"logit_scale": 0.5, "tie_word_embeddings": True}
_COHERE_FILE = {"logit_scale": 0.5, "attention.layer_norm_epsilon": 1e-5}
_EVERY_SIXTH = ["sliding_attention"] * 5 + ["full_attention"]
_MINISTRAL = {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
CASES = {
    "Llama": Case("llama", "llama"),
    "Llama with biases": Case("llama", "llama", {"attention_bias": True, "mlp_bias": True}),
    "Llama 3": Case("llama", "llama", _LLAMA3),
    "Llama, linear": Case(
        "llama",
        "llama",
        positions("linear", factor=4.0),
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "Mixtral": Case(
        "llama",
        "mixtral",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
        _EXPERTS,
    ),
    "Mistral Small 3": Case("mistral3", "mistral", {"sliding_window": None}),
    "Ministral 3": Case(
        "mistral3",
        "ministral3",
        {"sliding_window": None, **positions("yarn", **_YARN, **_MINISTRAL)},
        {
            **_YARN_FILE,
            "attention.temperature_scale": 0.1,
            "rope.scaling.yarn_log_multiplier": 1.0,
        },
    ),
    "Qwen2": Case("qwen2", "qwen2"),
    "Qwen2, YaRN": Case("qwen2", "qwen2", positions("yarn", **_YARN), _YARN_FILE),
    "Qwen2-MoE": Case(
        "qwen2moe",
        "qwen2_moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 32,
            "norm_topk_prob": False,
        },
        {**_QWEN_MOE, "expert_shared_feed_forward_length": 32},
    ),
    "Qwen3": Case("qwen3", "qwen3", {"head_dim": 32}),
    "Qwen3-MoE": Case("qwen3moe", "qwen3_moe", {"norm_topk_prob": True}, _QWEN_MOE),
    "Qwen3.5": Case(
        "qwen35",
        "qwen3_5_text",
        {},
        {**_DELTA_RULE_FILE, "block_count": 5, "nextn_predict_layers": 1},
        ("blk.4.attn_q.weight", "blk.4.nextn.eh_proj.weight"),
    ),
    "Qwen3.5-MoE": Case(
        "qwen35moe",
        "qwen3_5_moe_text",
        {},
        {**_DELTA_RULE_FILE, **_QWEN_MOE, "expert_shared_feed_forward_length": 64},
    ),
    "Gemma": Case("gemma", "gemma", {"tie_word_embeddings": True}),
    "Gemma 2": Case(
        "gemma2",
        "gemma2",
        _GEMMA,
        {**_WINDOW, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "Gemma 3": Case(
        "gemma3",
        "gemma3_text",
        {
            **_GEMMA,
            "num_hidden_layers": 6,
            "layer_types": _EVERY_SIXTH,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
        {
            **_WINDOW,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
    "Gemma 3n": Case(
        "gemma3n",
        "gemma3n_text",
        {
            **_SHARED_KEYS,
            "activation_sparsity_pattern": [0.9, 0.5, 0.0, 0.0],
            "final_logit_softcapping": 30.0,
        },
        {
            **_SHARED_KEYS_FILE,
            "activation_sparsity_scale": [1.2815515, 0.0, -math.inf, -math.inf],
            "final_logit_softcapping": 30.0,
            "altup.active_idx": 0,
            "altup.num_inputs": 4,
        },
        ("blk.2.attn_k.weight", "blk.3.attn_v.weight", "blk.3.attn_k_norm.weight"),
    ),
    "Gemma 4": Case(
        "gemma4",
        "gemma4_text",
        {**_SHARED_KEYS, **_PROPORTIONAL, "use_double_wide_mlp": True},
        {
            **_SHARED_KEYS_FILE,
            "feed_forward_length": [192, 192, 384, 384],
            "attention.key_length": 32,
            "attention.key_length_swa": 16,
        },
    ),
    "Gemma 4, keys as values": Case(
        "gemma4",
        "gemma4_text",
        {
            **_SHARED_KEYS,
            **_PROPORTIONAL,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
        {
            **_SHARED_KEYS_FILE,
            "attention.head_count_kv": [2, 1, 2, 1],
            "attention.key_length": 32,
            "attention.key_length_swa": 16,
        },
    ),
    "Phi-3": Case(
        "phi3",
        "phi3",
        {"sliding_window": None},
        {"attention.sliding_window": 0, "rope.dimension_count": 12},
    ),
    "Phi-3, long": Case(
        "phi3",
        "phi3",
        {
            "sliding_window": None,
            "max_position_embeddings": 128,
            "original_max_position_embeddings": 16,
            **positions(
                "longrope",
                long_factor=_LONG,
                short_factor=_SHORT,
                original_max_position_embeddings=16,
                factor=8.0,
            ),
        },
        {"rope.scaling.original_context_length": 16, "rope.dimension_count": 12},
    ),
    "SmolLM3": Case("smollm3", "smollm3", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}),
    "Granite": Case(
        "granite",
        "granite",
        {},
        {
            "attention.scale": 0.2,
            "residual_scale": 0.7,
            "logit_scale": 2.0,
            "embedding_scale": 3.0,
        },
    ),
    "Granite 3, experts": Case(
        "granitemoe",
        "granitemoe",
        {"num_local_experts": 4, "num_experts_per_tok": 2},
        {**_EXPERTS, "attention.scale": 1.0},
    ),
    "Granite 3, a shared expert": Case(
        "granitemoe",
        "granitemoeshared",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 96},
        {**_EXPERTS, "attention.scale": 1.0, "expert_shared_feed_forward_length": 96},
    ),
    "Granite 4": Case("granitehybrid", "granitemoehybrid", _GRANITE_4, _GRANITE_4_FILE),
    "Granite 4, experts": Case(
        "granitehybrid",
        "granitemoehybrid",
        {**_GRANITE_4, "num_local_experts": 4, "num_experts_per_tok": 2},
        {**_GRANITE_4_FILE, **_EXPERTS, "expert_shared_feed_forward_length": 192},
    ),
    "Falcon-H1": Case(
        "falcon-h1",
        "falcon_h1",
        {
            **dict.fromkeys(_FALCON_MULTIPLIERS, 1.0),
            "mlp_multipliers": [1.0, 1.0],
            "ssm_multipliers": [1.0] * 5,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
        },
        {**_MAMBA2_FILE, "ssm.group_count": 2},
    ),
    "OLMo2": Case("olmo2", "olmo2"),
    "OLMo3": Case(
        "olmo2", "olmo3", {}, {**_WINDOW, "attention.sliding_window_pattern": [True, False]}
    ),
    "OLMoE": Case(
        "olmoe",
        "olmoe",
        {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64},
        {**_QWEN_MOE, "feed_forward_length": 64},
    ),
    "EXAONE 4": Case(
        "exaone4", "exaone4", {}, {**_WINDOW, "attention.sliding_window_pattern": [True, False]}
    ),
    "Hunyuan": Case("hunyuan-dense", "hunyuan_v1_dense"),
    "gpt-oss": Case(
        "gpt-oss",
        "gpt_oss",
        positions("yarn", **_YARN, truncate=False, beta_fast=32.0, beta_slow=1.0),
        {**_WINDOW, **_QWEN_MOE, **_YARN_FILE, "expert_feed_forward_length": 192},
    ),
    "LFM2": Case(
        "lfm2",
        "lfm2",
        {"block_auto_adjust_ff_dim": False},
        {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3},
    ),
    "LFM2-MoE": Case(
        "lfm2moe",
        "lfm2_moe",
        {"tie_word_embeddings": True},
        {
            **_QWEN_MOE,
            "attention.head_count_kv": [0, 2, 0],
            "shortconv.l_cache": 3,
            "leading_dense_block_count": 1,
        },
    ),
    "Command R": Case("command-r", "cohere", _COHERE, _COHERE_FILE),
    "Command R7B": Case(
        "cohere2",
        "cohere2",
        {
            **_COHERE,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
        {**_COHERE_FILE, **_WINDOW},
    ),
    "Arcee": Case("arcee", "arcee"),
    "ERNIE 4.5": Case("ernie4_5", "ernie4_5"),
    "Seed-OSS": Case("seed_oss", "seed_oss"),
    "GLM-4": Case("glm4", "glm4"),
}
_PERMUTED = ("llama", "mistral3", "smollm3", "granite", "granitemoe", "granitehybrid", "arcee")


def small_model(case: Case) -> Any:
    row = architecture_of(case.model_type)
    values = {**OPTIONS, "num_hidden_layers": 2, "pad_token_id": None, "head_dim": 16}
    values |= {"sliding_window": 20, "tie_word_embeddings": False, **(row.small if row else {})}
    return random_model({**values, **case.values, "model_type": case.model_type})


def write_gguf(path: Path, case: Case, model: Any, kind: str = "F32") -> dict[str, Any]:
    """Returns what the weights are in the file, by its names."""
    config, architecture = model.config, case.architecture
    heads = [config.to_dict()[f"num_{kind}_heads"] for kind in ("attention", "key_value")]
    depth = config.to_dict().get("head_dim", config.hidden_size // heads[0])
    theta = (config.rope_parameters or {}).get("rope_theta", 10000.0)
    metadata = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads[0],
        "attention.head_count_kv": heads[1],
        "attention.key_length": depth,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", 1e-5),
        "rope.freq_base": theta,
        **case.metadata,
    }
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in metadata.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[list] = writer.add_array
        add[type(value)](f"{architecture}.{name}", value)
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rope = config.rope_parameters or {}
    if rope.get("rope_type") == "llama3":
        plain = 1 / theta ** (np.arange(0, 16, 2) / 16)
        scaled = model.model.rotary_emb.inv_freq.numpy()
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    for name in case.unused:
        writer.add_tensor(name, np.zeros((2, 2), np.float32))
    if architecture == "gemma4":
        writer.add_tensor("rope_freqs.weight", np.array([1.0] * 4 + [1e30] * 12, np.float32))
    for name in ("long", "short"):
        if f"{name}_factor" in rope:
            factors = np.array(rope[f"{name}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", factors)
    stored: dict[str, Any] = {}
    names = gguf.get_tensor_name_map(
        next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture),
        config.num_hidden_layers,
    )
    for name, values in in_the_files_layout(case, model):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, suffix = name.rpartition(".")
        called = f"{names.get_name(stem)}.{suffix}"
        if suffix not in ("weight", "bias") or names.get_name(stem) is None:
            called = names.get_name(name)
        stored[called] = values.astype(np.float32)
        raw, type_ = stored[called], gguf.GGMLQuantizationType[kind]
        if kind != "F32" and values.ndim > 1:
            raw = packed(raw, type_)
            stored[called] = gguf.dequantize(raw, type_)
            writer.add_tensor(called, raw, raw_dtype=type_)
        else:
            writer.add_tensor(called, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def in_the_files_layout(case: Case, model: Any) -> Any:
    """Names and values: halves of heads side by side, norms one more, gates by themselves."""
    config = model.config
    streams: dict[str, list[Any]] = {}
    for name, tensor in model.state_dict().items():
        stem, _, last = name.rpartition(".")
        values = tensor.numpy()
        if case.architecture in _PERMUTED and last in ("weight", "bias"):
            for part, count in (
                ("q_proj", config.num_attention_heads),
                ("k_proj", config.num_key_value_heads),
            ):
                if stem.endswith(part):
                    halves = values.reshape(count, 2, -1, *values.shape[1:])
                    values = halves.swapaxes(1, 2).reshape(values.shape)
        has_more = case.architecture in ("gemma", "gemma2", "gemma3", "qwen35", "qwen35moe")
        if has_more and name.endswith("norm.weight") and ".linear_attn." not in name:
            values = values + 1
        if match := re.search(r"\.linear_attn\.(\w+)", name):
            values = in_the_order_of_keys(config, match[1], values)
        if match := re.fullmatch(r"(.*altup_\w*projections)\.(\d)\.weight", name):
            streams.setdefault(f"{match[1]}.weight", []).append(values)
        elif last in ("A_log", "dt_bias"):
            is_rate = last == "A_log"
            yield (
                name if is_rate else f"{stem}.dt_proj.bias",
                -np.exp(values) if is_rate else values,
            )
        elif match := re.search(r"layers\.(\d+)\.(?:shared_mlp|block_sparse_moe)\.(.*)", name):
            has_experts = getattr(config, "num_local_experts", 0)
            suffix = "_exps" if "experts" in match[2] else "_shexp" if has_experts else ""
            parts = {f"down{suffix}": values}
            if match[2] == "router.weight":
                parts = {"gate_inp": values}
            elif match[2] in ("input_linear.weight", "experts.gate_up_proj"):
                both = np.split(values, 2, -2)
                parts = {f"gate{suffix}": both[0], f"up{suffix}": both[1]}
            for part, one in parts.items():
                yield f"blk.{match[1]}.ffn_{part}.weight", np.ascontiguousarray(one)
        elif ".experts." in name:
            suffix = "bias" if last.endswith("_bias") else "weight"
            parts = {last.removesuffix("_bias"): values}
            if last.startswith("gate_up_proj"):
                half = values.shape[1] // 2
                gate_up = (values[:, :half], values[:, half:])
                if case.architecture == "gpt-oss":
                    gate_up = (values[..., ::2], values[..., 1::2])
                parts = dict(zip(("gate_proj", "up_proj"), gate_up, strict=True))
            for part, one in parts.items():
                is_turned = case.architecture == "gpt-oss" and suffix == "weight"
                turned = one.swapaxes(1, 2) if is_turned else one
                yield f"{stem}.{part}.{suffix}", np.ascontiguousarray(turned)
        elif last == "sinks":
            yield f"{name}.weight", values
        else:
            is_depthwise = stem.endswith(("conv.conv", ".conv1d")) and last == "weight"
            yield name, values.squeeze(1) if is_depthwise else values
    for name, all_values in streams.items():
        yield name, np.stack(all_values)


def in_the_order_of_keys(config: Any, kind: str, values: Any) -> Any:
    """Of the gated delta rule: each key's first head of values, then each key's second one."""
    if kind == "norm":
        return values
    keys, heads = config.linear_num_key_heads, config.linear_num_value_heads
    small = kind in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")
    own = heads * (1 if small else config.linear_value_head_dim)
    axis = 1 if kind == "out_proj" else 0
    others, mine = np.split(values, [values.shape[axis] - own], axis)
    parts = np.split(mine, heads, axis)
    order = [key * (heads // keys) + i for i in range(heads // keys) for key in range(keys)]
    return np.concatenate([others, *(parts[i] for i in order)], axis)


def packed(values: Any, kind: Any) -> Any:
    """By the package gguf; types that it cannot quantize to are random blocks."""
    if not kind.name.endswith("_K"):
        return gguf.quantize(values, kind)
    size, bytes_ = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(values.size)
    rows = generator.integers(0, 256, (values.size // size, bytes_), dtype=np.uint8)
    for spot in (0, 2) if kind.name == "Q4_K" else (bytes_ - 2,):  # scales, in float16
        rows[:, spot : spot + 2] = np.frombuffer(np.float16(0.01).tobytes(), dtype=np.uint8)
    return rows.reshape(values.shape[0], -1)


@pytest.mark.parametrize("name", CASES)
def test_families(name: str, tmp_path: Path) -> None:
    """llama.cpp's own converter and runtime agree on all of them but Phi-3's window, OLMoE,
    EXAONE 4 of two layers and, in one token, Gemma 3n and
    Qwen3.5-MoE: `benchmarks/gguf_sources.py`."""
    case = CASES[name]
    model = small_model(case)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    model.tie_weights()
    write_gguf(tmp_path / "model.gguf", case, model)
    found = load_model(tmp_path / "model.gguf")
    assert found.config.model_type == case.model_type
    assert found.config.eos_token_id == 2
    text = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        got, want = (m(text, use_cache=False).logits for m in (found, model))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.std()))


_WIDE = {"hidden_size": 256, "intermediate_size": 512}  # in blocks of 256


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16", "MXFP4"])
def test_types(kind: str, tmp_path: Path) -> None:
    case = CASES["Qwen2"]
    model = random_model({**OPTIONS, "model_type": "qwen2", **_WIDE})
    stored = write_gguf(tmp_path / "model.gguf", case, model, kind)
    state = load_model(tmp_path / "model.gguf").state_dict()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
    for name, weight in state.items():
        if name != "lm_head.weight":
            stem, _, suffix = name.rpartition(".")
            want = stored[f"{names.get_name(stem)}.{suffix}"]
            np.testing.assert_array_equal(weight.numpy(), want, err_msg=name)


def test_a_model_in_several_files(tmp_path: Path) -> None:
    case = CASES["Qwen3"]
    model = small_model(case)
    write_gguf(tmp_path / "whole.gguf", case, model)
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    reader = gguf.GGUFReader(tmp_path / "whole.gguf")
    for path, tensors in ((first, reader.tensors[:7]), (second, reader.tensors[7:])):
        writer = gguf.GGUFWriter(path, case.architecture)
        for field_ in reader.fields.values() if path == first else ():
            if field_.name.startswith(case.architecture):
                add = writer.add_float32 if field_.types[0].name == "FLOAT32" else writer.add_uint32
                add(field_.name, field_.contents())
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    found, want = load_model(first).state_dict(), model.state_dict()
    assert all(torch.equal(found[name], want[name]) for name in want)
    second.unlink()
    with pytest.raises(FileNotFoundError, match=r"got no m-00002-of-00002\.gguf"):
        load_model(first)


def test_another_family_and_its_positions(tmp_path: Path) -> None:
    """Read by `transformers`, which would leave the scaling out."""
    case = Case("stablelm", "stablelm", {"partial_rotary_factor": 0.25})
    model = small_model(case)
    scaled = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    more = {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 4}
    for metadata in (more, {**more, **scaled}):
        path = tmp_path / f"{len(metadata)}.gguf"
        write_gguf(path, Case("stablelm", "stablelm", {}, metadata), model)
    assert type(load_model(tmp_path / "2.gguf")) is type(model)
    with pytest.raises(ValueError, match=r"positions that are scaled .* got stablelm; try one of"):
        load_model(tmp_path / "4.gguf")


DAMAGED = {
    "none": b"",
    "text": b"a text" * 40,
    "cut": b"GGUF\x03\x00\x00\x00" + b"\x01\x00\x00\x00\x00\x00\x00\x00" * 2,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match="must be a whole GGUF file"):
        load_model(path)


def test_what_a_file_must_have(tmp_path: Path) -> None:
    case = CASES["Llama"]
    model = small_model(case)
    kept = model.model.layers[1]
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 2
    write_gguf(tmp_path / "model.gguf", case, model)
    with pytest.raises(ValueError, match=r"must hold all weights; got none for model\.layers\.1"):
        load_model(tmp_path / "model.gguf")
    model.model.layers.append(kept)
    with_bias = random_model({**OPTIONS, "model_type": "qwen3", "attention_bias": True})
    write_gguf(tmp_path / "model.gguf", CASES["Qwen3"], with_bias)
    with pytest.raises(ValueError, match=r"8 that qwen3 does not, blk\.0\.attn_k\.bias first"):
        load_model(tmp_path / "model.gguf")
    unknown = {"rope.scaling.type": "helical"}
    write_gguf(tmp_path / "model.gguf", Case("llama", "llama", {}, unknown), model)
    with pytest.raises(ValueError, match="linear, yarn or longrope; got helical"):
        load_model(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("architecture", "pre", "numbers"),
    [
        ("qwen2", "qwen2", 3),
        ("smollm3", "smollm", 3),
        ("granite", "refact", 3),
        ("olmo2", "gpt-2", 1),
    ],
)
def test_the_tokenizer_of_a_gguf(architecture: str, pre: str, numbers: int, tmp_path: Path) -> None:
    """With its chat template, in the folder that the commands look for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from edgewise.llm.chat import Chat
    from edgewise.llm.export import copy_tokenizer
    from edgewise.llm.text import load_tokenizer

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["a trained tokenizer, trained on a text", "424"] * 3, trainer)
    learned = json.loads(made.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].get)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0].content }}<|end|>")
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = copy_tokenizer(path, tmp_path / "small.pte")
    assert folder == tmp_path / "small.tokenizer"
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("a trained text") == made.encode("a trained text").ids
    assert len(tokenizer.encode("424")) == numbers  # each digit by itself, or all of them
    chat = Chat(tokenizer, folder)
    assert chat.text([{"role": "user", "content": "Hi"}]) == "Hi<|end|>"
    assert chat.eos_ids == {1}


def test_an_unknown_way_of_splitting_is_told(tmp_path: Path) -> None:
    from edgewise.llm.export import copy_tokenizer

    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("martian")
    writer.add_token_list(["a", "b", "ab"])
    writer.add_token_merges(["a b"])
    writer.add_token_types([1, 1, 1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.warns(UserWarning, match="splits texts as 'martian', which is not known"):
        assert copy_tokenizer(path, tmp_path / "small.pte") is not None
