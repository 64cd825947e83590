"""Layers of `transformers` models whose state each token changes: linear attention with the gated
delta rule (Qwen3.5, Kimi Linear), state space models (Mamba, Mamba 2).

Their code asks the cache for a state, hands it to a function of its module, and gives the cache the
new one. `own_functions` puts functions for steps of a program in the place of these. A text's first
token begins with a state of zeros, whatever an earlier text left. What a state has taken in can not
be taken back: a text goes on from where it ends, or from its beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops.scan import scan
from torch.nn.functional import silu, softplus

import edgewise.edge.cache_operators  # noqa: F401  (defines torch.ops.edgewise)
from edgewise.llm.export.step import Recurrence, Step, current_step

__all__ = ["keep_state", "own_functions"]

_EPSILON = 1e-6
"""Of the library's norms of queries and keys."""


@contextmanager
def own_functions(model: torch.nn.Module) -> Iterator[None]:
    """Within it, the functions of the model's own modules are those of a program's step."""
    modules = {sys.modules[type(module).__module__] for module in model.modules()}
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for module in modules:
            for name, function in _FUNCTIONS.items():
                if hasattr(module, name):
                    replaced.append((module, name, getattr(module, name)))
                    setattr(module, name, function)
        yield
    finally:
        for module, name, original in replaced:
            setattr(module, name, original)


def keep_state(state: torch.Tensor, layer: int) -> None:
    """Leaves the state [1, ...] for the next call."""
    step = _step()
    if step.found is not None:
        step.note(layer, Recurrence(tuple(state.shape[1:])))
    else:
        step.caches[layer, Recurrence, 0][0].copy_(state)


def _step() -> Step:
    step = current_step()
    if step is None or len(step.rows) != 1:
        raise ValueError("[recurrence] must run in a step of one sequence; got none or several")
    return step


def _state(*shape: int) -> torch.Tensor:
    """What the layer that asked has kept, float32 [1, *shape]; a text's first call finds what an
    earlier one left."""
    step = _step()
    if step.found is not None:
        return torch.zeros(1, *shape)
    assert step.recurrent is not None
    return step.caches[step.recurrent, Recurrence, 0][0]


def _goes_on() -> torch.Tensor:
    """1 where a call goes on with a text, 0 where it begins one, float32 [1]."""
    return (_step().rows[0].input_pos > 0).to(torch.float32)


def _causal_conv1d(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    **rest: Any,
) -> torch.Tensor:
    """Of inputs [B, channels, width - 1 + S], weights [channels, width]: [B, channels, S].

    The library's own pads all inputs as those of a text's beginning, and cuts them off again.
    """
    from transformers.activations import ACT2FN

    channels = weight.shape[0]
    result = torch.nn.functional.conv1d(hidden_states, weight.unsqueeze(1), bias, groups=channels)
    return result if activation is None else ACT2FN[activation](result)


