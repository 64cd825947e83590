"""Attention of `transformers` models over caches that a program keeps from call to call.

A model calls `cache.update`, which passes keys and values on, and then the attention function that
its configuration names: `attend`. That puts what is new into the caches of the layer and attends
to all that they hold. So it takes the place of both the library's caches and its masks: the model's
own code says which layers have a sliding window or a soft cap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, Cache

import edgewise.edge.cache_operators  # noqa: F401  (defines torch.ops.edgewise)

__all__ = ["NAME", "Caches", "Layer", "PassingCache", "Row", "Step", "attention_of"]

NAME = "edgewise_cache"
"""Of the attention, in `config._attn_implementation`. The library makes no masks for it."""

_STEPS = 127
"""Of an int8 on either side of 0."""


@dataclass(frozen=True)
class Layer:
    """What the model's code gives its attention in one layer.

    heads, depth: of keys and values. window: keys that a query sees, its own last; None for all.
    softcap: scores become `softcap * tanh(score / softcap)`; None for as they are.
    """

    heads: int
    depth: int
    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass
class Row:
    """One sequence of a step.

    start: the position of the first token; also as a tensor, int64 [1].
    """

    start: Any
    input_pos: torch.Tensor
    masks: dict[Any, torch.Tensor] = field(default_factory=dict)


Caches = dict[tuple[int, int], tuple[torch.Tensor, ...]]
"""By layer and sequence."""


@dataclass
class Step:
    """One call of a program, while it is traced.

    length: tokens of each sequence. context: slots. caches: the tensors of a layer and sequence:
    keys and values, and the scales of both if they are integers. found: without caches, where
    layers are noted. cross: by layer, keys and values of what is not the text.
    """

    rows: Sequence[Row]
    length: Any
    context: int
    caches: Caches = field(default_factory=dict)
    found: dict[int, Layer] | None = None
    cross: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


_current: Step | None = None


@contextmanager
def attention_of(step: Step) -> Iterator[None]:
    """Within it, models attend to that step's caches."""
    global _current
    before, _current = _current, step
    try:
        yield
    finally:
        _current = before


class PassingCache(Cache):
    """Keeps nothing: `attend` does."""

    def __init__(self, start: Any) -> None:
        super().__init__(layers=[])
        self._start = start

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *rest: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What it is given."""
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """The tokens before those of the call."""
        return self._start


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, heads, S, D], key and value [B, heads of keys, S, D] to [B, S, heads, D].

    ValueError if the model asks for attention of a kind that is not known here.
    """
    step = _current
    if step is not None and step.cross and not module.is_causal:
        keys, values = step.cross[module.layer_idx]
        # Those of all slots: as many as come before the query's last.
        before = keys.shape[1] - step.length
        rest_ = (None, 0.0, False, scaling)
        ops: Any = torch.ops.edgewise
        return ops.custom_sdpa(query.transpose(1, 2), keys, values, before, *rest_), None
    if step is None or rest.get("s_aux") is not None or not getattr(module, "is_causal", True):
        what = "outside of a step" if step is None else type(module).__name__
        raise ValueError(
            f"[attention] must be causal, without sinks, over a cache; got {what}; "
            f"try a model that docs/llm.md lists"
        )
    if key.shape[-1] != value.shape[-1]:
        raise ValueError(
            f"[attention] keys and values must be of one depth; got {key.shape[-1]} and "
            f"{value.shape[-1]} in {type(module).__name__}"
        )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer = Layer(key.shape[1], key.shape[-1], float(scale), sliding_window, softcap)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    if step.found is not None:
        step.found[module.layer_idx] = layer
        return torch.zeros_like(q), None
    results = [
        _attend(step, row, layer, step.caches[module.layer_idx, number], *parts)
        for number, row in enumerate(step.rows)
        # The weights of a step serve all sequences; keys and values are each one's own.
        for parts in [[t if len(step.rows) == 1 else t[number : number + 1] for t in (q, k, v)]]
    ]
    return (results[0] if len(results) == 1 else torch.cat(results)), None


