"""The comparison that rows are held to: what it refuses, what it says, what terms are."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from closeness import assert_within, magnitudes, outside
from edgewise.partition.accuracy import Accuracy, shown
from support import Fn, assert_close

LATE = torch.tensor([1.0, 2.0, 100.0])


@pytest.mark.parametrize(
    ("function", "x", "wrong", "accuracy"),
    [
        (F.softplus, -100.0, 9e-4, Accuracy(ulps=5, floor=4e-38)),
        (F.softplus, -20.0, 0.0, Accuracy(ulps=5, floor=4e-38)),
        (F.mish, 100.0, 99.991, Accuracy(ulps=4, floor=2e-36)),
        (torch.sigmoid, 1e30, float("nan"), Accuracy(ulps=3)),
    ],
)
def test_each_element_counts(function, x: float, wrong: float, accuracy: Accuracy) -> None:
    """However large the others are."""
    given = torch.tensor([x, 100.0, 3.0])
    exact = function(given.double())
    right = exact.float()
    assert_within(right, exact, accuracy)
    right[0] = wrong
    with pytest.raises(AssertionError):
        assert_within(right, exact, accuracy)


def test_a_failure_says_where_what_and_how_far() -> None:
    x = torch.tensor([[0.5, 1.0], [2.0, 4.0]])
    got, exact = x.exp(), x.double().exp()
    got[1, 0] += 1e-3
    with pytest.raises(AssertionError) as failure:
        assert_within(got, exact, Accuracy(ulps=1), inputs=(x, 3), where="exp")
    text = str(failure.value)
    assert "exp: 1 of 4 elements out of bounds" in text
    pattern = r"\[1, 0\] got 7\.3900\d*, expected 7\.3890\d*; off by 0\.001, allowed 4\.77e-07"
    assert re.search(pattern + "; inputs 2, 3", text), text
    assert "bound: 1 ulp" in text


def test_the_terms_of_a_sum_are_its_summands() -> None:
    x, y = torch.tensor([3.0, -3.0]), torch.tensor([-2.0, 2.0])
    (terms,) = magnitudes(Fn(torch.add), (x, y))
    assert terms.tolist() == [5, 5]
    (terms,) = magnitudes(Fn(lambda x, w: x @ w, w=torch.tensor([1.0, 2.0])), (x,))
    assert float(terms) == 2 * (3 + 6)  # by the operand, and by the constant


@pytest.mark.parametrize("got", [float("inf"), float("nan"), -float("inf")])
def test_what_is_not_finite_must_be_equal(got: float) -> None:
    y, one = torch.tensor([got]), torch.ones(1, dtype=torch.float64)
    assert not outside(y, y.double(), one).any()
    assert outside(y, one, one * 1e30).all()
    assert outside(torch.ones(1), y.double(), one * 1e30).all()


def test_support_compares_each_element() -> None:
    with pytest.raises(AssertionError, match=r"\[0\] got 1\.00999999, expected 1"):
        assert_close([LATE + torch.tensor([0.01, 0, 0])], [LATE])
    with pytest.raises(AssertionError, match="got 2, expected 3"):
        assert_close([torch.tensor([1, 2])], [torch.tensor([1, 3])])


def test_bounds_are_checked_and_shown() -> None:
    with pytest.raises(ValueError, match="not negative"):
        Accuracy(ulps=-1)
    with pytest.raises(ValueError, match="steps are of integers"):
        Accuracy(ulps=1, steps=1)
    table = {"float32": Accuracy(2, 1, 1e-7), "int8": Accuracy(steps=1), "int16": Accuracy(steps=0)}
    assert shown(table) == "float32: 2 ulp + 1 eps terms + 1e-07; int8: 1 step; int16: exact"
