"""Which runtime a file is written for."""

from __future__ import annotations

import re
from dataclasses import dataclass

Release = tuple[int, int]

KNOWN: tuple[Release, ...] = ((1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5))
"""Releases of ExecuTorch whose facts are in `releases.json`."""


@dataclass(frozen=True)
class Target:
    """oldest: the first release of ExecuTorch that must run the file; None: this project's
    runtime alone. is_strict: somebody asked for that release, so the file uses nothing that it
    lacks, whatever that costs; else only what costs neither size nor speed is left out."""

    oldest: Release | None = KNOWN[0]
    is_strict: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the file need not run on ExecuTorch."""
        return self.oldest is None

    def covers(self, release: Release) -> bool:
        """Whether what came with `release` can be used."""
        return self.oldest is None or self.oldest >= release

    def __str__(self) -> str:
        return "edgewise" if self.oldest is None else f"executorch>={shown(self.oldest)}"


def shown(release: Release) -> str:
    """As it is written: 1.3."""
    return ".".join(map(str, release))


def target_of(text: str | None) -> Target:
    """ "edgewise", "executorch>=1.3", or None for every release. ValueError for any other text,
    TypeError for anything else."""
    if text is None:
        return Target()
    if not isinstance(text, str):
        raise TypeError(
            f"[runtime] a target is 'edgewise' or 'executorch>=' with a release, as text; got "
            f"{type(text).__name__}; try 'executorch>={shown(KNOWN[0])}'"
        )
    if text == "edgewise":
        return Target(None)
    found = re.fullmatch(r"executorch\s*>=\s*(\d+)\.(\d+)(?:\.\d+)?", text)
    if found is None:
        raise ValueError(
            f"[runtime] a target is 'edgewise' or 'executorch>=' with a release; got {text!r}; "
            f"try 'executorch>={shown(KNOWN[0])}'"
        )
    oldest = (int(found[1]), int(found[2]))
    if not KNOWN[0] <= oldest <= KNOWN[-1]:
        raise ValueError(
            f"[runtime] known are the releases {shown(KNOWN[0])} to {shown(KNOWN[-1])}; "
            f"got {shown(oldest)}; try 'executorch>={shown(KNOWN[-1])}'"
        )
    return Target(oldest, is_strict=True)
