"""What holds of every program that a backend builds, whatever its operators are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from edgewise.errors import InvalidGraphError

Call = tuple[str, Iterable[Hashable], Iterable[Hashable]]
"""An operator's name, what it reads and what it computes."""


def verify_calls(
    where: str,
    calls: Iterable[Call],
    known: Iterable[Hashable],
    outputs: Iterable[Hashable],
    shown: Callable[[Any], str] = str,
) -> None:
    """InvalidGraphError if an operator reads what nobody computed before, two compute the same
    value, or nobody computes an output.

    known: inputs and constants. shown: a value in words.
    """
    there = set(known)
    for number, (name, operands, results) in enumerate(calls):
        computed = list(results)
        wrong = [f"{shown(one)}, not computed before" for one in operands if one not in there]
        wrong += [f"{shown(one)} once more" for one in computed if one in there]
        if wrong:
            raise InvalidGraphError(
                f"[{where}] operator {number}, {name}, must obey the graph's law; got {wrong[0]}"
            )
        there.update(computed)
    for one in outputs:
        if one not in there:
            raise InvalidGraphError(f"[{where}] outputs must be computed; got {shown(one)}")
