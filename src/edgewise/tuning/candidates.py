"""Ways to quantize for a backend, those that run fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.registry import quantizer_for, scheme_problem


@dataclass(frozen=True)
class Candidate:
    """scheme: None for the float program. methods: beside the scheme's own. sensitive: how many
    of the modules that matter most stay in float."""

    scheme: str | None
    methods: tuple[str, ...] = ()
    sensitive: int = 0


_ALL = (
    Candidate("int8"),
    Candidate("int8", ("bias-correction",)),
    Candidate("int8", ("percentile", "bias-correction")),
    Candidate("int8", ("equalize", "bias-correction")),
    *(Candidate("int8", (), count) for count in (1, 2, 4)),
    Candidate("int8-dynamic"),
    Candidate("int8", ("adaround", "bias-correction")),
    Candidate("int8", (), 8),
    Candidate("int8-weight"),
    Candidate(None),
)


def candidates_for(target: str) -> Sequence[Candidate]:
    """In the order in which they are tried: by what they cost when they run, then by what it
    takes to try them. Processors that compute in integers alone get neither modules in floating
    point nor the float program."""
    floats = type(quantizer_for(target)()).computes_floats
    return [
        one
        for one in _ALL
        if (one.scheme is None or not scheme_problem(target, one.scheme))
        and (floats or (one.scheme is not None and not one.sensitive))
    ]


__all__ = ["Candidate", "candidates_for"]
