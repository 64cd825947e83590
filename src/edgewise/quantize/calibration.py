"""Calibration data: checked against the example inputs, run with a progress bar."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from edgewise.edge.graph import dtype_name
from edgewise.quantize.checks import is_finite

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
    keywords: Mapping[str, Any] | None = None,
    *,
    any_size: bool = False,
    progress: bool = True,
) -> int:
    """Calls `run` on every batch; how many there were.

    example, keywords: inputs by position and by name; with the latter each batch is a dict of
    these, or a pair of tuple and dict. any_size: sizes may differ from the example's (dynamic
    shapes). ValueError for a batch that does not fit the example inputs, or if there is none.
    """
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise TypeError(
            f"[quantize] calibration must be batches of inputs, each a tuple, or a tensor for one "
            f"input; got {type(batches).__name__}; try a list of them"
        )
    count = 0
    for batch in _shown(batches, progress):
        arguments, named = as_call(count, batch, keywords)
        _check(count, (arguments, named), (tuple(example), dict(keywords or {})), any_size)
        with torch.no_grad():
            run(*arguments, **named)
        count += 1
    if count == 0:
        raise ValueError(
            "[quantize] calibration must hold at least one batch; got none; "
            "try a list of inputs such as the model will see"
        )
    return count


def first_batches(
    batches: Iterable[Any],
    example: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    any_size: bool = False,
    count: int = STUDIED,
) -> tuple[list[Batch], Iterable[Any]]:
    """The first `count` batches, checked as `calibrate` does, and all of them as they were given.

    What a batch has by name stands behind the rest, in the order of `keywords`. Batches that come
    one by one are read no further.
    """
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        return [], batches  # `calibrate` refuses them
    given = iter(batches)
    held = list(itertools.islice(given, count))
    found = []
    for index, batch in enumerate(held):
        arguments, named = as_call(index, batch, keywords)
        _check(index, (arguments, named), (tuple(example), dict(keywords or {})), any_size)
        found.append((*arguments, *named.values()))
    return found, batches if isinstance(batches, Sequence) else itertools.chain(held, given)


def _shown(batches: Iterable[Any], progress: bool) -> Iterator[Any]:
    """The batches, with a bar on a terminal."""
    if not progress or not sys.stderr.isatty():
        yield from batches
        return
    from rich.console import Console
    from rich.progress import Progress

    total = len(batches) if isinstance(batches, Sized) else None
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calibrating", total=total)
        for batch in batches:
            yield batch
            bar.advance(task)


def as_call(
    index: int, batch: Any, keywords: Mapping[str, Any] | None
) -> tuple[Batch, dict[str, Any]]:
    """A batch's arguments by position and by name, the latter in the example's order."""
    if not keywords:
        return as_batch(batch), {}
    inputs, named = (), batch
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and isinstance(batch[1], Mapping):
        inputs, named = as_batch(batch[0]), batch[1]
    if not isinstance(named, Mapping) or set(named) != set(keywords):
        got = f"{list(named)}" if isinstance(named, Mapping) else type(batch).__name__
        raise ValueError(
            f"[quantize] calibration batch {index} must be a dict of {list(keywords)}, as "
            f"example_kwargs, or a pair of a tuple and this; got {got}"
        )
    return tuple(inputs), {name: named[name] for name in keywords}


Call = tuple[Batch, dict[str, Any]]


def _check(index: int, batch: Call, example: Call, any_size: bool) -> None:
    where = f"[quantize] calibration batch {index}"
    if len(batch[0]) != len(example[0]):
        hint = "a tuple with one item for each argument of forward"
        if len(batch[0]) == len(example[0]) + 1:
            hint += "; of (inputs, label) pairs the inputs alone"
        raise ValueError(
            f"{where} must have {len(example[0])} inputs; got {len(batch[0])}; try {hint}"
        )
    for number, (given, wanted) in enumerate(zip(batch[0], example[0], strict=True)):
        if isinstance(wanted, torch.Tensor) and not isinstance(given, torch.Tensor):
            _check_tensor(f"{where}: input {number}", given, wanted, any_size)
    given_leaves, given_tree = pytree.tree_flatten(batch)
    leaves, tree = pytree.tree_flatten_with_path(example)
    if given_tree != tree:
        raise ValueError(
            f"{where} must be nested as example_inputs; got {_nesting(batch[0], batch[1])}; try "
            f"{_nesting(example[0], example[1])}"
        )
    for (path, expected), given in zip(leaves, given_leaves, strict=True):
        if isinstance(expected, torch.Tensor):
            _check_tensor(f"{where}: input {_shown_path(path)}", given, expected, any_size)


def _shown_path(path: Any) -> str:
    """Where in a call: 0, or 0['mask'], or 'mask' for what is given by name."""
    first = path[1].key if hasattr(path[1], "key") else path[1].idx
    return f"{first!r}{pytree.keystr(path[2:])}"


def _nesting(inputs: Batch, keywords: Mapping[str, Any]) -> str:
    shown = pytree.tree_map(lambda leaf: _Shown(), (inputs, dict(keywords)))
    return str(shown[0] if not keywords else shown)


class _Shown:
    def __repr__(self) -> str:
        return "x"


def _check_tensor(where: str, given: Any, expected: torch.Tensor, any_size: bool) -> None:
    if not isinstance(given, torch.Tensor):
        raise ValueError(
            f"{where} must be a tensor; got {type(given).__name__}; try {_hint(given)}"
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
            f"{where} must be {_text(expected)} as in example_inputs; got {_text(given)}{hint}"
        )
    if given.is_floating_point() and not is_finite(given):
        raise ValueError(
            f"{where} must hold finite numbers; got NaN or infinity; try leaving such samples out"
        )


def _hint(given: Any) -> str:
    if isinstance(given, Mapping):
        return "a tuple of its values"
    return "torch.from_numpy" if isinstance(given, np.ndarray) else "torch.as_tensor"


def _text(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"
