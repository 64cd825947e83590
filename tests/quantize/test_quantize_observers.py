"""The histogram's range is the one that torchao's search finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewise.quantize import _torchao
from edgewise.quantize.observers import HistogramObserver

DRAWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda x: x,
    "cut": torch.relu,
    "negative": lambda x: -torch.relu(x),
    "long tails": lambda x: x**3,
    "few values": lambda x: torch.round(x * 4) / 4,
    "two values": torch.sign,
    "bounded": torch.sigmoid,
    "an outlier": lambda x: torch.cat([x, 100 * x[:1]]),
    "one element": lambda x: x[:1],
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_range_is_torchaos(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (2, 7, 30, 72, 400, 20_000):
        x = DRAWN[name](torch.randn(size, generator=generator))
        x = x / x.abs().max()  # the range in which ours compares errors
        how: dict[str, Any] = {"dtype": torch.int8, "qscheme": torch.per_tensor_affine}
        ours, theirs = HistogramObserver(**how), _torchao.HistogramObserver(**how, eps=1e-30)
        for observer in (ours, theirs):
            observer(x)
            observer(0.9 * x)
        expected = theirs._non_linear_param_search()
        assert ours._non_linear_param_search() == expected, (size, expected)


@pytest.mark.parametrize("earlier", [True, False])
def test_what_is_no_number_is_refused(earlier: bool) -> None:
    observer = HistogramObserver()
    if earlier:
        observer(torch.randn(8))
    with pytest.raises(ValueError, match="calibration must show finite values; got NaN or inf"):
        observer(torch.tensor([1.0, float("nan")]))
