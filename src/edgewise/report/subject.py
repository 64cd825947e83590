"""What a page is about: a program, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewise.files import read_json
from edgewise.inspect.reading import open_program
from edgewise.inspect.record import ProgramRecord
from edgewise.report.timelines import timelines


@dataclass(frozen=True)
class Subject:
    """A program to report on.

    profile: what `edgewise.profile` saved. comparison: `Comparison.to_dict()` of
    `edgewise.inspect.compare`, of the method "forward".
    """

    name: str
    record: ProgramRecord
    profile: Mapping[str, Any] = field(default_factory=dict)
    comparison: Mapping[str, Any] = field(default_factory=dict)
    npu: Mapping[str, Any] = field(default_factory=dict)
    """What `timelines` tells of the file."""

    @staticmethod
    def open(
        path: str | Path,
        profile: str | Path | None = None,
        comparison: str | Path | None = None,
    ) -> Subject:
        """Of files. OSError if one cannot be read, ValueError if it is of another kind."""
        return Subject(
            Path(path).name,
            open_program(path),
            _read(profile, "methods", "what `edgewise profile` writes") if profile else {},
            _read(comparison, "layers", "what Comparison.to_json writes") if comparison else {},
            timelines(path),
        )


def _read(path: str | Path, key: str, wanted: str) -> Mapping[str, Any]:
    try:
        found = read_json(Path(path).read_bytes())
    except ValueError as cause:
        raise ValueError(f"[report] {path} must be JSON; got {cause}; try {wanted}") from None
    if not isinstance(found, dict) or key not in found:
        raise ValueError(f"[report] {path} must have {key!r}; try {wanted}")
    return found
