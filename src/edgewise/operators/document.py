"""A backend's operator table in words: as Markdown, and for `edgewise ops`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from edgewise.operators.definition import D, OperatorDefinition, OperatorTable
from edgewise.partition.accuracy import shown
from edgewise.registry import OperatorFacts


def constraints_of(definition: OperatorDefinition[Any]) -> str:
    """The rules, for a column."""
    return "; ".join(constraint.rule for constraint in definition.constraints)


def accuracy_of(definition: OperatorDefinition[Any]) -> str:
    """The bounds, for a column."""
    return shown(definition.accuracies())


@dataclass(frozen=True)
class Document(Generic[D]):
    """What a backend says of its table.

    introduction, appendix: Markdown around the table. columns: behind the operator and PyTorch's
    names, by their heads. types: those that a definition takes, in words.
    """

    table: OperatorTable[..., D]
    introduction: str
    columns: Mapping[str, Callable[[D], str]]
    types: Callable[[D], str]
    appendix: str = ""

    def markdown(self) -> str:
        """The page, by name of operator."""
        lines = [
            (
                one.name,
                ", ".join(f"`{target}`".replace("aten.", "") for target in one.targets),
                *(cell(one) for cell in self.columns.values()),
            )
            for one in self._sorted()
        ]
        heads = ("operator", "operators of torch", *self.columns)
        return self.introduction + table(heads, lines) + self.appendix

    def facts(self) -> list[OperatorFacts]:
        """As `edgewise.registry.Backend.operators`."""
        return [
            OperatorFacts(
                name=one.name,
                operators=[str(target).removeprefix("aten.") for target in one.targets],
                types=self.types(one),
                rules=[constraint.rule for constraint in one.constraints],
                accuracy=accuracy_of(one),
                special_values=[deviation.text for deviation in one.deviations],
                computed_as=one.also,
            )
            for one in self._sorted()
        ]

    def _sorted(self) -> list[D]:
        return sorted(self.table.definitions, key=lambda one: one.name)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Of Markdown. Bars in cells are escaped."""
    return _line(heads) + f"{'|---' * len(heads)}|\n" + "".join(map(_line, lines))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
