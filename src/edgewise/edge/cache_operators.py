"""Attention over what a program keeps from call to call: a cache of keys and values, or a state.

The operators and their schemas are those of ExecuTorch's namespace `llama`, under which they are
written to the file (`emit.out_variants`). They are defined here under a name of our own, so that
both packages can be imported by one program; programs made with either are lowered.

Three operators write to a cache. `thread_caches` puts a functional twin in the place of
each of these, which takes the cache and returns it, so that what is read after a write depends on
it; the file's operator writes to the cache in place (`CACHES`).

Shapes: query, key, value [B, S, heads, D]; caches [B, context, heads of keys, D]. A head of keys
serves `heads / heads of keys` heads of queries that follow one another. Caches may be of another
floating type than queries, which this runtime computes and ExecuTorch's refuses.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls, inherit_meta
from edgewise.edge.program import return_states, state_placeholders

_ATTENTION = "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, float? scale=None"
_library: Any = torch.library.Library("edgewise", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("update_cache(Tensor value, Tensor(a!) cache, SymInt start_pos) -> Tensor")
_library.define(
    "sdpa_with_kv_cache(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, "
    f"Tensor(b!) value_cache, SymInt start_pos, SymInt seq_len, {_ATTENTION}) -> Tensor"
)
_library.define(
    f"custom_sdpa(Tensor query, Tensor key, Tensor value, SymInt start_pos, {_ATTENTION}) -> Tensor"
)
_QUANTIZED = ", ".join(f"Tensor? {t}_{n}=None" for t in "qkv" for n in ("zero_points", "scales"))
_library.define(
    "update_cache_with_indices(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices) "
    "-> Tensor"
)
_library.define(
    "custom_quantized_sdpa(Tensor query, Tensor key, Tensor value, SymInt start_pos, "
    f"{_ATTENTION}, {_QUANTIZED}, bool is_seq_at_dim_2=False) -> Tensor"
)
_library.define(
    "gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta, "
    "Tensor initial_state) -> (Tensor, Tensor)"
)
_library.define(
    "update_cache_functional(Tensor value, Tensor cache, SymInt start_pos) -> (Tensor, Tensor)"
)
_library.define(
    "update_cache_with_indices_functional(Tensor value, Tensor cache, SymInt start_pos, "
    "Tensor indices) -> (Tensor, Tensor)"
)
_library.define(
    "sdpa_with_kv_cache_functional(Tensor query, Tensor key, Tensor value, Tensor key_cache, "
    f"Tensor value_cache, SymInt start_pos, SymInt seq_len, {_ATTENTION}) "
    "-> (Tensor, Tensor, Tensor)"
)


def custom_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Query i attends to the keys up to `start_pos + i` if causal, else to those that the mask
    [S, context] is added for, else to the first `start_pos + S`."""
    length = query.shape[1]
    filled = key.shape[1] if attn_mask is not None else start_pos + length
    mask = attn_mask
    if is_causal:
        at = torch.arange(length).unsqueeze(1) + start_pos
        mask = torch.arange(filled).unsqueeze(0) <= at
    keys, values = (t[:, :filled].to(query.dtype) for t in (key, value))
    q, k, v = (t.transpose(1, 2) for t in (query, keys, values))
    result = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=True
    )
    return result.transpose(1, 2).contiguous()


def update_cache(value: torch.Tensor, cache: torch.Tensor, start_pos: int) -> torch.Tensor:
    """Writes the value's rows at `start_pos`. The result says nothing."""
    cache[:, start_pos : start_pos + value.shape[1]] = value
    return value.new_empty(1)


def update_cache_with_indices(
    value: torch.Tensor, cache: torch.Tensor, start_pos: int, indices: torch.Tensor
) -> torch.Tensor:
    """Writes the value's rows to the positions `indices` [B, S]. The result says nothing."""
    batch = torch.arange(value.shape[0]).unsqueeze(1)
    cache[batch, indices] = value
    return value.new_empty(1)


