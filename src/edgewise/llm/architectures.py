"""The architectures that are held to eager PyTorch's tokens, and what each needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARCHITECTURES", "SEEING", "Architecture", "architecture_of"]


@dataclass(frozen=True)
class Architecture:
    """model_types: as in config.json. needs: beside causal attention over all that came before.
    small: values that make a small model of its kind, beside those of the preset `tiny`.
    """

    name: str
    model_types: tuple[str, ...]
    needs: str
    small: dict[str, Any] = field(default_factory=dict)


_WINDOW = {"sliding_window": 20}
_GEMMA = {
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    **_WINDOW,
}
_EXPERTS = {"num_experts_per_tok": 2}
_ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], **_WINDOW}
_SHARING = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 512,
    **_WINDOW,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
_DEEPSEEK = {
    "n_routed_experts": 4,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    **_EXPERTS,
    **_LATENT,
}
_CONVOLUTIONS = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
_DELTA_RULE = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_MAMBA2 = {
    "num_hidden_layers": 3,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
}
_SHARED_EXPERT = {
    "num_experts": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
} | _EXPERTS
_STATE_SPACE = "a state space model (Mamba 2)"

ARCHITECTURES = (
    Architecture("Llama 2, 3", ("llama",), "heads that share keys; scaled positions (Llama 3)"),
    Architecture("Mistral", ("mistral",), "a sliding window in all layers", _WINDOW),
    Architecture("Qwen2, Qwen2.5", ("qwen2",), "biases of queries, keys and values"),
    Architecture("Qwen3", ("qwen3",), "norms of queries and keys, by head", {"head_dim": 16}),
    Architecture(
        "Gemma 2",
        ("gemma2",),
        "a sliding window in every other layer; soft caps of scores and logits; "
        "scaled embeddings; norms around each part",
        _GEMMA,
    ),
    Architecture(
        "Gemma 3",
        ("gemma3_text",),
        "a sliding window in most layers, with positions of their own; norms of queries and keys",
        _GEMMA,
    ),
    Architecture(
        "Gemma 3n",
        ("gemma3n_text",),
        "layers that attend to another one's keys; embeddings for each layer; several streams of "
        "residuals",
        {
            "intermediate_size": [128] * 4,
            "activation_sparsity_pattern": [0.0] * 4,
            "laurel_rank": 8,
            **_SHARING,
        },
    ),
    Architecture(
        "Gemma 4",
        ("gemma4_text",),
        "layers that attend to another one's keys, for the last token alone; embeddings for each "
        "layer; heads of two depths",
        {"global_head_dim": 32, **_SHARING},
    ),
    Architecture(
        "Phi-3, Phi-4-mini",
        ("phi3",),
        "queries, keys and values in one layer; positions in a part of each head; "
        "a sliding window in all layers",
        {"partial_rotary_factor": 0.75, **_WINDOW},
    ),
    Architecture("SmolLM3", ("smollm3",), "layers without positions", {"no_rope_layers": [1, 0]}),
    Architecture("OLMo2", ("olmo2",), "norms of all queries and keys; norms behind each part"),
    Architecture(
        "OLMo3",
        ("olmo3",),
        "norms as OLMo2's; a sliding window in most layers",
        _ALTERNATING,
    ),
    Architecture(
        "EXAONE 4",
        ("exaone4",),
        "a sliding window in most layers, and positions in no others; norms behind each part",
        _ALTERNATING,
    ),
    Architecture(
        "Command R7B",
        ("cohere2",),
        "a sliding window in most layers, and positions in no others; attention beside the rest",
        _ALTERNATING,
    ),
    Architecture(
        "Hunyuan",
        ("hunyuan_v1_dense",),
        "norms of queries and keys behind positions",
        {"head_dim": 16},
    ),
    Architecture("LFM2", ("lfm2",), "short convolutions over time in most layers", _CONVOLUTIONS),
    Architecture(
        "LFM3",
        ("lfm3",),
        "short convolutions over time in most layers; a sliding window in others",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "sliding_attention", "conv", "full_attention"],
            **_WINDOW,
        },
    ),
    Architecture(
        "Qwen3.5",
        ("qwen3_5_text",),
        "linear attention in most layers (gated delta rule); gates of attention",
        _DELTA_RULE,
    ),
    Architecture(
        "OLMo Hybrid",
        ("olmo_hybrid",),
        "linear attention in most layers (gated delta rule)",
        {**_DELTA_RULE, "linear_num_key_heads": 4},
    ),
    Architecture(
        "Falcon-H1",
        ("falcon_h1",),
        f"attention and {_STATE_SPACE} beside each other in each layer",
        {**_MAMBA2, "mamba_d_ssm": 128, "mamba_n_groups": 2, "num_hidden_layers": 2},
    ),
    Architecture(
        "Granite 4",
        ("granitemoehybrid",),
        f"{_STATE_SPACE} in most layers, attention without positions in others; with experts or "
        "without",
        {
            **_MAMBA2,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 0,
            "shared_intermediate_size": 128,
        },
    ),
    Architecture(
        "Bamba",
        ("bamba",),
        f"{_STATE_SPACE} in most layers, attention in others",
        {**_MAMBA2, "attn_layer_indices": [1]},
    ),
    Architecture(
        "Nemotron-H",
        ("nemotron_h",),
        f"{_STATE_SPACE}, attention without positions or no more than a network, each a layer",
        {
            "layers_block_type": ["linear_attention", "full_attention", "mlp", "linear_attention"],
            "num_hidden_layers": 4,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "head_dim": 16,
        },
    ),
    Architecture(
        "Zamba2",
        ("zamba2",),
        f"{_STATE_SPACE} in each layer; one attention that several layers have in common",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "hybrid", "mamba"],
            "mamba_d_state": 16,
        },
    ),
    Architecture(
        "Mamba 2",
        ("mamba2",),
        f"{_STATE_SPACE} in each layer, no attention",
        {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1},
    ),
    Architecture(
        "Mamba",
        ("mamba", "falcon_mamba"),
        "a state space model in each layer, token by token, no attention",
    ),
    Architecture(
        "Jamba",
        ("jamba",),
        "a state space model in most layers, token by token; experts",
        {
            "num_hidden_layers": 3,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "expert_layer_period": 3,
            "expert_layer_offset": 2,
            "num_experts": 4,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
        },
    ),
    Architecture(
        "Youtu-LLM",
        ("youtu",),
        "latent attention: keys and values of different depths",
        _LATENT,
    ),
    Architecture(
        "Granite",
        ("granite",),
        "multipliers of embeddings, scores, residuals and logits",
        {
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.7,
            "logits_scaling": 2.0,
            "embedding_multiplier": 3.0,
        },
    ),
    Architecture(
        "Mixtral",
        ("mixtral",),
        "a mixture of experts in each layer",
        {"num_local_experts": 4, **_EXPERTS},
    ),
    Architecture(
        "Qwen3-MoE",
        ("qwen3_moe",),
        "a mixture of experts in each layer; norms of queries and keys, by head",
        {
            "head_dim": 16,
            "num_experts": 4,
            "moe_intermediate_size": 64,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            **_EXPERTS,
        },
    ),
    Architecture(
        "gpt-oss",
        ("gpt_oss",),
        "sinks of attention; a sliding window in every other layer; a mixture of experts with "
        "biases in each",
        {"head_dim": 16, "num_local_experts": 4} | _EXPERTS | _ALTERNATING,
    ),
    Architecture(
        "Qwen3-Next, Qwen3.5-MoE",
        ("qwen3_next", "qwen3_5_moe_text"),
        "as Qwen3.5; a mixture of experts in each layer, one of them for all tokens",
        _DELTA_RULE | _SHARED_EXPERT,
    ),
    Architecture(
        "Kimi Linear",
        ("kimi_linear",),
        "linear attention in most layers (gated delta rule), latent attention in others; a mixture "
        "of experts",
        {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "mlp_layer_types": ["dense", "sparse", "dense"],
            "num_local_experts": 4,
            "moe_intermediate_size": 64,
        }
        | _EXPERTS
        | {**_LATENT, "q_lora_rank": None},
    ),
    Architecture(
        "LFM2-MoE",
        ("lfm2_moe",),
        "short convolutions over time; a mixture of experts behind the first layers",
        {"num_experts": 4, "moe_intermediate_size": 64, "num_dense_layers": 1}
        | _EXPERTS
        | _CONVOLUTIONS,
    ),
    Architecture(
        "DeepSeek V2",
        ("deepseek_v2",),
        "latent attention; positions as complex numbers; a mixture of experts",
        _DEEPSEEK,
    ),
    Architecture(
        "DeepSeek V3",
        ("deepseek_v3",),
        "latent attention; a mixture of experts, one of them for all tokens",
        _DEEPSEEK,
    ),
)
"""SmolLM2 and TinyLlama are Llamas, Phi-4 (14B) is a Phi-3."""


SEEING: dict[str, tuple[str, str]] = {
    "llava": ("LLaVA 1.5", "the middle of the picture"),
    "vipllava": ("ViP-LLaVA", "the middle of the picture"),
    "gemma3": ("Gemma 3", "an image's tokens see each other: `image_decoder`"),
    "gemma4": ("Gemma 4 (E2B, E4B)", "embeddings for each layer, of padding for an image"),
    "idefics3": ("Idefics 3", "the whole picture; `--image-tiles`"),
    "smolvlm": (
        "SmolVLM, SmolVLM2",
        "the whole picture; `--image-tiles`; the package num2words",
    ),
    "internvl": ("InternVL 3", "the whole picture; `--image-tiles`"),
    "qwen2_vl": ("Qwen2-VL", "positions in three axes; `--image-size`"),
    "qwen2_5_vl": ("Qwen2.5-VL", "positions in three axes; windows; `--image-size`"),
    "qwen3_vl": ("Qwen3-VL", "positions in three axes; deepstack; `--image-size`"),
    "qwen3_5": ("Qwen3.5", "positions in three axes; linear attention; `--image-size`"),
}
"""By `model_type`, models that see whose text is that of transformers: name, what it takes."""

HEARING: dict[str, tuple[str, str]] = {
    "gemma4": ("Gemma 4 (E2B, E4B)", "up to 30 s; images, too"),
    "glmasr": ("GLM-ASR", "windows of 30 s"),
    "audioflamingo3": ("Audio Flamingo 3", "windows of 30 s"),
    "qwen2_audio": ("Qwen2-Audio", "up to 30 s"),
    "voxtral": ("Voxtral", "windows of 30 s"),
}
"""The same of models that hear."""


SPEECH: dict[str, str] = {
    "whisper": "Whisper",
    "parakeet_ctc": "Parakeet CTC",
    "parakeet_rnnt": "Parakeet RNN-T",
    "parakeet_tdt": "Parakeet TDT",
}
"""By `model_type`, models that write what is said as transformers does."""


def architecture_of(model_type: str) -> Architecture | None:
    """None for one that is not tested."""
    return next((row for row in ARCHITECTURES if model_type in row.model_types), None)
