"""How exact the results of an operator are: a bound that holds for every element.

Definitions of operators declare one for each data type that they take. Documentation shows
them, and tests compare each element with what its definition declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Accuracy:
    """How far an element of the result may be from the reference's.

    Floating point: at most `ulps` units in the last place of the exact result, plus `terms` times
    the type's epsilon times the sum of the magnitudes of the terms, plus `floor`.

    The terms of a result y of inputs and parameters x are x * dy/dx: of a sum its summands, of a
    product of matrices the products of their elements. Where they cancel, digits are lost that no
    order of summation keeps.

    Integers: at most `steps` of the result's scale. Exact if nothing is said.
    """

    ulps: float = 0.0
    terms: float = 0.0
    floor: float = 0.0
    steps: int | None = None
    reference: str = "float64"
    """What results are compared with: PyTorch in float64; or the reference of the integers."""

    def __post_init__(self) -> None:
        if min(self.ulps, self.terms, self.floor, self.steps or 0) < 0:
            raise ValueError(f"[accuracy] bounds are not negative; got {self}")
        if self.steps is not None and (self.ulps or self.terms or self.floor):
            raise ValueError(f"[accuracy] steps are of integers, the rest is not; got {self}")

    def __str__(self) -> str:
        """As the tables have it: `2 ulp + 4 eps terms + 1e-07`."""
        if self.steps is not None:
            return f"{self.steps} step{'s' * (self.steps != 1)}" if self.steps else "exact"
        parts = (
            f"{self.ulps:g} ulp" if self.ulps else "",
            f"{self.terms:g} eps terms" if self.terms else "",
            f"{self.floor:.2g}" if self.floor else "",
        )
        return " + ".join(part for part in parts if part) or "exact"


@dataclass(frozen=True)
class Deviation:
    """Special values for which an operator gives something else than PyTorch, on some CPU."""

    text: str
    """As the tables have it."""
    at: Callable[..., Any]
    """From the operands, broadcast, to where a result may differ: a boolean tensor."""


Accuracies = Mapping[str, Accuracy]
"""By data type: `float32`, `float16`, `int8`, `int16`."""


def shown(accuracies: Accuracies) -> str:
    """The bounds of a definition in one line, types with the same one together."""
    types: dict[str, list[str]] = {}
    for name, accuracy in accuracies.items():
        types.setdefault(str(accuracy), []).append(name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in types.items())
