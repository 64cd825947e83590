"""What `suggest` returns: a table, JSON, and the names to hand to `edgewise.compile`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgewise.accuracy.comparison import plain
from edgewise.accuracy.tables import aligned, short_db
from edgewise.files import write_text

TOLERANCE_DB = 1.0
"""Without a target, the first step is taken that is so close to the best."""


@dataclass(frozen=True)
class Sensitivity:
    """A leaf module, and what the outputs gain in the simulation if it alone is float."""

    module: str
    type: str
    gain_db: float
    share: float
    """Of the noise power that is gone with it."""


@dataclass(frozen=True)
class Measured:
    """A program that was compiled with these modules in float, and run natively."""

    keep_float: list[str]
    sqnr_db: float
    """The worst output's."""
    bytes: int
    ms: float
    """The median latency."""


@dataclass(frozen=True)
class Suggestion:
    """Steps from everything quantized to a few modules in float."""

    scheme: str
    steps: list[Measured]
    sensitivities: list[Sensitivity]
    float_bytes: int
    float_ms: float
    target_db: float | None = None

    @property
    def chosen(self) -> Measured:
        """The first step that reaches the target; if none does, the best."""
        best = max(step.sqnr_db for step in self.steps)
        enough = best - TOLERANCE_DB if self.target_db is None else min(self.target_db, best)
        return next(step for step in self.steps if step.sqnr_db >= enough)

    @property
    def keep_float(self) -> list[str]:
        """For `edgewise.compile(..., keep_float=...)`."""
        return list(self.chosen.keep_float)

    @property
    def reached(self) -> bool:
        """Whether the target is met; true if there is none."""
        return self.target_db is None or self.chosen.sqnr_db >= self.target_db

    def __str__(self) -> str:
        """One line for each step, the chosen one marked."""
        rows = [("", "kept in float", "SQNR dB", "size", "latency")]
        before: list[str] = []
        for step in self.steps:
            new = [name for name in step.keep_float if name not in before]
            name = " ".join(new) if new else "nothing"
            rows.append(
                (
                    "*" if step is self.chosen else "",
                    f"+ {name}" if before or len(rows) > 1 else name,
                    short_db(step.sqnr_db),
                    f"{step.bytes / 1e6:.3f} MB",
                    f"{step.ms:.3f} ms",
                )
            )
            before = step.keep_float
        rows.append(
            ("", "everything", "", f"{self.float_bytes / 1e6:.3f} MB", f"{self.float_ms:.3f} ms")
        )
        lines = [f"{self.scheme}, modules that matter most first", *aligned(rows)]
        if not self.reached:
            lines.append(f"the target of {self.target_db:g} dB is not reached")
        lines.append(f"keep_float={self.keep_float}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data. Infinite ratios are None."""
        return {
            "scheme": self.scheme,
            "target_db": self.target_db,
            "reached": self.reached,
            "keep_float": self.keep_float,
            "steps": [plain(asdict(step)) for step in self.steps],
            "sensitivities": [plain(asdict(one)) for one in self.sensitivities],
            "float": {"bytes": self.float_bytes, "ms": self.float_ms},
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """All of it; also written to `path` if given."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        if path is not None:
            write_text(path, text)
        return text
