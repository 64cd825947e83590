"""The architectures that are held to eager PyTorch's tokens, and what each needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of"]


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
        "Phi-3, Phi-4-mini",
        ("phi3",),
        "queries, keys and values in one layer; positions in a part of each head; "
        "a sliding window in all layers",
        {"partial_rotary_factor": 0.75, **_WINDOW},
    ),
    Architecture("SmolLM3", ("smollm3",), "layers without positions", {"no_rope_layers": [1, 0]}),
    Architecture("OLMo2", ("olmo2",), "norms of all queries and keys; norms behind each part"),
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
)
"""SmolLM2 and TinyLlama are Llamas, Phi-4 (14B) is a Phi-3."""


def architecture_of(model_type: str) -> Architecture | None:
    """None for one that is not tested."""
    return next((row for row in ARCHITECTURES if model_type in row.model_types), None)
