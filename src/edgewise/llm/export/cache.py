"""The cache that a model of `transformers` is handed: what it is given becomes the step's state."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache

from edgewise.llm.export.convolution import with_inputs_before
from edgewise.llm.export.recurrence import keep_state
from edgewise.llm.export.step import current_step

__all__ = ["PassingCache"]


class PassingCache(Cache):
    """Keeps nothing itself: `attend` writes keys and values, `with_inputs_before` what a
    convolution reads, `keep_state` a state."""

    def __init__(self, start: Any) -> None:
        super().__init__(layers=[])
        self._start = start

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *rest: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What it is given."""
        step = current_step()
        if step is not None:
            step.keys.append((key_states, layer_idx))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """The tokens before those of the call."""
        return self._start

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """None: every call goes the way of a prompt, through `update_conv_state`."""

    def update_conv_state(
        self,
        conv_states: torch.Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **named: Any,
    ) -> torch.Tensor:
        """conv_states [B, channels, S] behind the inputs before them that the kernel sees."""
        if conv_kernel_size is None or state_idx:
            raise ValueError("several convolutions in one layer, or one without its width")
        return with_inputs_before(conv_states, layer_idx, conv_kernel_size)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """None, as for a convolution: the functions of `own_functions` read the layer's state."""
        step = current_step()
        if step is not None:
            step.recurrent = layer_idx

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **named: Any
    ) -> torch.Tensor:
        """The state that the next call begins with."""
        if state_idx:
            raise ValueError("several states in one layer")
        keep_state(recurrent_states, layer_idx)
        return recurrent_states