def _attend(
    step: Step,
    row: Row,
    layer: Layer,
    caches: tuple[torch.Tensor, ...],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
) -> torch.Tensor:
    """Of one sequence: [1, S, heads, D]."""
    ops: Any = torch.ops.edgewise
    slots = caches[0].shape[1]
    is_ring = slots < step.context
    window = layer.window if layer.window is not None and layer.window < step.context else None
    is_plain = not is_ring and window is None
    rest: tuple[Any, ...] = (None, 0.0, True, layer.scale)
    if not is_plain or layer.softcap is not None:
        rest = (_mask(step, row, window, slots), 0.0, False, layer.scale)
    if len(caches) == 2 and not is_ring and layer.softcap is None:
        length = step.length
        result: torch.Tensor = ops.sdpa_with_kv_cache(q, k, v, *caches, row.start, length, *rest)
        return result
    keys, values = _updated(step, row, caches, k, v)
    if layer.softcap is not None:
        floats = (keys.to(q.dtype), values.to(q.dtype))
        return _with_softcap(q, *floats, rest[0], layer.scale, layer.softcap)
    result = ops.custom_sdpa(q, keys, values, 0 if is_ring else row.start, *rest)
    return result


def _updated(
    step: Step, row: Row, caches: tuple[torch.Tensor, ...], k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The caches with the new keys and values; those of integers as float32."""
    ops: Any = torch.ops.edgewise
    slots = caches[0].shape[1]
    if len(caches) == 2 and slots == step.context:
        for new, cache in zip((k, v), caches, strict=True):
            ops.update_cache(new, cache, row.start)
        return caches[0], caches[1]
    at = row.input_pos + torch.arange(step.length)
    if slots < step.context:
        at = at % slots
    if len(caches) == 2:
        for new, cache in zip((k, v), caches, strict=True):
            cache.index_copy_(1, at, new.to(cache.dtype))
        return caches[0], caches[1]
    for new, cache, scales in zip((k, v), caches[:2], caches[2:], strict=True):
        scale = new.abs().amax(-1, keepdim=True).clamp(min=1e-12) / _STEPS
        cache.index_copy_(1, at, torch.round(new / scale).clamp(-_STEPS, _STEPS).to(torch.int8))
        scales.index_copy_(1, at, scale)
    keys, values = (c.to(torch.float32) * s for c, s in zip(caches[:2], caches[2:], strict=True))
    return keys, values


def _mask(step: Step, row: Row, window: int | None, slots: int) -> torch.Tensor:
    """[S, slots], 0 where a query sees what lies in a slot of the cache, else -infinity.

    Where there are fewer slots than positions, position p lies in slot `p % slots`, and a slot
    holds the newest position that is its own.
    """
    known = (window, slots)
    if known not in row.masks:
        queries = (row.input_pos + torch.arange(step.length)).unsqueeze(1)
        positions = torch.arange(slots).unsqueeze(0)
        if slots < step.context:
            newest = row.input_pos + (step.length - 1)
            positions = newest - torch.remainder(newest - positions, slots)
        sees = positions <= queries
        if window is not None:
            sees = sees & (positions > queries - window) & (positions >= 0)
        hidden = torch.full((), -torch.inf)
        row.masks[known] = torch.where(sees, torch.zeros(()), hidden)
    return row.masks[known]


def _with_softcap(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """q [B, S, heads, D], keys and values [B, slots, heads of keys, D] to [B, S, heads, D].

    A head of keys serves several of queries: their rows are one matrix. Its product with the keys
    is computed transposed, so that the larger operand, the cache, is read as it lies.
    """
    batch, length, heads, depth = q.shape
    key_heads = keys.shape[2]
    shared = heads // key_heads
    rows = (q * (scale / softcap)).reshape(batch, length, key_heads, shared, depth)
    rows = rows.permute(0, 2, 4, 1, 3).reshape(batch, key_heads, depth, length * shared)
    scores = torch.matmul(keys.transpose(1, 2), rows).transpose(2, 3)
    scores = torch.tanh(scores) * softcap
    scores = scores.view(batch, key_heads, length, shared, keys.shape[1])
    scores = scores + mask.view(1, 1, length, 1, keys.shape[1])
    shares = torch.softmax(scores, -1).view(batch, key_heads, length * shared, keys.shape[1])
    result = torch.matmul(shares, values.transpose(1, 2))
    result = result.view(batch, key_heads, length, shared, depth).permute(0, 2, 1, 3, 4)
    return result.reshape(batch, length, heads, depth)


AttentionInterface.register(NAME, attend)