def custom_quantized_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    q_zero_points: torch.Tensor | None = None,
    q_scales: torch.Tensor | None = None,
    k_zero_points: torch.Tensor | None = None,
    k_scales: torch.Tensor | None = None,
    v_zero_points: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
    is_seq_at_dim_2: bool = False,
) -> torch.Tensor:
    """`custom_sdpa` of int8 tensors [B, S, heads, D], or [B, heads, S, D] if `is_seq_at_dim_2`.

    Scales are float32, zero points int8, one for each D. The result is float32.
    """
    real = [
        (t.float() - zero.float()) * scales
        for t, zero, scales in (
            (query, q_zero_points, q_scales),
            (key, k_zero_points, k_scales),
            (value, v_zero_points, v_scales),
        )
        if zero is not None and scales is not None
    ]
    if is_seq_at_dim_2:
        real = [t.transpose(1, 2) for t in real]
    q, k, v = real
    result = custom_sdpa(q, k, v, start_pos, attn_mask, dropout_p, is_causal, scale)
    return result.transpose(1, 2).contiguous() if is_seq_at_dim_2 else result


def sdpa_with_kv_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    start_pos: int,
    seq_len: int,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """`update_cache` for keys and values, then `custom_sdpa`."""
    update_cache(key, key_cache, start_pos)
    update_cache(value, value_cache, start_pos)
    return custom_sdpa(
        query, key_cache, value_cache, start_pos, attn_mask, dropout_p, is_causal, scale
    )


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Linear attention: what a state recalls for a key is corrected towards the key's value
    (arXiv:2412.06464).

    query [B, heads, S, K]; key [B, heads of keys, S, K]; value [B, heads of keys, S, V]; decay
    [B, heads of keys, S, K], or [B, heads of keys, S] for all of a token's keys; beta
    [B, heads of keys, S]; states [B, heads of keys, K, V]. Returns [B, heads, S, V] and the state
    after the last token.
    """
    shared = query.shape[1] // key.shape[1]
    factors = decay.unsqueeze(-1) if decay.dim() == 4 else decay.view(*decay.shape, 1, 1)
    state, results = initial_state, []
    for token in range(query.shape[2]):
        k = key[:, :, token, :, None]
        state = state * factors[:, :, token]
        delta = (value[:, :, token] - (state * k).sum(-2)) * beta[:, :, token, None]
        state = state + k * delta.unsqueeze(-2)
        read = state.repeat_interleave(shared, 1)
        results.append((read * query[:, :, token, :, None]).sum(-2))
    return torch.stack(results, 2), state.clone()


def _update_functional(value: Any, cache: Any, start_pos: int) -> Any:
    cache = cache.clone()
    return update_cache(value, cache, start_pos), cache


def _update_with_indices_functional(value: Any, cache: Any, start_pos: int, indices: Any) -> Any:
    cache = cache.clone()
    return update_cache_with_indices(value, cache, start_pos, indices), cache


def _sdpa_functional(query: Any, key: Any, value: Any, keys: Any, values: Any, *rest: Any) -> Any:
    keys, values = keys.clone(), values.clone()
    return sdpa_with_kv_cache(query, key, value, keys, values, *rest), keys, values


def like_query(query: Any, *rest: Any, **named: Any) -> Any:
    """What attention gives, which lies in order however the query lies."""
    return query.new_empty(query.shape)


def like_gated_delta_rule(
    query: Any, key: Any, value: Any, decay: Any, beta: Any, initial_state: Any
) -> Any:
    """What `gated_delta_rule` gives, without values."""
    return query.new_empty(*query.shape[:3], value.shape[3]), torch.empty_like(initial_state)


_IMPLEMENTATIONS: dict[str, tuple[Any, Any]] = {
    "custom_sdpa": (custom_sdpa, like_query),
    "update_cache": (update_cache, lambda value, *rest: value.new_empty(1)),
    "update_cache_with_indices": (
        update_cache_with_indices,
        lambda value, *rest: value.new_empty(1),
    ),
    "custom_quantized_sdpa": (
        custom_quantized_sdpa,
        lambda query, *rest: query.new_empty(query.shape, dtype=torch.float32),
    ),
    "sdpa_with_kv_cache": (sdpa_with_kv_cache, like_query),
    "gated_delta_rule": (gated_delta_rule, like_gated_delta_rule),
    "update_cache_functional": (
        _update_functional,
        lambda value, cache, *rest: (value.new_empty(1), torch.empty_like(cache)),
    ),
    "update_cache_with_indices_functional": (
        _update_with_indices_functional,
        lambda value, cache, *rest: (value.new_empty(1), torch.empty_like(cache)),
    ),
    "sdpa_with_kv_cache_functional": (
        _sdpa_functional,
        lambda q, k, v, keys, values, *rest: (
            like_query(q),
            torch.empty_like(keys),
            torch.empty_like(values),
        ),
    ),
}
for _name, (_real, _shape) in _IMPLEMENTATIONS.items():
    _library.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"edgewise::{_name}", _shape, lib=_library)

CACHES: dict[Any, tuple[str, ...]] = {
    torch.ops.edgewise.update_cache_functional.default: ("cache",),
    torch.ops.edgewise.update_cache_with_indices_functional.default: ("cache",),
    torch.ops.edgewise.sdpa_with_kv_cache_functional.default: ("key_cache", "value_cache"),
}
"""The arguments that the file's operator writes to, and that the twin returns after its result."""

