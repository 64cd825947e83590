"""Options of making an edge program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EdgeCompileConfig:
    """_check_ir_validity: check the graph against the dialect after every stage.
    _core_aten_ops_exception_list: operators that the check lets pass.
    preserve_ops: operators that are not decomposed."""

    _check_ir_validity: bool = True
    _core_aten_ops_exception_list: list[Any] = field(default_factory=list)
    preserve_ops: list[Any] = field(default_factory=list)
