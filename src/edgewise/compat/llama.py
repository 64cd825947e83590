"""Attention over caches as ExecuTorch's scripts call it: `torch.ops.llama`, and modules of caches.

`edgewise llm export` needs none of it. It is for programs of others, such as optimum-executorch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgewise.edge import cache_operators

__all__ = ["CustomKVCache", "CustomRingKVCache", "undefine"]

# As ExecuTorch declares them; "drpout_p" is its name.
_ATTENTION = "Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None"
_DELTA_RULE = (
    "(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta, Tensor initial_state) "
    "-> (Tensor, Tensor)",
    cache_operators.gated_delta_rule,
    cache_operators.like_gated_delta_rule,
)
_OPERATORS: dict[str, tuple[str, Any, Any]] = {
    "update_cache": (
        "(Tensor value, Tensor(a!) cache, SymInt start_pos) -> Tensor",
        cache_operators.update_cache,
        lambda value, *rest, **named: value.new_empty(1),
    ),
    "update_cache_with_indices": (
        "(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices) -> Tensor",
        cache_operators.update_cache_with_indices,
        lambda value, *rest, **named: value.new_empty(1),
    ),
    "custom_quantized_sdpa": (
        f"(Tensor query, Tensor key, Tensor value, SymInt start_pos, {_ATTENTION}, "
        "Tensor? q_zero_points=None, Tensor? q_scales=None, Tensor? k_zero_points=None, "
        "Tensor? k_scales=None, Tensor? v_zero_points=None, Tensor? v_scales=None, "
        "bool is_seq_at_dim_2=False) -> Tensor",
        cache_operators.custom_quantized_sdpa,
        lambda query, *rest, **named: query.new_empty(query.shape, dtype=torch.float32),
    ),
    "custom_sdpa": (
        f"(Tensor query, Tensor key, Tensor value, SymInt start_pos, {_ATTENTION}) -> Tensor",
        cache_operators.custom_sdpa,
        cache_operators.like_query,
    ),
    "sdpa_with_kv_cache": (
        "(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
        f"SymInt start_pos, SymInt seq_len, {_ATTENTION}) -> Tensor",
        cache_operators.sdpa_with_kv_cache,
        cache_operators.like_query,
    ),
    **dict.fromkeys(("gated_delta_rule", "channelwise_gated_delta_rule"), _DELTA_RULE),
}


def _implementation(real: Any) -> Any:
    def call(*args: Any, drpout_p: float = 0.0, **named: Any) -> Any:
        return real(*args, **named)

    return call


_library: Any = torch.library.Library("llama", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name, (_schema, _real, _shape) in _OPERATORS.items():
    if not hasattr(torch.ops.llama, _name):  # a library of ExecuTorch's may be loaded
        _library.define(_name + _schema)
        _library.impl(_name, _implementation(_real), "CompositeExplicitAutograd")
        torch.library.register_fake(f"llama::{_name}", _shape, lib=_library)

custom_sdpa = torch.ops.llama.custom_sdpa


def undefine() -> None:
    """Takes the operators back: ExecuTorch's library of them ends a process that has any."""
    _library._destroy()


class CustomKVCache(nn.Module):
    """Keys and values [batch, context, heads, head's depth], written by `llama.update_cache`."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor

    def __init__(
        self,
        max_batch_size: int,
        max_context_length: int,
        n_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.max_batch_size = max_batch_size
        self.max_context_length = max_context_length
        self.n_heads = n_heads
        self.head_dim = head_dim
        shape = (max_batch_size, max_context_length, n_heads, head_dim)
        self.register_buffer("k_cache", torch.zeros(shape, dtype=dtype))
        self.register_buffer("v_cache", torch.zeros(shape, dtype=dtype))

    def update(
        self,
        input_pos: torch.Tensor,
        k_val: torch.Tensor,
        v_val: torch.Tensor,
        indices: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [batch, heads, S, depth] from `input_pos[0]` on, or to the slots
        `indices` [1, S]. Returns all that is cached: [batch, heads, context, depth]."""
        for cache, value in ((self.k_cache, k_val), (self.v_cache, v_val)):
            rows = value.transpose(1, 2)
            if indices is None:
                torch.ops.llama.update_cache(rows, cache, input_pos[0].item())
            else:
                cache.index_copy_(1, indices[0], rows)
        return self.k_cache.transpose(1, 2), self.v_cache.transpose(1, 2)


class CachePositions(nn.Module):
    """Which position of the text each slot of a ring holds: -1 before one is there."""

    cache_positions: torch.Tensor

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.register_buffer("cache_positions", torch.full((slots,), -1, dtype=torch.long))

    def take(self, start: Any, count: int) -> torch.Tensor:
        """The slots [S] of positions from `start` on, which they hold from now on."""
        positions = torch.arange(count, dtype=torch.long) + start
        slots: torch.Tensor = positions % self.slots
        self.cache_positions.index_copy_(0, slots, positions)
        return slots


class CustomRingKVCache(CustomKVCache):
    """A sliding window's: new positions take the slots of those that no query sees any more.

    max_context_length: the window. There are twice as many slots, so that as many tokens as the
    window has can come in one call.
    """

    def __init__(
        self,
        max_batch_size: int,
        max_context_length: int,
        n_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(max_batch_size, 2 * max_context_length, n_heads, head_dim, dtype)
        self.cache_positions_manager = CachePositions(self.max_context_length)
        self.is_ring_buffer = True
        self.window_size = max_context_length

    def create_causal_mask_for_ring_buffer(self, start_pos: int, seq_len: int) -> torch.Tensor:
        """What is added to scores, [S, slots]: 0 for what a query sees, else minus infinity."""
        held = self.cache_positions_manager.cache_positions
        ages = (torch.arange(seq_len, dtype=torch.long) + start_pos).view(-1, 1) - held
        seen = (held >= 0) & (ages >= 0) & (ages < self.window_size)
        return torch.where(seen, 0.0, float("-inf"))

    def update(
        self,
        input_pos: torch.Tensor,
        k_val: torch.Tensor,
        v_val: torch.Tensor,
        indices: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `CustomKVCache.update`, to the ring's next slots."""
        slots = self.cache_positions_manager.take(input_pos[0].item(), k_val.size(2))
        return super().update(input_pos, k_val, v_val, slots.unsqueeze(0))

    @classmethod
    def from_custom_kv_cache(
        cls, kv_cache: CustomKVCache, sliding_window_size: int
    ) -> CustomRingKVCache:
        """A ring for the same heads."""
        batch, _, heads, depth = kv_cache.k_cache.shape
        return cls(batch, sliding_window_size, heads, depth, kv_cache.k_cache.dtype)
