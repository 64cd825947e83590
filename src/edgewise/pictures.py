"""From pictures to arrays, as a `preprocessor_config.json` says. Needs Pillow."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.runtime.errors import InvalidArgumentError

KNOWN = {
    "crop_pct",
    "crop_size",
    "default_to_square",
    "do_center_crop",
    "do_convert_rgb",
    "do_flip_channel_order",
    "do_normalize",
    "do_rescale",
    "do_resize",
    "image_mean",
    "image_std",
    "resample",
    "rescale_factor",
    "size",
}
"""Settings that `array` follows."""
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
_MOST_PIXELS = 1 << 26


def array(value: Any, how: Mapping[str, Any]) -> Any:
    """A picture as float32[1, 3, height, width].

    value: a path, a file's bytes, a picture of Pillow's, or an array of uint8[height, width(, 3)].
    OSError if a file is no picture.
    """
    picture = opened(value)
    if how.get("do_resize", False):
        picture = _resized(picture, how)
    pixels = np.asarray(picture, dtype=np.uint8)
    if how.get("do_center_crop", False):
        pixels = _cropped(pixels, _size(how["crop_size"]))
    values = pixels.astype(np.float32)
    if how.get("do_rescale", False):
        values = values * np.float32(how["rescale_factor"])
    if how.get("do_normalize", False):
        mean, std = (np.asarray(how[name], np.float32) for name in ("image_mean", "image_std"))
        values = (values - mean) / std
    if how.get("do_flip_channel_order", False):
        values = values[..., ::-1]
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def resized(picture: Any, size: tuple[int, int], how: Mapping[str, Any]) -> Any:
    """One of Pillow's, of that width and height, by the filter that `how` tells."""
    from PIL import Image

    return picture.resize(size, Image.Resampling(int(how.get("resample", 2))))


def opened(value: Any, mode: str = "RGB") -> Any:
    """One of Pillow's, upright, in colour or another mode of Pillow's, of what `array` takes."""
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "[call] pictures need Pillow; got no PIL; try pip install 'edgewise[cli]'", name="PIL"
        ) from missing
    if isinstance(value, (str, Path, bytes)):
        is_file = not isinstance(value, bytes)
        source = io.BytesIO(value) if isinstance(value, bytes) else value
        # Bytes may be of anybody: a few formats, and no more than a camera's pixels.
        with Image.open(source, formats=None if is_file else _FORMATS) as opened:
            if not is_file and opened.width * opened.height > _MOST_PIXELS:
                raise InvalidArgumentError(
                    f"[call] a picture must have at most {_MOST_PIXELS} pixels; got "
                    f"{opened.width} x {opened.height}"
                )
            return ImageOps.exif_transpose(opened).convert(mode)
    if isinstance(value, Image.Image):
        return ImageOps.exif_transpose(value).convert(mode)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
        return Image.fromarray(value).convert(mode)
    raise InvalidArgumentError(
        f"[call] a picture must be a path, a PIL.Image or an array of uint8[height, width, 3]; "
        f"got {type(value).__name__}"
    )


def _size(given: Any) -> tuple[int, int]:
    """Height and width."""
    if isinstance(given, Mapping):
        return int(given["height"]), int(given["width"])
    return int(given), int(given)


def _resized(picture: Any, how: Mapping[str, Any]) -> Any:
    from PIL import Image

    filtering = Image.Resampling(int(how.get("resample", 2)))
    size = how["size"]
    if not isinstance(size, Mapping):
        size = {"shortest_edge": size}
    if "height" in size:
        height, width = _size(size)
        return picture.resize((width, height), filtering)
    short = int(size["shortest_edge"])
    crop = how.get("crop_pct")
    if crop is None:
        return _shortened(picture, short, filtering)
    if short >= 384:
        return picture.resize((short, short), filtering)
    larger = _shortened(picture, int(short / crop), filtering)
    return Image.fromarray(_cropped(np.asarray(larger), (short, short)))


def _shortened(picture: Any, short: int, filtering: Any) -> Any:
    """The shorter side made so long."""
    width, height = picture.size
    longer = int(short * max(width, height) / min(width, height))
    return picture.resize((short, longer) if width <= height else (longer, short), filtering)


def _cropped(pixels: Any, size: tuple[int, int]) -> Any:
    """The middle; with zeros around it where the picture is smaller."""
    lacking = [max(0, wanted - have) for wanted, have in zip(size, pixels.shape[:2], strict=True)]
    if any(lacking):
        edges = [((lack + 1) // 2, lack // 2) for lack in lacking]
        pixels = np.pad(pixels, [*edges, (0, 0)])
    top, left = ((have - want) // 2 for have, want in zip(pixels.shape[:2], size, strict=True))
    return pixels[top : top + size[0], left : left + size[1]]