def _gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """query and key [1, S, heads of keys, K], value [1, S, heads, V], beta [1, S, heads]; g, the
    logarithm of decays, [1, S, heads] or [1, S, heads, K]. Returns [1, S, heads, V] and the state.
    """
    heads, depth, width = value.shape[2], key.shape[3], value.shape[3]
    state = _state(heads, depth, width)
    query, key, value, g, beta = (t.float() for t in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        query, key = _normalized(query), _normalized(key)
    query = query * depth**-0.5
    query, key = (_for_each_head(t, heads) for t in (query, key))
    # Before a text's first token all decays: so its state is one of zeros.
    step = _step()
    positions = step.rows[0].input_pos + torch.arange(step.length)
    goes_on = (positions > 0).to(torch.float32)
    decay = g.exp() * goes_on.view(-1, *[1] * (g.dim() - 2))
    by_head = (t.transpose(1, 2).contiguous() for t in (query, key, value, decay, beta))
    result, state = torch.ops.edgewise.gated_delta_rule(*by_head, state)
    return result.transpose(1, 2).contiguous(), state


def _normalized(t: torch.Tensor) -> torch.Tensor:
    return t * torch.rsqrt((t * t).sum(-1, keepdim=True) + _EPSILON)


def _for_each_head(t: torch.Tensor, heads: int) -> torch.Tensor:
    """[1, S, heads of keys, K] to [1, S, heads, K], those of one key in a row."""
    shared = heads // t.shape[2]
    if shared == 1:
        return t
    wide = t.unsqueeze(3).expand(-1, -1, -1, shared, -1)
    return wide.reshape(*t.shape[:2], heads, t.shape[3])


def _mamba2_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden_states [1, S, heads, P], dt [1, S, heads], A and D [heads], B and C [1, S, groups, N].
    Returns [1, S, heads, P] and the state.

    All tokens of a call are one chunk (arXiv:2405.21060, section 6): matrix products alone. The
    state is kept as [groups, N, heads / groups * P], so that a group's heads are one operand.
    """
    if z is not None:
        raise ValueError("[recurrence] a gate within the scan of Mamba 2 is not known")
    (_, length, heads, width), (groups, depth) = hidden_states.shape, B.shape[2:]
    shared = heads // groups
    state = _state(groups, depth, shared * width)
    x, b, c = hidden_states.float(), B.float().transpose(1, 2), C.float().transpose(1, 2)
    dt = dt.float() if dt_bias is None else dt.float() + dt_bias.float()
    dt = softplus(dt) if dt_softplus else dt
    if tuple(dt_limit) != (0.0, float("inf")):
        dt = dt.clamp(*dt_limit)
    # Sums of logarithms of decays, up to each token. A product with ones, which XNNPACK has.
    seen = torch.arange(length).unsqueeze(1) >= torch.arange(length)
    total = torch.matmul(seen.to(torch.float32), dt * A.float())
    from_before = total.exp().unsqueeze(3) * _goes_on()
    by_head = total.transpose(1, 2)
    between = by_head.unsqueeze(3) - by_head.unsqueeze(2)
    between = torch.where(seen, between, torch.full((), -torch.inf)).exp()
    scores = torch.matmul(c, b.transpose(2, 3)).unsqueeze(2)
    scores = (scores * between.view(1, groups, shared, length, length)).reshape(between.shape)
    source = x * dt.unsqueeze(3)
    result = torch.matmul(scores, source.transpose(1, 2)).transpose(1, 2).contiguous()
    recalled = torch.matmul(c, state).view(1, groups, length, shared, width).transpose(1, 2)
    result = result + recalled.reshape(1, length, heads, width) * from_before
    if D is not None:
        result = result + x * D.float().unsqueeze(1)
    last = total[:, -1:]
    source = source * (last - total).exp().unsqueeze(3)
    source = source.view(1, length, groups, shared * width).transpose(1, 2)
    decay = from_before[:, -1].view(1, groups, 1, shared, 1)
    state = (state.view(1, groups, depth, shared, width) * decay).reshape(state.shape)
    return result, state + torch.matmul(b.transpose(2, 3), source)


def _mamba_scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    **rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden_states, dt and z [1, channels, S], A [channels, N], B and C [1, N, S], D [channels].
    Returns [1, channels, S] and the state [1, channels, N].

    Each number of the state decays by itself, so that tokens are taken one by one: in a loop.
    """
    state = _state(*A.shape) * _goes_on()
    dt = dt if delta_bias is None else dt + delta_bias.unsqueeze(1)
    dt = softplus(dt) if delta_softplus else dt
    sources = (dt, dt * hidden_states, B, C)

    def take(state: torch.Tensor, token: Any) -> tuple[torch.Tensor, torch.Tensor]:
        dt, source, b, c = token
        state = state * torch.exp(dt.unsqueeze(2) * A) + source.unsqueeze(2) * b.unsqueeze(1)
        return state, (state * c.unsqueeze(1)).sum(2)

    by_token = tuple(t.permute(2, 0, 1).contiguous() for t in sources)
    state, result = scan(take, state, by_token)
    result = result.permute(1, 2, 0)
    if D is not None:
        result = result + hidden_states * D.unsqueeze(1)
    return (result if z is None else result * silu(z)), state


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": _causal_conv1d,
    "torch_chunk_gated_delta_rule": _gated_delta_rule,
    "chunk_kimi_delta_attention": _gated_delta_rule,
    "mamba2_chunk_scan": _mamba2_scan,
    "mamba_selective_scan": _mamba_scan,
}
"""By the name that the library's modules have for it, as of its version 5.24."""
