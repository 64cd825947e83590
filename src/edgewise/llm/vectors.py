"""Vectors in the place of tokens: of images that a model sees, of sounds that it hears.

Their tokens are numbers that no token of a text has: from the vocabulary's size on, a range for
each image or sound. So a generator finds one that its cache holds as it finds words.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["VectorPlace", "VectorTokens"]

_MOST_BYTES = 256 << 20
"""Of vectors that are kept."""


@dataclass(frozen=True)
class VectorPlace:
    """Of an image's token: its number in it, and how many rows and columns of tokens it has."""

    offset: int
    rows: int
    columns: int


@dataclass(frozen=True)
class _Kept:
    """vectors: float32 [tokens, width]. grid: rows and columns of an image's; None for a sound's,
    which follow each other as words do."""

    vectors: Any
    grid: tuple[int, int] | None


class VectorTokens:
    """Numbers of tokens, and the vectors that stand for them. For several threads.

    first: the number of the first, behind a text's. most: tokens of an image or sound.
    """

    def __init__(self, first: int, most: int) -> None:
        self._first, self._stride = first, most
        self._lock = threading.Lock()
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._kept: dict[int, _Kept] = {}
        self._next = 0

    def tokens(
        self,
        given: Any,
        compute: Callable[[], Any],
        grid: tuple[int, int] | None = None,
        about: tuple[int, ...] = (),
    ) -> list[int]:
        """Those of an array: the same for the same values.

        compute: its vectors [tokens, width], called unless they are known. grid: rows and columns
        of an image's; None for a sound's. about: what the vectors hang on besides.
        """
        key = hashlib.sha256(str((given.shape, about)).encode() + given.tobytes()).digest()
        with self._lock:
            if key not in self._numbers:
                vectors = compute()
                self._kept[self._next] = _Kept(vectors, grid)
                self._numbers[key] = self._next
                self._next += 1
                most = max(1, _MOST_BYTES // (self._stride * vectors[0].nbytes))
                while len(self._numbers) > most:
                    del self._kept[self._numbers.popitem(last=False)[1]]
            self._numbers.move_to_end(key)
            number = self._numbers[key]
            first = self._first + number * self._stride
            return list(range(first, first + len(self._kept[number].vectors)))

    def offset(self, token: int) -> int | None:
        """Of a token in its image or sound, from 0; None for those of a text."""
        return None if token < self._first else (token - self._first) % self._stride

    def count(self, token: int) -> int:
        """Of tokens of what `token` is of. ValueError as of `vectors`."""
        return len(self._of([token])[0].vectors)

    def places(self, tokens: Sequence[int]) -> list[VectorPlace | None]:
        """Of tokens; None for those of texts and sounds. ValueError as of `vectors`."""
        kept = iter(self._of([token for token in tokens if token >= self._first]))
        found: list[VectorPlace | None] = []
        for token in tokens:
            offset = self.offset(token)
            grid = None if offset is None else next(kept).grid
            found.append(None if grid is None or offset is None else VectorPlace(offset, *grid))
        return found

    def is_of_image(self, token: int) -> bool:
        """ValueError as of `vectors`."""
        return token >= self._first and self._of([token])[0].grid is not None

    def knows(self, tokens: Any) -> bool:
        """Whether these numbers int64 [N], of no text, are ones that are still known."""
        places = np.unique(np.asarray(tokens)) - self._first
        with self._lock:
            known = [self._kept.get(int(place) // self._stride) for place in places]
        offsets = (int(place) % self._stride for place in places)
        pairs = zip(known, offsets, strict=True)
        return all(one is not None and offset < len(one.vectors) for one, offset in pairs)

    def vectors(self, tokens: Sequence[int]) -> Any:
        """float32 [N, width] of tokens of no text. ValueError if one is not known any more."""
        offsets = (self.offset(token) for token in tokens)
        pairs = zip(self._of(tokens), offsets, strict=True)
        return np.stack([kept.vectors[offset] for kept, offset in pairs])

    def _of(self, tokens: Sequence[int]) -> list[_Kept]:
        with self._lock:
            try:
                return [self._kept[(token - self._first) // self._stride] for token in tokens]
            except KeyError:
                raise ValueError(
                    "[prompt] an image or sound of the text is not known any more; try the prompt "
                    "again"
                ) from None
