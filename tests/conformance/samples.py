"""Calls of operators, taken from PyTorch's own table of samples (`op_db`)."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)

_LOOKED_AT = 400
"""Samples of one operator and type among which the bounded number is chosen."""


@dataclass(frozen=True)
class Call:
    """A function with arguments, nested as they are given; the tensors in them are inputs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def describe(self) -> str:
        return pytree.tree_map_only(
            torch.Tensor, lambda x: f"{x.dtype}{list(x.shape)}".removeprefix("torch."), self.args
        ).__repr__() + (f" {self.kwargs}" if self.kwargs else "")


@functools.cache
def table() -> dict[str, Any]:
    """PyTorch's operator descriptions under their names, as "sum" or "max.binary"."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    # For each sample they would look for a unittest.TestCase, with the source of all callers.
    setattr(common_utils, "extract_test_fn", lambda: None)  # noqa: B010
    setattr(core, "extract_test_fn", lambda: None)  # noqa: B010

    return {".".join(filter(None, (o.name, o.variant_test_name))): o for o in op_db}


def calls(name: str, dtype: torch.dtype, limit: int) -> list[Call]:
    """At most `limit` calls, spread over all samples; none if the operator has no such type."""
    info = table()[name]
    if dtype not in info.supported_dtypes("cpu"):
        return []
    found = _samples(info, dtype, False)
    function = _WRAPPED.get(name, info.op)
    return [Call(function, (s.input, *s.args), s.kwargs) for s in _spread(found, limit)]


def _sort(x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Values twice: as they come, and as the indices say, which of equals may be any's."""
    dim = kwargs.get("dim", args[0] if args else -1)
    values, indices = torch.sort(x, *args, **kwargs)
    return values, torch.gather(x, dim, indices)


def _topk(x: torch.Tensor, k: int, dim: int = -1, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.topk(x, k, dim, *args)
    return values, torch.gather(x, dim, indices)


_MOST = 64
"""Results of `repeat_interleave` have at most as many rows, as the program must say."""


def _repeat(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    y = torch.repeat_interleave(x, *args, **kwargs)
    torch._check(y.shape[kwargs.get("dim") or 0] <= _MOST)
    return y


_WRAPPED: dict[str, Callable[..., Any]] = {
    "repeat_interleave": _repeat,
    "sort": _sort,
    "topk": _topk,
}


def backward_calls(
    operator: Any, names: Sequence[str], dtype: torch.dtype, limit: int
) -> list[Call]:
    """Calls of a backward operator, as autograd makes them when samples are differentiated."""
    record = _Record(operator)
    for name in names:
        info = table()[name]
        if dtype not in info.supported_backward_dtypes("cpu"):
            continue
        for sample in _samples(info, dtype, True):
            with record:
                result = info.op(sample.input, *sample.args, **sample.kwargs)
                leaves = [
                    y
                    for y in pytree.tree_leaves(result)
                    if isinstance(y, torch.Tensor) and y.requires_grad
                ]
                if leaves:
                    total = sum(y.float().sum() * (1 + i) for i, y in enumerate(leaves))
                    (total * total).backward()
    return _spread(record.calls, limit)


class _Record(TorchDispatchMode):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is self.operator:
            own_args, own_kwargs = pytree.tree_map_only(
                torch.Tensor, lambda x: x.detach().clone(), (tuple(args), kwargs or {})
            )
            self.calls.append(Call(self.operator, own_args, own_kwargs))
        return func(*args, **(kwargs or {}))


def _samples(info: Any, dtype: torch.dtype, gradient: bool) -> Iterator[Any]:
    seed = 20240501
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    made = info.sample_inputs("cpu", dtype, requires_grad=gradient)
    return itertools.islice(made, _LOOKED_AT)


def _spread(items: Any, limit: int) -> list[Any]:
    """`limit` of the items at equal distances, the first among them."""
    found = list(items)
    if len(found) <= limit:
        return found
    return [found[i * len(found) // limit] for i in range(limit)]
