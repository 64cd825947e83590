"""Calls of a language model's methods: from tokens, images and sounds to logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgewise.llm.images import AxialPositions
from edgewise.llm.media import Media
from edgewise.runtime import Program, Session

__all__ = ["MediaCalls", "TokenCalls", "calls_of", "constants"]


class TokenCalls:
    """Of `forward(tokens int64 [1, S], input_pos int64 [1])`, or with all positions, int64 [S].

    Raises ValueError if the method is another one.
    """

    media: Media | None = None
    """What knows the tokens of images and sounds."""

    def __init__(self, program: Program, session: Session, name: str = "forward") -> None:
        meta = program.metadata(name)
        if meta.num_inputs() not in self._inputs or meta.num_outputs() != 1:
            raise ValueError(f"{meta.num_inputs()} inputs and {meta.num_outputs()} outputs")
        given = list(meta.input_tensor_meta(0).sizes())
        logits = list(meta.output_tensor_meta(0).sizes())
        if len(given) != self._rank or given[0] != 1 or len(logits) not in (2, 3):
            raise ValueError(f"tokens {given} and logits {logits}")
        self.chunk = int(given[1])
        """Most tokens of a call."""
        self.vocab_size = int(logits[-1])
        self.has_all_logits = len(logits) == 3 and logits[1] == given[1]
        self.takes_all_positions = list(meta.input_tensor_meta(1).sizes()) not in ([], [1])
        self._method = session.load_method(name)

    _inputs: tuple[int, ...] = (2,)
    _rank = 2

    def parts(self, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        """The tokens of each call."""
        for first in range(0, len(tokens), self.chunk):
            yield tokens[first : first + self.chunk]

    def logits(self, part: Sequence[int], position: int) -> Any:
        """Those [rows, vocabulary] after the last token, or after each."""
        count = len(part) if self.takes_all_positions else 1
        positions = np.arange(count, dtype=np.int64) + position
        given = [self._given(part), positions, *self._more(part, position)]
        return self._rows(self._method.execute(given)[0])

    def _more(self, part: Sequence[int], position: int) -> list[Any]:
        """What the method takes besides."""
        return []

    def _rows(self, logits: Any) -> Any:
        return logits.reshape(-1, self.vocab_size)

    def _given(self, part: Sequence[int]) -> Any:
        return np.asarray(part, dtype=np.int64).reshape(1, -1)


class MediaCalls(TokenCalls):
    """Of `text_decoder(vectors float32 [1, S, width], input_pos)`, which takes what
    `token_embedding(tokens)` makes of words, `vision_encoder(pixels)` of an image, and
    `audio_encoder(features)` of a sound. It may take positions int64 [3, S], too, if the file has a
    constant method `get_image_grid`: rows and columns of an image's tokens, of each such method.

    media: of another generator of the program, which may know images and sounds; None for none.
    """

    _inputs = (2, 3)
    _rank = 3

    def __init__(self, program: Program, session: Session, media: Media | None = None) -> None:
        super().__init__(program, session, "text_decoder")
        self._words = session.load_method("token_embedding")
        self._whole = None
        if "image_decoder" in program.method_names:
            self._whole = session.load_method("image_decoder")
        grids = constants(program, "get_image_grid")
        self.media: Media = media or Media(program, self.vocab_size, grids)
        self._vectors = self.media.vectors
        has_axes = program.metadata("text_decoder").num_inputs() == 3
        self._axes = AxialPositions() if has_axes else None

    def parts(self, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        """The tokens of each call; where those of an image see each other, these are one."""
        if self._whole is None:
            yield from super().parts(tokens)
            return
        first = 0
        for at, token in enumerate(tokens):
            if self._vectors.offset(token) == 0 and self._vectors.is_of_image(token):
                yield from super().parts(tokens[first:at])
                first = at + self._vectors.count(token)
                yield tokens[at:first]
        yield from super().parts(tokens[first:])

    def logits(self, part: Sequence[int], position: int) -> Any:
        """See `TokenCalls`."""
        if self._whole is None or not self._vectors.is_of_image(part[0]):
            return super().logits(part, position)
        at = np.asarray([position], dtype=np.int64)
        return self._rows(self._whole.execute([self._given(part), at])[0])

    def _more(self, part: Sequence[int], position: int) -> list[Any]:
        if self._axes is None:
            return []
        return [self._axes.of(self._vectors.places(part), position)]

    def _given(self, part: Sequence[int]) -> Any:
        tokens = np.asarray(part, dtype=np.int64)
        others = tokens >= self.vocab_size
        if others.all():
            return self._vectors.vectors(part)[None]
        words = np.where(others, 0, tokens).reshape(1, -1)
        vectors = np.array(self._words.execute([words])[0])
        if others.any():
            vectors[0, others] = self._vectors.vectors(tokens[others].tolist())
        return vectors


def calls_of(program: Program, session: Session, media: Media | None = None) -> TokenCalls:
    """Of a program's methods. ValueError if they are none of a language model."""
    names = program.method_names
    if Media.is_in(names):
        return MediaCalls(program, session, media)
    if "forward" not in names:
        raise ValueError(f"no method forward, but {sorted(names)}")
    return TokenCalls(program, session)


def constants(program: Program, name: str) -> list[Any]:
    """What the constant method of that name returns; nothing if there is none."""
    if name not in program.method_names:
        return []
    return [
        item
        for value in program.load_method(name).execute([])
        for item in (value.reshape(-1).tolist() if isinstance(value, np.ndarray) else [value])
    ]