_NOTHING = types.SimpleNamespace(name=None)
_TWINS = {
    f"{namespace}::{twin._schema.name.split('::')[1].removesuffix('_functional')}": twin
    for twin in CACHES
    for namespace in ("edgewise", "llama")
}


def functional_twin(target: Any) -> Any:
    """The operator that returns the caches that `target` writes; None if it writes none."""
    return _TWINS.get(getattr(target, "_schema", _NOTHING).name)


def thread_caches(program: ExportedProgram) -> bool:
    """Writes to caches become new values of these. Returns whether it modified.

    A write to something else than a buffer, or to one of which an older view is read later, is
    left to torch's functionalisation.
    """
    buffers = state_placeholders(program, of_users=False)
    order = {node: index for index, node in enumerate(program.graph.nodes)}
    written: dict[Node, Node] = {}
    for node in list(calls(program.graph)):
        twin = functional_twin(node.target)
        if twin is None:
            continue
        given = list(arguments(node).values())
        names = [a.name for a in twin._schema.arguments]
        caches = [given[names.index(name)] for name in CACHES[twin]]
        if all(c in buffers and not _has_old_view(c, node, order) for c in caches):
            _replace(node, twin, given, caches, written, order)
    if not written:
        return False
    return_states(program, written)
    return True


def _has_old_view(cache: Node, write: Node, order: dict[Node, int]) -> bool:
    """Whether something made from the cache before the write is read after it."""
    return any(
        order[user] < order[write] and any(order[reader] > order[write] for reader in user.users)
        for user in cache.users
        if user in order and isinstance(user.meta.get("val"), torch.Tensor)
    )


def _replace(
    node: Node,
    twin: Any,
    given: list[Any],
    caches: list[Node],
    written: dict[Node, Node],
    order: dict[Node, int],
) -> None:
    """The twin in the node's place; what reads the caches later reads the twin's."""
    graph = node.graph
    with graph.inserting_before(node):
        call = graph.call_function(
            twin, tuple(written.get(a, a) if isinstance(a, Node) else a for a in given)
        )
        values = (node.meta["val"], *(cache.meta["val"] for cache in caches))
        call.meta["val"] = values
        inherit_meta(call, node)
        items = [graph.call_function(operator.getitem, (call, i)) for i in range(len(values))]
    for item, value in zip(items, values, strict=True):
        item.meta["val"] = value
        inherit_meta(item, node)
    node.replace_all_uses_with(items[0])
    for cache, item in zip(caches, items[1:], strict=True):
        for version in {cache, written.get(cache, cache)}:
            later = {user for user in version.users if order.get(user, -1) > order[node]}
            version.replace_all_uses_with(item, delete_user_cb=later.__contains__)
        written[cache] = item
    graph.erase_node(node)


__all__ = [
    "CACHES",
    "custom_quantized_sdpa",
    "custom_sdpa",
    "functional_twin",
    "gated_delta_rule",
    "thread_caches",
    "update_cache",
    "update_cache_with_indices",
]
