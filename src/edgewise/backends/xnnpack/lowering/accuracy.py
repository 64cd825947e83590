"""How exact the definitions are: families of bounds, measured against float64 with a little room.

In float16 this project's runtime computes in float32 wherever the CPU's own 16-bit arithmetic
would be less exact, so that a definition rounds little more than its result.
"""

from __future__ import annotations

from typing import Any

from edgewise.partition.accuracy import Accuracies, Accuracy, Deviation

HALF = Accuracy(ulps=1, terms=1)
"""In float16: the result is rounded, and perhaps a step in between."""


def floating(
    ulps: float = 0, terms: float = 0, floor: float = 0, half: Accuracy = HALF
) -> Accuracies:
    """The bound in float32, and that in float16."""
    return {"float32": Accuracy(ulps, terms, floor), "float16": half}


EXACT = floating(half=Accuracy())
"""Elements are moved, chosen or changed in sign."""
ROUNDED = floating(0.501, half=Accuracy(0.501))
"""One operation, rounded once."""
SUMS = floating(1, 2)
"""Sums of products: no order of summation is prescribed. Of thousands of terms the error grows as
the square root of their number."""
MEANS = floating(1, 1.5)
NORMS = floating(2, 3)
STATES = floating(4, 3, 3e-7)
"""Recurrent layers: states of magnitude 1 at most, in which an earlier one fades."""
STEP = {"int8": Accuracy(steps=1, reference="PT2E")}
"""Integers: a step from what dequantizing, computing in float32 and quantizing gives."""
STEPS = {**STEP, "uint8": Accuracy(steps=1, reference="PT2E")}
DYNAMIC = {"int8": Accuracy(steps=1, reference="PT2E")}
"""Of scales found at run time: each operand may be rounded to the step beside."""


# --- special values ------------------------------------------------------------------------

SMALLEST = 2.0**-126
"""The smallest normal number in float32. What is nearer to zero counts as zero."""

NAN_LOST = Deviation(
    "NaN beside a number: either of them", lambda x, y: x.isnan().logical_xor(y.isnan())
)
NAN_AMONG = Deviation("NaN among numbers may be passed over", lambda x: x.isnan())
_OF_XNNPACK = "on x86, by ExecuTorch's runtime, and by edgewise's without AVX2"
ROOT = Deviation(
    f"infinity: NaN; above 8.5e37: half too large ({_OF_XNNPACK})", lambda x: x > 2.0**126
)
INVERSE_ROOT = Deviation(f"infinity: NaN; above 8.5e37: a third too small ({_OF_XNNPACK})", ROOT.at)
LOGARITHM = Deviation(
    "negative denormal numbers: -infinity; above 2.3e38: infinity, or the logarithm of about "
    "2.3e38, as of NaN (by ExecuTorch's runtime, and by edgewise's on x86 without AVX2)",
    lambda x: (x > 2.3e38) | x.isnan() | ((x < 0) & (x > -SMALLEST)),
)
CLAMPED = Deviation("NaN: one of the bounds (x86 without AVX)", lambda x: x.isnan())


def _is_negative_zero(x: Any) -> Any:
    return (x.abs() < SMALLEST) & x.signbit()


NEGATIVE_ZERO = Deviation("-0: 0 (x86 without AVX-512)", _is_negative_zero)
PLAIN_ZERO = Deviation("-0: 0 (x86 without SSE4.1)", _is_negative_zero)
WIDE = Deviation("finite beyond 1e26: NaN (x86 with AVX-512)", lambda x: x.abs() > 1e26)
WIDE_GATES = Deviation("gates beyond 1e26: NaN (x86 with AVX-512)", lambda x: x.abs() > 1e20)
SQUARES = Deviation(
    "magnitudes beyond 1e19: squares are infinite, and a root of theirs NaN; below 1e-19: zero",
    lambda x: (x.abs() > 1e18) | (x.abs() < 1e-18),
)
EQUAL = Deviation(
    "equal numbers x: up to the square of 1e-7 x instead of 0", lambda x: x == x.mean()
)
LONG = Deviation(
    "n equal numbers: XNNPACK adds them one by one, and is off by up to 10 eps; by n / 15 eps "
    "where they are pooled (over height and width, or a prime number of them)",
    lambda x: x == x.mean(),
)
