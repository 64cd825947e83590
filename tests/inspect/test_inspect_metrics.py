"""Sums of signal and noise."""

from __future__ import annotations

import math

import pytest
import torch

from edgewise.accuracy.metrics import ErrorMetrics, decibels


def metrics(*pairs: tuple[list[float], list[float]]) -> ErrorMetrics:
    found = ErrorMetrics()
    for wanted, got in pairs:
        found.add(torch.tensor(wanted), torch.tensor(got))
    return found


def test_a_hundredth_is_20_decibels() -> None:
    assert metrics(([1, 3], [1, 3 + 10**0.5 / 10])).sqnr_db == pytest.approx(20, abs=1e-5)
    assert decibels(0.01) == 20


def test_batches_add_up() -> None:
    whole = metrics(([1, 2, 3, 4], [1, 2.5, 3, 3]))
    parts = metrics(([1, 2], [1, 2.5]), ([3, 4], [3, 3]))
    assert parts == whole
    assert whole.worst == 1
    assert whole.noise_to_signal == 1.25 / 30


def test_no_noise_and_no_signal() -> None:
    assert metrics(([1, 2], [1, 2])).sqnr_db == math.inf
    zeros = metrics(([0, 0], [0, 0]))
    assert (zeros.sqnr_db, zeros.cosine) == (math.inf, 1.0)
    assert metrics(([0, 0], [0, 1])).sqnr_db == -math.inf
    assert metrics(([1, 1], [0, 0])).cosine == 0
    assert metrics(([], [])).sqnr_db == math.inf


def test_opposite_values() -> None:
    assert metrics(([1, 2], [-1, -2])).cosine == pytest.approx(-1)


def test_infinities_that_agree_are_no_noise() -> None:
    found = metrics(([math.inf, math.nan, -math.inf, 2], [math.inf, math.nan, -math.inf, 2]))
    assert found.sqnr_db == math.inf
    assert found.signal == 4


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_infinities_that_differ_are_infinite_noise(value: float) -> None:
    found = metrics(([1, 2], [value, 2]))
    assert found.sqnr_db == -math.inf
    assert found.worst == math.inf
    assert metrics(([value, 2], [1, 2])).sqnr_db == -math.inf


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"got \[2\] for \[3\]"):
        metrics(([1, 2, 3], [1, 2]))
