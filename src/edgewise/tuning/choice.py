"""What `quantize="auto"` tried and took: a table, plain data, and the options to do it again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edgewise.accuracy.tables import aligned


@dataclass(frozen=True)
class Trial:
    """A way that was compiled and run. Figures are None where they were not asked for or taken.

    stopped: after so many batches it was too far off to go on; 0: it was not. error: why there is
    no program.
    """

    quantize: str | None
    methods: tuple[str, ...] | None
    """None: the scheme's own."""
    keep_float: tuple[str, ...] = ()
    metric: float | None = None
    cosine: float | None = None
    sqnr_db: float | None = None
    size: int | None = None
    latency: float | None = None
    seconds: float = 0.0
    stopped: int = 0
    added: tuple[str, ...] = ()
    """Of the methods those that are not the scheme's own."""
    kept: bool = False
    """Whether all of the budget's conditions hold."""
    error: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """Options of `edgewise.compile` that make the same program."""
        found: dict[str, Any] = {"quantize": self.quantize}
        if self.quantize is not None:
            found |= {"methods": None if self.methods is None else list(self.methods)}
            found |= {"keep_float": list(self.keep_float)}
        return found

    def __str__(self) -> str:
        if self.quantize is None:
            return "float"
        parts = [self.quantize, *self.added]
        if self.keep_float:
            parts.append(f"{len(self.keep_float)} modules in float")
        return " + ".join(parts)


@dataclass(frozen=True)
class Choice:
    """trials: in the order in which they were made. chosen: the index of the one that was taken.
    reached: whether it keeps the budget. baseline: the float model's metric."""

    trials: tuple[Trial, ...]
    chosen: int
    reached: bool
    baseline: float | None = None

    @property
    def trial(self) -> Trial:
        """The one that was taken."""
        return self.trials[self.chosen]

    @property
    def settings(self) -> dict[str, Any]:
        """Options of `edgewise.compile` that make the chosen program."""
        return self.trial.settings

    def table(self) -> str:
        """A line for each trial, the chosen one marked."""
        columns: list[tuple[str, str, str]] = [
            ("metric", "metric", "{:.4f}"),
            ("cosine", "cosine", "{:.4f}"),
            ("SQNR dB", "sqnr_db", "{:.1f}"),
            ("size", "size", "{:.3f} MB"),
            ("latency", "latency", "{:.3f} ms"),
            ("tried in", "seconds", "{:.1f} s"),
        ]
        shown = [c for c in columns if any(getattr(t, c[1]) is not None for t in self.trials)]
        rows = [("", "quantize", *(head for head, _, _ in shown), "")]
        for index, trial in enumerate(self.trials):
            cells = [_cell(trial, name, form) for _, name, form in shown]
            note = trial.error or ("kept" if trial.kept else "")
            if trial.stopped:
                note = f"stopped after {trial.stopped} batches"
            rows.append(("*" if index == self.chosen else "", str(trial), *cells, note))
        lines = aligned(rows)
        if self.baseline is not None:
            lines.append(f"the float model's metric: {self.baseline:.4f}")
        if self.trial.keep_float:
            lines.append(f"in float: {', '.join(self.trial.keep_float)}")
        if not self.reached:
            lines.append("nothing that was tried keeps the budget: the best of them was taken")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "chosen": self.chosen,
            "reached": self.reached,
            "baseline": self.baseline,
            "settings": self.settings,
            "trials": [asdict(trial) for trial in self.trials],
        }


def _cell(trial: Trial, name: str, form: str) -> str:
    value = getattr(trial, name)
    if value is None:
        return "-"
    return form.format(value / 1e6 if name == "size" else value)


__all__ = ["Choice", "Trial"]
