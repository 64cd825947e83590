"""Large images in prompts: tiles of one size, and the whole image behind them.

A model that sees takes images of one size. Processors cut a larger one into tiles of that size, so
that what is written in it can be read, and tell in the text which row and column a tile is of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgewise.pictures import array, opened, resized

__all__ = ["Tiling"]


@dataclass(frozen=True)
class Tiling:
    """How an image is cut, and what a prompt has for that.

    kind: "longest_edge" makes the longer edge `most` tiles long (Idefics 3, SmolVLM), "aspect"
    takes of all grids of `most` tiles or fewer the one of the image's shape (InternVL). side: of a
    tile, pixels. texts: by "rows x columns" what stands before the first tile, between tiles, and
    behind the last one, the whole image; "0x0" for an image that is not cut.
    """

    kind: Literal["longest_edge", "aspect"]
    side: int
    most: int
    texts: Mapping[str, Sequence[str]]

    def cut(self, picture: Any, how: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
        """Of a picture as `edgewise.pictures.array` takes it: tiles float32 [1, 3, side, side], row
        by row, then the whole; and the texts around them.

        how: settings of that function, without its sizes. OSError if it is no picture.
        """
        pixels, grid = self.pixels(opened(picture), how)
        key = f"{grid[0]}x{grid[1]}"
        if key not in self.texts:
            raise ValueError(f"[images] no text for {key} tiles; try edgewise llm export again")
        return pixels, list(self.texts[key])

    def pixels(self, picture: Any, how: Mapping[str, Any]) -> tuple[list[Any], tuple[int, int]]:
        """Tiles as `cut` has them, of one of Pillow's pictures, and the rows and columns."""
        plain = {**how, "do_resize": False, "do_center_crop": False}
        tiles, grid = self.tiles(picture, how)
        return [array(tile, plain) for tile in tiles], grid

    def tiles(self, picture: Any, how: Mapping[str, Any]) -> tuple[list[Any], tuple[int, int]]:
        """Pillow's pictures, and how many rows and columns they are of; (0, 0): it is not cut."""
        if self.kind == "longest_edge":
            cut = whole = self._to_edge(picture, how)
        else:
            rows, columns = best_grid(picture.height, picture.width, self.side, self.most)
            cut = resized(picture, (columns * self.side, rows * self.side), how)
            whole = picture
        rows, columns = cut.height // self.side, cut.width // self.side
        small = resized(whole, (self.side, self.side), how)
        if rows * columns == 1:
            return [small], (0, 0)
        boxes = [(c * self.side, r * self.side) for r in range(rows) for c in range(columns)]
        tiles = [cut.crop((x, y, x + self.side, y + self.side)) for x, y in boxes]
        return [*tiles, small], (rows, columns)

    def _to_edge(self, picture: Any, how: Mapping[str, Any]) -> Any:
        """Resized twice, as Idefics 3's processor does: until the longer edge has its length and
        the other one is even, then to whole tiles."""
        edge, side = self.most * self.side, self.side
        shape = picture.width / picture.height
        is_wide = shape >= 1
        other = int(edge / shape if is_wide else edge * shape)
        other = max(other + other % 2, 1)
        width, height = (edge, other) if is_wide else (other, edge)
        picture = resized(picture, (width, height), how)
        shape = width / height
        if is_wide:
            width = math.ceil(width / side) * side
            height = math.ceil(int(width / shape) / side) * side
        else:
            height = math.ceil(height / side) * side
            width = math.ceil(int(height * shape) / side) * side
        return resized(picture, (width, height), how)


def best_grid(height: int, width: int, side: int, most: int) -> tuple[int, int]:
    """Rows and columns, of all with `most` tiles or fewer, whose shape is nearest to an image's; of
    equal shapes the larger one, unless its tiles have twice the image's pixels."""
    grids = [(r, c) for c in range(1, most + 1) for r in range(1, most + 1) if r * c <= most]
    best, least = (1, 1), math.inf
    for rows, columns in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        away = abs(width / height - columns / rows)
        is_filled = width * height > 0.5 * side * side * rows * columns
        if away < least or (away == least and is_filled):
            best, least = (rows, columns), away
    return best
