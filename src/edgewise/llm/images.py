"""Images in prompts: what stands for them in a text, and what a model sees in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.settings import load_settings, save_settings
from edgewise.llm.tiles import Tiling
from edgewise.llm.vectors import VectorPlace, VectorTokens
from edgewise.pictures import array, opened
from edgewise.runtime import Program

__all__ = ["AxialPositions", "ImageEncoder", "ImagePrompt"]


@dataclass(frozen=True)
class ImagePrompt:
    """What a prompt has for an image.

    placeholder: what the chat template writes. text: what is there instead, in which `token` stands
    `count` times for a vector of the image; `word` is what a text has for it. picture: settings of
    `edgewise.pictures.array`. tiling: how a large image is cut; None: it is not. others: the same
    for images of other sizes.
    """

    placeholder: str
    text: str
    token: int
    count: int
    picture: dict[str, Any]
    word: str = ""
    tiling: Tiling | None = None
    others: tuple[ImagePrompt, ...] = ()

    def of(self, picture: Any) -> ImagePrompt:
        """Of the size whose shape is nearest to that of one of Pillow's pictures."""
        if not self.others:
            return self
        shape = math.log(picture.width / picture.height)

        def apart(one: ImagePrompt) -> float:
            size = one.picture["size"]
            return abs(math.log(size["width"] / size["height"]) - shape)

        return min((self, *self.others), key=apart)

    def save(self, folder: Path) -> None:
        """Writes it to the folder of a model's tokenizer."""
        save_settings(self, folder, "images")

    @staticmethod
    def load(folder: str | Path) -> ImagePrompt | None:
        """Of the folder of a tokenizer; None if it says nothing of images. ValueError if the file
        is not as it should be."""
        return load_settings(folder, "images", _prompt_of)


def _prompt_of(told: dict[str, Any]) -> ImagePrompt:
    tiling = told.get("tiling")
    others = tuple(_prompt_of(one) for one in told.get("others", ()))
    return ImagePrompt(**{**told, "tiling": tiling and Tiling(**tiling), "others": others})


class AxialPositions:
    """Positions in time, height and width (M-RoPE) of a text with images, token by token.

    An image's tokens come row by row. Their positions are those of a text's next token, further by
    their row and column; a text goes on behind the last of them.
    """

    def __init__(self) -> None:
        self._next = [0]  # by token, the position of a text that would go on there

    def of(self, places: Sequence[VectorPlace | None], first: int) -> Any:
        """int64 [3, N] of tokens from number `first` of the text on, whose earlier ones were told
        before, or are of a text alone. places: None for a token of a text."""
        while len(self._next) <= first:
            self._next.append(self._next[-1] + 1)
        del self._next[first + 1 :]
        found = np.zeros((3, len(places)), dtype=np.int64)
        for index, place in enumerate(places):
            start = self._next[-1]
            found[:, index] = start
            if place is None:
                self._next.append(start + 1)
                continue
            found[1, index] += place.offset // place.columns
            found[2, index] += place.offset % place.columns
            is_last = place.offset == place.rows * place.columns - 1
            self._next.append(start + max(place.rows, place.columns) if is_last else start)
        return found


@dataclass
class _Size:
    """name: of the method. shape: of pixels, [1, 3, height, width]. count: tokens of an image, in
    as many rows and columns, if that is told. method: None until it is needed."""

    name: str
    shape: tuple[int, ...]
    count: int
    grid: tuple[int, int]
    method: Any = None


class ImageEncoder:
    """What a program's methods `vision_encoder`, `vision_encoder_1` ... see in images, each of one
    size.

    vectors: where they are kept. grids: rows and columns of each method's tokens, in turns, if they
    matter.
    """

    def __init__(self, program: Program, vectors: VectorTokens, grids: Sequence[int] = ()) -> None:
        self._session, self._vectors = program.new_session(), vectors
        names = [name for name in program.method_names if name.startswith("vision_encoder")]
        sizes = []
        for index, name in enumerate(sorted(names, key=lambda name: (len(name), name))):
            meta = program.metadata(name)
            shape = tuple(meta.input_tensor_meta(0).sizes())
            count = int(meta.output_tensor_meta(0).sizes()[1])
            grid = tuple(int(n) for n in grids[2 * index : 2 * index + 2])
            sizes.append(_Size(name, shape, count, (grid[0], grid[1]) if grid else (1, count)))
        self._sizes = {size.shape: size for size in sizes}

    def tokens(self, pixels: Any) -> list[int]:
        """Of an image float32 [1, 3, height, width]: the numbers of its tokens. ValueError if it
        has another size."""
        pixels = np.ascontiguousarray(pixels, dtype=np.float32)
        size = self._sizes.get(pixels.shape)
        if size is None:
            shapes = " or ".join(str(list(shape)) for shape in self._sizes)
            raise ValueError(
                f"[images] an image must be float32 {shapes}; got {list(pixels.shape)}"
            )

        def compute() -> Any:
            if size.method is None:
                size.method = self._session.load_method(size.name)
            return np.array(size.method.execute([pixels])[0]).reshape(size.count, -1)

        return self._vectors.tokens(pixels, compute, size.grid)

    def prepared(self, picture: Any, how: ImagePrompt) -> tuple[str, list[int]]:
        """What a text has for a picture, and the tokens in it: a path, a file's bytes, one of
        Pillow's, or uint8[height, width, 3]. ValueError if it cannot be read."""
        try:
            if how.tiling is None:
                picture = opened(picture)
                how = how.of(picture)
                return how.text, self.tokens(array(picture, how.picture))
            tiles, texts = how.tiling.cut(picture, how.picture)
            tokens = [token for tile in tiles for token in self.tokens(tile)]
            return (how.word * how.count).join(texts), tokens
        except OSError as failure:  # Pillow's, for what is no picture
            raise ValueError(
                f"[images] a picture must be one that Pillow reads; got {failure}"
            ) from None
