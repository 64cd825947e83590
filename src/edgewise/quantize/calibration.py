"""Calibration data: checked against the example inputs, run with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import torch

Batch = tuple[Any, ...]


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
        raise ValueError(
            f"{where} must have {len(example)} inputs; got {len(batch)}; "
            f"try a tuple with one item for each argument of forward"
        )
    for position, (given, expected) in enumerate(zip(batch, example, strict=True)):
        if not isinstance(expected, torch.Tensor):
            continue
        if not isinstance(given, torch.Tensor):
            raise ValueError(
                f"{where}: input {position} must be a tensor; got {type(given).__name__}; "
                f"try torch.as_tensor"
            )
        same_shape = given.dim() == expected.dim() if any_size else given.shape == expected.shape
        if given.dtype != expected.dtype or not same_shape:
            raise ValueError(
                f"{where}: input {position} must be {_text(expected)} as in example_inputs; "
                f"got {_text(given)}"
            )


def _text(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
