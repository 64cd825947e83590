"""Attention of `transformers` models over caches that a program keeps from call to call.

A model calls `cache.update`, which passes keys and values on, and then the attention function that
its configuration names: `attend`. That puts what is new into the caches of the layer and attends
to all that they hold. So it takes the place of both the library's caches and its masks: the model's
own code says which layers have a sliding window or a soft cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface

import edgewise.edge.cache_operators  # noqa: F401  (defines torch.ops.edgewise)
from edgewise.llm.export.step import Attention, Row, Step, current_step

__all__ = ["NAME"]

NAME = "edgewise_cache"
"""Of the attention, in `config._attn_implementation`. The library makes no masks for it."""

_STEPS = 127
"""Of an int8 on either side of 0."""


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
    step = current_step()
    if step is not None and step.cross and not module.is_causal:
        keys, values = step.cross[module.layer_idx]
        if heads := step.aligned.get(module.layer_idx):
            step.scores.append(_scores(query, keys, heads, scaling))
        # Those of all slots: as many as come before the query's last.
        before = keys.shape[1] - step.length
        rest_ = (None, 0.0, False, scaling)
        ops: Any = torch.ops.edgewise
        return ops.custom_sdpa(query.transpose(1, 2), keys, values, before, *rest_), None
    if step is None or not getattr(module, "is_causal", True):
        what = "outside of a step" if step is None else type(module).__name__
        raise ValueError(
            f"[attention] must be causal, over a cache; got {what}; "
            f"try a model that docs/llm.md lists"
        )
    if attention_mask is not None:
        raise ValueError(
            f"[attention] must hide what is not yet written, and no more; got a mask that "
            f"{type(module).__name__} makes of its own; try a model that docs/llm.md lists"
        )
    source = step.maker_of(key, module.layer_idx)
    # Keys that another layer made, and attended to, lie in its cache already.
    is_new = source not in step.attended
    step.attended.add(source)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    # Of one depth, as the operators have it: zeros add nothing to a score, and are cut from values.
    value_depth = value.shape[-1]
    depth = max(key.shape[-1], value_depth)
    layer = Attention(key.shape[1], depth, float(scale), sliding_window, softcap)
    q, k, v = (_deepened(t, depth).transpose(1, 2) for t in (query, key, value))
    if step.found is not None:
        if is_new:
            step.note(source, layer)
        return torch.zeros_like(q)[..., :value_depth], None
    results = []
    for number, row in enumerate(step.rows):
        # The weights of a step serve all sequences; keys and values are each one's own.
        new = (step.own(k, number), step.own(v, number)) if is_new else None
        caches = step.caches[source, Attention, number]
        results.append(
            _attend(step, row, layer, caches, step.own(q, number), new, rest.get("s_aux"))
        )
    result = step.joined(results)
    return (result if value_depth == depth else result[..., :value_depth]), None


def _scores(
    query: torch.Tensor, keys: torch.Tensor, heads: Sequence[int], scaling: float | None
) -> torch.Tensor:
    """Of those heads, [B, heads, S, slots]: query [B, all heads, S, D], keys [B, slots, all, D]."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    parts = [query[:, h] @ keys[:, :, h].transpose(1, 2) for h in heads]
    return torch.stack(parts, 1) * scale


def _deepened(t: torch.Tensor, depth: int) -> torch.Tensor:
    missing = depth - t.shape[-1]
    return torch.nn.functional.pad(t, (0, missing)) if missing else t


