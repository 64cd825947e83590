"""Random numbers of the runtime's kernels: their distributions, and that calls differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from support import Fn, lower, run_ours

COUNT = 40_000
X = torch.ones(COUNT)

# Function | mean | standard deviation. Of 40,000 numbers the mean is off by 5 % of the standard
# deviation once in 10^22 runs.
CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "rand_like": (torch.rand_like, 0.5, 12**-0.5),
    "randn_like": (torch.randn_like, 0.0, 1.0),
    "bernoulli": (lambda x: torch.bernoulli(x * 0.25), 0.25, (0.25 * 0.75) ** 0.5),
    "native_dropout": (lambda x: torch.ops.aten.native_dropout(x, 0.2, True)[0], 1.0, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_distribution(name: str) -> None:
    function, mean, deviation = CASES[name]
    pte = lower(Fn(function), (X,), partitioner=None).buffer
    (first,), (second,) = run_ours(pte, (X,), (X,))
    assert not torch.equal(first, second)
    for numbers in (first, second):
        assert abs(float(numbers.mean()) - mean) < 0.05 * deviation
        assert abs(float(numbers.std()) - deviation) < 0.05 * deviation
