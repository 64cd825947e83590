"""What a program was lowered from, and how: to lower a changed copy in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Manager = TypeVar("Manager")


@dataclass(frozen=True)
class Origin(Generic[Manager]):
    """The exported programs by method, and the steps from there; tensors are shared."""

    programs: Mapping[str, ExportedProgram]
    lower: Callable[[Mapping[str, ExportedProgram]], Manager]
    """From other programs with the same methods to where this one is now."""

    def then(self, step: Callable[[Manager], Manager]) -> Origin[Manager]:
        """As this, with one more step."""
        return replace(self, lower=lambda programs: step(self.lower(programs)))
