"""Causal convolutions over time whose inputs a program keeps from call to call.

The cache of such a layer is a ring as that of a sliding window: position p lies in slot
`p % slots`. So a text may be taken back by as many tokens as the ring has slots to spare, and
nothing has to be cleared for a new text: what lies before position 0 is read as zeros. A text that
can not be taken back anyway, for the sake of another layer, has a cache of the last inputs alone.
"""

from __future__ import annotations

import torch

from edgewise.llm.export.step import Convolution, Row, current_step

__all__ = ["with_inputs_before"]


def with_inputs_before(new: torch.Tensor, layer: int, width: int) -> torch.Tensor:
    """new [B, channels, S] to [B, channels, width - 1 + S]: each sequence behind the last inputs of
    the calls before, which keeps its own for the next ones."""
    step = current_step()
    if step is None:
        raise ValueError("[convolution] must run in a step; got a call outside of one")
    if step.found is not None:
        step.note(layer, Convolution(new.shape[1], width))
        return torch.nn.functional.pad(new, (width - 1, 0))
    parts = []
    for number, row in enumerate(step.rows):
        own = step.own(new, number).transpose(1, 2)
        (cache,) = step.caches[layer, Convolution, number]
        inputs = torch.cat([_before(row, cache, width), own], 1)
        if cache.shape[1] < width:
            cache.copy_(inputs[:, step.length :])
        else:
            cache.index_copy_(1, step.new_slots(row, cache.shape[1]), own)
        parts.append(inputs.transpose(1, 2))
    return step.joined(parts)


def _before(row: Row, cache: torch.Tensor, width: int) -> torch.Tensor:
    """The last [1, width - 1, channels] of a cache [1, slots, channels]."""
    positions = row.input_pos + torch.arange(1 - width, 0)
    is_ring = cache.shape[1] >= width
    found = cache.index_select(1, positions % cache.shape[1]) if is_ring else cache
    return torch.where((positions >= 0).view(1, -1, 1), found, torch.zeros(()))
