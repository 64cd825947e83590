"""What a program was lowered from, and how: to lower a changed copy in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from edgewise.lowering import EdgeProgramManager


@dataclass(frozen=True)
class Origin:
    """The exported programs by method, and the steps from there; tensors are shared."""

    programs: Mapping[str, ExportedProgram]
    lower: Callable[[Mapping[str, ExportedProgram]], EdgeProgramManager]
    """From other programs with the same methods to where this one is now."""

    def then(self, step: Callable[[EdgeProgramManager], EdgeProgramManager]) -> Origin:
        """As this, with one more step."""
        return replace(self, lower=lambda programs: step(self.lower(programs)))
