"""What guesses tokens for a generator to check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Draft(Protocol):
    """What guesses."""

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that may follow the text; [] for no guess."""
