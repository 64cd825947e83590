"""Calibration data: checked against the example inputs, run with a progress bar."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch

Batch = tuple[Any, ...]

STUDIED = 32
"""Batches that methods look at, held in memory; calibration goes through all that are given."""


def as_batch(value: Any) -> Batch:
    """A tensor stands for a call with this one argument."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    return (value,)


def calibrate(
    run: Callable[..., Any],
    batches: Iterable[Any],
    example: Sequence[Any],
    *,
    any_size: bool = False,
    progress: bool = True,
) -> int:
    """Calls `run` on every batch; how many there were.

    any_size: sizes may differ from the example's (dynamic shapes). ValueError for a batch
    that does not fit the example inputs, or if there is none.
    """
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise TypeError(
            f"[quantize] calibration must be batches of inputs, each a tuple, or a tensor for one "
            f"input; got {type(batches).__name__}; try a list of them"
        )
    count = 0
    for batch in _shown(batches, progress):
        arguments = as_batch(batch)
        _check(count, arguments, example, any_size)
        with torch.no_grad():
            run(*arguments)
        count += 1
    if count == 0:
        raise ValueError(
            "[quantize] calibration must hold at least one batch; got none; "
            "try a list of inputs such as the model will see"
        )
    return count


def first_batches(
    batches: Iterable[Any], example: Sequence[Any], *, any_size: bool = False, count: int = STUDIED
) -> tuple[list[Batch], Iterable[Any]]:
    """The first `count` batches, checked as `calibrate` does, and all of them as they were given.

    Batches that come one by one are read no further.
    """
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        return [], batches  # `calibrate` refuses them
    given = iter(batches)
    held = list(itertools.islice(given, count))
    found = [as_batch(batch) for batch in held]
    for index, batch in enumerate(found):
        _check(index, batch, example, any_size)
    return found, batches if isinstance(batches, Sequence) else itertools.chain(held, given)


def _shown(batches: Iterable[Any], progress: bool) -> Iterator[Any]:
    if not progress:
        return iter(batches)
    from tqdm import tqdm

    total = len(batches) if isinstance(batches, Sized) else None
    # Nothing is drawn for what is done within a second.
    return iter(tqdm(batches, "calibrating", total, unit="batch", leave=False, delay=1.0))


def _check(index: int, batch: Batch, example: Sequence[Any], any_size: bool) -> None:
    where = f"[quantize] calibration batch {index}"
    if len(batch) != len(example):
        hint = "a tuple with one item for each argument of forward"
        if len(batch) == len(example) + 1:
            hint += "; of (inputs, label) pairs the inputs alone"
        raise ValueError(f"{where} must have {len(example)} inputs; got {len(batch)}; try {hint}")
    for position, (given, expected) in enumerate(zip(batch, example, strict=True)):
        if not isinstance(expected, torch.Tensor):
            continue
        if not isinstance(given, torch.Tensor):
            raise ValueError(
                f"{where}: input {position} must be a tensor; got {type(given).__name__}; "
                f"try {_hint(given)}"
            )
        same_shape = given.dim() == expected.dim() if any_size else given.shape == expected.shape
        if given.dtype != expected.dtype or not same_shape:
            hint = ""
            if given.shape == expected.shape[1:] and expected.shape[0] == 1:
                hint = "; try x[None], or data.split(1) of a tensor of many"
            elif given.dim() == 4 and given.permute(0, 3, 1, 2).shape == expected.shape:
                hint = "; try x.permute(0, 3, 1, 2) of pictures [N, H, W, C]"
            elif given.dtype != expected.dtype:
                hint = f"; try x.to({expected.dtype})"
            elif given.shape[1:] == expected.shape[1:]:
                hint = f"; try batches of {expected.shape[0]}, or dynamic_shapes"
            raise ValueError(
                f"{where}: input {position} must be {_text(expected)} as in example_inputs; "
                f"got {_text(given)}{hint}"
            )
        if given.is_floating_point() and not bool(given.isfinite().all()):
            raise ValueError(
                f"{where}: input {position} must hold finite numbers; got NaN or infinity; "
                f"try leaving such samples out"
            )


def _hint(given: Any) -> str:
    if isinstance(given, Mapping):
        return "a tuple of its values"
    return "torch.from_numpy" if isinstance(given, np.ndarray) else "torch.as_tensor"


def _text(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
