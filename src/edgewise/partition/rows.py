"""What the operator tables of backends have in common: rows, found by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from edgewise.partition.accuracy import Accuracies, shown
from edgewise.registry import OperatorFacts


class Row(Protocol):
    """An operator that a backend supports. `targets`: operators, or their names."""

    @property
    def name(self) -> str:
        """As people and documentation call it."""
        ...

    @property
    def targets(self) -> Sequence[Any]:
        """None of them is another row's."""
        ...


R = TypeVar("R", bound=Row)


class RowTable(Generic[R]):
    """`rows` in the order in which they were added, and `by_target`."""

    def __init__(self) -> None:
        self.rows: list[R] = []
        self.by_target: dict[Any, R] = {}

    def add(self, row: R) -> R:
        """The row. ValueError if one of its operators has a row already."""
        self.rows.append(row)
        for target in row.targets:
            if target in self.by_target:
                raise ValueError(
                    f"[{row.name}] an operator must have one row; got two for {target}"
                )
            self.by_target[target] = row
        return row


def facts_of(row: Any, types: str, accuracy: Accuracies, computed_as: str) -> OperatorFacts:
    """The row in words. types: those that it takes."""
    return OperatorFacts(
        name=row.name,
        operators=[str(target).removeprefix("aten.") for target in row.targets],
        types=types,
        rules=[constraint.rule for constraint in row.constraints],
        accuracy=shown(accuracy),
        special_values=[d.text for d in getattr(row, "deviations", ())],
        computed_as=computed_as,
    )