def _attend(
    step: Step,
    row: Row,
    layer: Attention,
    caches: tuple[torch.Tensor, ...],
    q: torch.Tensor,
    new: tuple[torch.Tensor, torch.Tensor] | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Of one sequence: [1, S, heads, D], or of its last tokens, as many as q has.

    new: keys and values of the step's tokens; None if they lie in the caches already. sinks: of
    each head, a score that counts among those of the keys and has no value.
    """
    ops: Any = torch.ops.edgewise
    slots = caches[0].shape[1]
    is_ring = slots < step.context
    window = layer.window if layer.window is not None and layer.window < step.context else None
    is_plain = not is_ring and window is None and not step.is_image
    rest: tuple[Any, ...] = (None, 0.0, True, layer.scale)
    count = q.shape[1]
    in_graph = layer.softcap is not None or sinks is not None
    if not is_plain or in_graph:
        mask = _mask(step, row, window, slots)
        rest = (mask if new is not None else mask[-count:], 0.0, False, layer.scale)
    if new is not None and len(caches) == 2 and not is_ring and not in_graph:
        result: torch.Tensor = ops.sdpa_with_kv_cache(
            q, *new, *caches, row.start, step.length, *rest
        )
        return result
    if new is not None:
        _write(step, row, caches, *new)
    keys, values = _read(caches)
    if in_graph:
        return _attend_in_graph(q, keys.to(q.dtype), values.to(q.dtype), rest[0], layer, sinks)
    first = row.start if new is not None else row.start + step.length - count
    result = ops.custom_sdpa(q, keys, values, 0 if is_ring else first, *rest)
    return result


def _write(
    step: Step, row: Row, caches: tuple[torch.Tensor, ...], k: torch.Tensor, v: torch.Tensor
) -> None:
    """Puts new keys and values into the caches."""
    ops: Any = torch.ops.edgewise
    slots = caches[0].shape[1]
    if len(caches) == 2 and slots == step.context:
        for new, cache in zip((k, v), caches, strict=True):
            ops.update_cache(new, cache, row.start)
        return
    at = step.new_slots(row, slots)
    if len(caches) == 2:
        for new, cache in zip((k, v), caches, strict=True):
            cache.index_copy_(1, at, new.to(cache.dtype))
        return
    for new, cache, scales in zip((k, v), caches[:2], caches[2:], strict=True):
        scale = new.abs().amax(-1, keepdim=True).clamp(min=1e-12) / _STEPS
        cache.index_copy_(1, at, torch.round(new / scale).clamp(-_STEPS, _STEPS).to(torch.int8))
        scales.index_copy_(1, at, scale)


def _read(caches: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values; those of integers as float32."""
    if len(caches) == 2:
        return caches[0], caches[1]
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
        if step.is_image:
            behind = positions < row.input_pos + step.length
            sees = sees | ((positions >= row.input_pos) & behind)
        hidden = torch.full((), -torch.inf)
        row.masks[known] = torch.where(sees, torch.zeros(()), hidden)
    return row.masks[known]


def _attend_in_graph(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    layer: Attention,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """q [B, S, heads, D], keys and values [B, slots, heads of keys, D] to [B, S, heads, D].

    A head of keys serves several of queries: their rows are one matrix. Its product with the keys
    is computed transposed, so that the larger operand, the cache, is read as it lies.
    """
    batch, length, heads, depth = q.shape
    key_heads = keys.shape[2]
    shared = heads // key_heads
    softcap = layer.softcap
    rows = (q * (layer.scale / (softcap or 1))).reshape(batch, length, key_heads, shared, depth)
    rows = rows.permute(0, 2, 4, 1, 3).reshape(batch, key_heads, depth, length * shared)
    scores = torch.matmul(keys.transpose(1, 2), rows).transpose(2, 3)
    if softcap is not None:
        scores = torch.tanh(scores) * softcap
    scores = scores.view(batch, key_heads, length, shared, keys.shape[1])
    scores = scores + mask.view(1, 1, length, 1, keys.shape[1])
    if sinks is not None:
        more = sinks.to(q.dtype).view(1, key_heads, 1, shared, 1).expand(batch, -1, length, -1, -1)
        shares = torch.softmax(torch.cat([scores, more], -1), -1)[..., :-1]
    else:
        shares = torch.softmax(scores, -1)
    shares = shares.reshape(batch, key_heads, length * shared, keys.shape[1])
    result = torch.matmul(shares, values.transpose(1, 2))
    result = result.view(batch, key_heads, length, shared, depth).permute(0, 2, 1, 3, 4)
    return result.reshape(batch, length, heads, depth)


AttentionInterface.register(NAME, attend)
