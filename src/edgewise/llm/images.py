"""Images in prompts: what stands for them in a text, and what a model sees in them.

A token of an image is a number that no token of a text has: from the vocabulary's size on, a range
for each image. So a generator finds an image that its cache holds as it finds words.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.files import read_json
from edgewise.llm.tiles import Tiling
from edgewise.pictures import array
from edgewise.runtime import Program

__all__ = ["AxialPositions", "ImageEncoder", "ImagePrompt"]

_NAME = "images.json"
_MOST_BYTES = 256 << 20
"""Of vectors that are kept."""


@dataclass(frozen=True)
class ImagePrompt:
    """What a prompt has for an image.

    placeholder: what the chat template writes. text: what is there instead, in which `token` stands
    `count` times for a vector of the image; `word` is what a text has for it. picture: settings of
    `edgewise.pictures.array`. tiling: how a large image is cut; None: it is not.
    """

    placeholder: str
    text: str
    token: int
    count: int
    picture: dict[str, Any]
    word: str = ""
    tiling: Tiling | None = None

    def save(self, folder: Path) -> None:
        """Writes it to the folder of a model's tokenizer."""
        told = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (folder / _NAME).write_text(told + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: str | Path) -> ImagePrompt | None:
        """Of the folder of a tokenizer; None if it says nothing of images. ValueError if the file
        is not as it should be."""
        path = Path(folder) / _NAME
        if not path.is_file():
            return None
        try:
            told = read_json(path.read_bytes())
            tiling = told.get("tiling")
            return ImagePrompt(**{**told, "tiling": tiling and Tiling(**tiling)})
        except (AttributeError, TypeError, ValueError) as failure:
            raise ValueError(
                f"[images] must be what edgewise llm export wrote; got {path}: {failure}"
            ) from None


class AxialPositions:
    """Positions in time, height and width (M-RoPE) of a text with images, token by token.

    grid: rows and columns of an image's tokens, in whose order they come. An image's are those of a
    text's next token, further by its row and column; a text goes on behind the last of them.
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        self._rows, self._columns = grid
        self._next = [0]  # by token, the position of a text that would go on there

    def of(self, offsets: Sequence[int | None], first: int) -> Any:
        """int64 [3, N] of tokens from number `first` of the text on, whose earlier ones were told
        before, or are of a text alone. offsets: of a token in its image; None for one of a text."""
        while len(self._next) <= first:
            self._next.append(self._next[-1] + 1)
        del self._next[first + 1 :]
        found = np.zeros((3, len(offsets)), dtype=np.int64)
        for index, offset in enumerate(offsets):
            start = self._next[-1]
            found[:, index] = start
            if offset is None:
                self._next.append(start + 1)
                continue
            found[1, index] += offset // self._columns
            found[2, index] += offset % self._columns
            is_last = offset == self._rows * self._columns - 1
            self._next.append(start + max(self._rows, self._columns) if is_last else start)
        return found


class ImageEncoder:
    """What a program's method `vision_encoder` sees in images, by the numbers of their tokens.

    For several generators of one program and several threads.
    """

    def __init__(self, program: Program, vocab_size: int) -> None:
        meta = program.metadata("vision_encoder")
        self.shape = tuple(meta.input_tensor_meta(0).sizes())
        """Of pixels: [1, 3, height, width]."""
        self.count = int(meta.output_tensor_meta(0).sizes()[1])
        """Tokens of an image."""
        self._first = vocab_size
        self._method = program.new_session().load_method("vision_encoder")
        self._lock = threading.Lock()
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._seen: dict[int, Any] = {}
        self._next = 0

    def tokens(self, pixels: Any) -> list[int]:
        """Of an image float32 [1, 3, height, width]: the numbers of its tokens. ValueError if it
        has another size."""
        pixels = np.ascontiguousarray(pixels, dtype=np.float32)
        if pixels.shape != self.shape:
            raise ValueError(
                f"[images] an image must be float32 {list(self.shape)}; got {list(pixels.shape)}"
            )
        key = hashlib.sha256(pixels.tobytes()).digest()
        with self._lock:
            if key not in self._numbers:
                vectors = np.array(self._method.execute([pixels])[0]).reshape(self.count, -1)
                self._numbers[key], self._seen[self._next] = self._next, vectors
                self._next += 1
                most = max(1, _MOST_BYTES // vectors.nbytes)
                while len(self._numbers) > most:
                    del self._seen[self._numbers.popitem(last=False)[1]]
            self._numbers.move_to_end(key)
            first = self._first + self._numbers[key] * self.count
        return list(range(first, first + self.count))

    def offset(self, token: int) -> int | None:
        """Of a token in its image, from 0; None for those of a text."""
        return None if token < self._first else (token - self._first) % self.count

    def knows(self, tokens: Any) -> bool:
        """Whether these numbers int64 [N], of images, are ones that are still known."""
        images = np.unique((np.asarray(tokens) - self._first) // self.count)
        with self._lock:
            return all(int(image) in self._seen for image in images)

    def vectors(self, tokens: Sequence[int]) -> Any:
        """float32 [N, width] of tokens of images. ValueError if one is not known any more."""
        with self._lock:
            places = [divmod(token - self._first, self.count) for token in tokens]
            try:
                return np.stack([self._seen[image][row] for image, row in places])
            except KeyError:
                raise ValueError(
                    "[images] an image of the text is not known any more; try the prompt again"
                ) from None

    def prepared(self, picture: Any, how: ImagePrompt) -> tuple[str, list[int]]:
        """What a text has for a picture, and the tokens in it: a path, a file's bytes, one of
        Pillow's, or uint8[height, width, 3]. ValueError if it cannot be read."""
        try:
            if how.tiling is None:
                return how.text, self.tokens(array(picture, how.picture))
            tiles, texts = how.tiling.cut(picture, how.picture)
            tokens = [token for tile in tiles for token in self.tokens(tile)]
            return (how.word * how.count).join(texts), tokens
        except OSError as failure:  # Pillow's, for what is no picture
            raise ValueError(
                f"[images] a picture must be one that Pillow reads; got {failure}"
            ) from None
