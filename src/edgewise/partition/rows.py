"""What the operator tables of backends have in common: rows, found by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar


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
