"""What drafts tokens for a generator to verify (speculative decoding)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Draft(Protocol):
    """What drafts tokens."""

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that may follow the text; [] for none."""
