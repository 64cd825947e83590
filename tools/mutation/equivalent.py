"""Mutants that no test can notice, with the reason: (file, line before, line after)."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {}
