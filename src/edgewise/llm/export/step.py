"""What a program's call is while it is traced: its sequences, and the state that layers keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "Attention",
    "Caches",
    "Convolution",
    "Kept",
    "Recurrence",
    "Row",
    "Step",
    "current_step",
    "running",
]


@dataclass(frozen=True)
class Attention:
    """What the model's code gives its attention in one layer, which keeps keys and values.

    heads, depth: of keys and values. window: keys that a query sees, its own last; None for all.
    softcap: scores become `softcap * tanh(score / softcap)`; None for as they are.
    """

    heads: int
    depth: int
    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(frozen=True)
class Convolution:
    """A causal convolution over time in one layer, which keeps its inputs. width: tokens that an
    output sees, its own last."""

    channels: int
    width: int


@dataclass(frozen=True)
class Recurrence:
    """A state in one layer that each token changes. shape: that of one sequence."""

    shape: tuple[int, ...]


Kept = Attention | Convolution | Recurrence
"""What a layer keeps from call to call."""


@dataclass
class Row:
    """One sequence of a step.

    start: the position of the first token; also as a tensor, int64 [1].
    """

    start: Any
    input_pos: torch.Tensor
    masks: dict[Any, torch.Tensor] = field(default_factory=dict)


Caches = dict[tuple[int, type[Kept], int], tuple[torch.Tensor, ...]]
"""By layer, what it keeps, and sequence."""


@dataclass
class Step:
    """One call of a program, while it is traced.

    length: tokens of each sequence. context: slots. caches: the tensors of a layer and sequence:
    keys and values, and the scales of both if they are integers; a convolution's inputs; a state.
    found: without caches, where is noted what layers keep. cross: by layer, keys and values of what
    is not the text. aligned: by layer, heads whose scores of what is not the text are wanted;
    scores: those, [1, heads, S, slots]. keys: of this call, with the layer that made them: others
    may attend to them, too. attended: layers whose keys some attention has read. recurrent: the
    layer that asked for its state last. is_image: the tokens are those of one image, and see each
    other.
    has_axes: positions are given in time, height and width.
    """

    rows: Sequence[Row]
    length: Any
    context: int
    caches: Caches = field(default_factory=dict)
    found: dict[tuple[int, type[Kept]], Kept] | None = None
    cross: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    aligned: Mapping[int, Sequence[int]] = field(default_factory=dict)
    scores: list[torch.Tensor] = field(default_factory=list)
    keys: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    attended: set[int] = field(default_factory=set)
    recurrent: int | None = None
    is_image: bool = False
    has_axes: bool = False

    def note(self, layer: int, kept: Kept) -> None:
        """What a layer keeps, where `found` takes it."""
        assert self.found is not None
        self.found[layer, type(kept)] = kept

    def own(self, t: torch.Tensor, number: int) -> torch.Tensor:
        """The part [1, ...] of one sequence of [B, ...]."""
        return t if len(self.rows) == 1 else t[number : number + 1]

    def joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """[B, ...] of each sequence's [1, ...]."""
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def new_slots(self, row: Row, slots: int) -> torch.Tensor:
        """Where the step's tokens lie in a cache, int64 [S]: in a ring, if it is not as long as the
        context, position p lies in slot `p % slots`."""
        positions = row.input_pos + torch.arange(self.length)
        return positions % slots if slots < self.context else positions

    def maker_of(self, key: torch.Tensor, asking: int) -> int:
        """The layer that gave the model's cache these very keys; else the one that asks."""
        return next((layer for known, layer in self.keys if known is key), asking)


_current: Step | None = None


def current_step() -> Step | None:
    """The one that runs."""
    return _current


@contextmanager
def running(step: Step) -> Iterator[None]:
    """Within it, models keep their state in that step's caches."""
    global _current
    before, _current = _current, step
    try:
        yield
    finally:
        _current = before
