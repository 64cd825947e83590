"""A Llama of `transformers` as a program with a cache: `forward(tokens, input_pos) -> logits`."""

from __future__ import annotations

from typing import Any

import torch

import edgewise.edge.cache_operators  # noqa: F401  (defines torch.ops.edgewise)


class CachedLlama(torch.nn.Module):
    """The model's own layers around attention over a static cache.

    forward(tokens, input_pos): tokens int64 [1, S], S from 1 to `max_seq_len`; input_pos
    int64 [1], the position of the first of them. Returns the logits [1, vocabulary] that follow
    the last one, and leaves the tokens' keys and values in the cache.
    """

    def __init__(
        self, model: Any, max_context_len: int, kv_cache_dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        config = model.config
        self.model = model
        self.head_dim = model.model.layers[0].self_attn.head_dim
        self.max_context_len = max_context_len
        heads = config.num_key_value_heads
        positions = torch.arange(max_context_len).unsqueeze(0)
        with torch.no_grad():
            cos, sin = model.model.rotary_emb(torch.zeros(1), positions)
        self.register_buffer("cos", cos[0], persistent=False)
        # With the sign of `rotate_half`, which so is a swap of two halves.
        half = self.head_dim // 2
        sign = torch.cat([-torch.ones(half), torch.ones(half)])
        self.register_buffer("sin", sin[0] * sign, persistent=False)
        for layer in range(config.num_hidden_layers):
            for kind in ("k", "v"):
                shape = (1, max_context_len, heads, self.head_dim)
                empty = torch.zeros(shape, dtype=kv_cache_dtype)
                self.register_buffer(f"{kind}_cache_{layer}", empty, persistent=False)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        """Logits after the last token."""
        length = tokens.shape[1]
        start: Any = input_pos.item()
        check: Any = torch._check
        check(start >= 0)
        check(start + length <= self.max_context_len)
        positions = (torch.arange(length) + input_pos).view(1, -1, 1)
        tables: Any = self.cos, self.sin
        cos, sin = (torch.nn.functional.embedding(positions, table) for table in tables)
        inner = self.model.model
        x = inner.embed_tokens(tokens)
        for index, layer in enumerate(inner.layers):
            x = x + self._attend(layer.self_attn, layer.input_layernorm(x), cos, sin, start, index)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits: torch.Tensor = self.model.lm_head(inner.norm(x[:, -1]))
        return logits

    def _attend(
        self,
        attention: Any,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        start: int,
        index: int,
    ) -> torch.Tensor:
        heads = (*x.shape[:2], -1, self.head_dim)
        q = _rotate(attention.q_proj(x).view(heads), cos, sin)
        k = _rotate(attention.k_proj(x).view(heads), cos, sin)
        v = attention.v_proj(x).view(heads)
        caches = (getattr(self, f"{kind}_cache_{index}") for kind in ("k", "v"))
        result = torch.ops.edgewise.sdpa_with_kv_cache(
            q, k, v, *caches, start, x.shape[1], None, 0.0, True, attention.scaling
        )
        joined: torch.Tensor = attention.o_proj(result.reshape(*x.shape[:2], -1))
        return joined


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([second, first], -1) * sin
