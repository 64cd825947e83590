"""How a checkpoint's own processor puts an image into a prompt, and how large it makes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise.llm.export.processing import (
    TEXTS,
    media_token,
    prepared,
    processor_name,
    recording_processor,
    text_between,
)
from edgewise.llm.export.vision import Arrange, ImageInputs
from edgewise.llm.images import ImagePrompt
from edgewise.llm.tiles import Tiling
from edgewise.pictures import KNOWN, array

__all__ = ["read_processor"]

_SPLITTING = ("do_image_splitting", "do_pan_and_scan", "crop_to_patches")
"""Settings by which processors make several images of a large one."""

_SIDE = 448
"""Pixels, of models that take images of any size."""

_ROUNDS = 8
"""In which a processor's sizes come to rest."""

_LARGEST_STEP = 0.06
"""Of a pixel, where a processor resizes a picture twice. Of 256 shades, one is some 0.01."""


def read_processor(
    checkpoint: str | Path,
    image_sizes: Sequence[tuple[int, int]] = (),
    image_tiles: int | None = None,
) -> tuple[list[ImageInputs], ImagePrompt]:
    """Of a folder as `save_pretrained` writes it: what the model takes, and what goes before it.

    image_sizes: heights and widths in pixels, for models that take images of any size; none for
    their own, or a square of 448. image_tiles: the most tiles of an image, beside the whole; None
    for the whole alone. ValueError if there is no processor, it lacks a package, cuts no tiles, or
    images cannot be prepared here as it does.
    """
    processor = recording_processor(Path(checkpoint), "images")
    placeholder = _placeholder(processor)
    pictures = _pictures(90, 60, 60, 90)
    samples = [_prepared(processor, picture, placeholder) for picture in pictures]
    one_size = all(
        samples[0][name].shape == samples[1][name].shape
        and (name == "pixel_values" or torch.equal(samples[0][name], samples[1][name]))
        for name in _of_images(samples[0])
    )
    if one_size and image_sizes:
        raise ValueError(
            f"[images] the model's images have one size; got {_text(image_sizes[0])}; try without "
            f"an image size"
        )
    if len(set(image_sizes)) < len(image_sizes):
        raise ValueError(
            f"[images] image sizes must differ; got {', '.join(map(_text, image_sizes))}"
        )
    if image_tiles is not None and len(image_sizes) > 1:
        raise ValueError(
            f"[images] tiles have one size; got {', '.join(map(_text, image_sizes))}; try one"
        )
    token = media_token(Path(checkpoint), "image")
    found = []
    for height, width in image_sizes or ((_SIDE, _SIDE),):
        if not one_size:
            size = _size(processor, placeholder, (height, width), bool(image_sizes))
            pictures = _pictures(*size)
            samples = [_prepared(processor, picture, placeholder) for picture in pictures]
            height, width = size
        made = pictures, samples
        found.append(_of_size(processor, placeholder, token, (height, width), made, one_size))
    inputs, (prompt, *others) = [one for one, _ in found], [one for _, one in found]
    prompt = replace(prompt, others=tuple(others))
    if image_tiles is not None:
        prompt = replace(prompt, tiling=_tiling(processor, prompt, inputs[0].size, image_tiles))
    return inputs, prompt


def _of_size(
    processor: Any,
    placeholder: str,
    token: int,
    size: tuple[int, int],
    made: tuple[list[Any], list[dict[str, torch.Tensor]]],
    is_own: bool,
) -> tuple[ImageInputs, ImagePrompt]:
    """Of images of one size. made: pictures, and what the processor makes of them. size: height and
    width, for what it makes patches of. is_own: it makes that size of every picture; else pictures
    are stretched."""
    image_processor, (_, samples) = processor.image_processor, made
    settings = _settings(image_processor)
    size, settings, arrange = _way(image_processor, settings, size, made, is_own)
    sample = samples[0]
    count = int((sample["input_ids"] == token).sum())
    text = text_between(processor, "images")
    if count == 0:
        raise ValueError(
            f"[images] an image must be tokens {token} of a prompt; got 0 of them in "
            f"{processor.tokenizer.text[:80]!r} of {processor_name(processor)}"
        )
    constants = {name: sample[name] for name in _of_images(sample) if name != "pixel_values"}
    merge = getattr(image_processor, "merge_size", None)
    grid = None
    if merge and "image_grid_thw" in constants:
        _, rows, columns = constants["image_grid_thw"][0].tolist()
        grid = (rows // merge, columns // merge)
    inputs = ImageInputs(size, count, token, arrange, grid, constants, sample)
    word = processor.tokenizer.convert_ids_to_tokens(token)
    return inputs, ImagePrompt(placeholder, text, token, count, settings, word)


def _text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _tiling(processor: Any, prompt: ImagePrompt, size: tuple[int, int], image_tiles: int) -> Tiling:
    """How the processor cuts images into `image_tiles` tiles of that size or fewer.

    ValueError if it cuts none, or we would make other ones of some pictures.
    """
    side = size[0]
    options: dict[str, Any]
    if hasattr(processor.image_processor, "do_image_splitting") and size == (side, side):
        most = math.isqrt(image_tiles)  # along an edge
        tiling = Tiling("longest_edge", side, most, {})
        options = {"do_image_splitting": True, "size": {"longest_edge": most * side}}
        grids = [(most, n) for n in range(1, most + 1)] + [(n, most) for n in range(1, most)]
    elif hasattr(processor.image_processor, "crop_to_patches") and size == (side, side):
        most = image_tiles
        tiling = Tiling("aspect", side, most, {})
        options = {"crop_to_patches": True, "min_patches": 1, "max_patches": most}
        grids = [(r, c) for r in range(1, most + 1) for c in range(1, most // r + 1)]
    else:
        raise ValueError(
            f"[images] tiles need a processor that cuts images into some of {side} x {side} "
            f"pixels; got {type(processor.image_processor).__name__}; try without --image-tiles"
        )
    if most < 2:
        raise ValueError(
            f"[images] the model's images are cut into 2 x 2 tiles or more; got "
            f"image_tiles={image_tiles}; try 4"
        )
    texts: dict[str, list[str]] = {}
    exact = [n for rows, columns in grids for n in (rows * side, columns * side)]
    odd = (90, 60, 60, 90, 200, 199, 300, 40, 40, 300, 2 * side + 7, side + 5, side - 3, 2 * side)
    for picture in [*_pictures(*exact), *_pictures(*odd)]:
        sample = _prepared(processor, picture, prompt.placeholder, options)
        wanted = sample["pixel_values"].reshape(-1, 3, side, side)
        parts = text_between(processor, "images").split(prompt.word * prompt.count)
        tiles, grid = tiling.pixels(picture, prompt.picture)
        pixels = torch.cat([torch.from_numpy(tile) for tile in tiles])
        known = texts.setdefault(f"{grid[0]}x{grid[1]}", parts)
        is_same = pixels.shape == wanted.shape and len(parts) == len(tiles) + 1 and known == parts
        if not is_same or float((pixels - wanted).abs().max()) > _LARGEST_STEP:
            raise ValueError(
                f"[images] images must be cut into tiles as Idefics 3 or InternVL do; got other "
                f"ones of {picture.width} x {picture.height} pixels from "
                f"{type(processor.image_processor).__name__}; try without --image-tiles, and "
                f"please tell us of this processor"
            )
    return replace(tiling, texts=texts)


def _pictures(*sides: int) -> list[Any]:
    """Random ones without edges: heights and widths in turns."""
    from PIL import Image

    random = np.random.default_rng(0)
    small = random.integers(0, 256, (len(sides), 4, 4, 3), dtype=np.uint8)
    pairs = zip(small, sides[1::2], sides[::2], strict=False)
    return [Image.fromarray(one).resize((wide, high), 3) for one, wide, high in pairs]


def _prepared(
    processor: Any, picture: Any, placeholder: str, options: Mapping[str, Any] | None = None
) -> dict[str, torch.Tensor]:
    splitting = {n: False for n in _SPLITTING if hasattr(processor.image_processor, n)}
    given = {**splitting, **(options or {})}
    found = prepared(processor, "images", placeholder, images=[picture], **given)
    if (places := found.get("image_position_ids")) is not None:  # without patches that fill up
        count = int((places >= 0).all(-1).sum())
        found["image_position_ids"] = places[:, :count]
        found["pixel_values"] = found["pixel_values"][:, :count]
    return found


def _of_images(sample: dict[str, torch.Tensor]) -> list[str]:
    """What a processor makes of images, not of the text."""
    return [name for name in sample if name not in TEXTS]


def _placeholder(processor: Any) -> str:
    """What stands for an image in a prompt: the first that the processor takes for one."""
    known = [getattr(processor, name, None) for name in ("image_token", "boi_token")]
    names = [name for name in known if isinstance(name, str)]
    refused = None
    for name in names:
        try:
            _prepared(processor, _pictures(64, 64)[0], name)
        except ValueError as failure:
            refused = refused or failure
            continue
        return name
    raise refused or ValueError(
        f"[images] a processor must tell its image token; got {processor_name(processor)}; try "
        f"without --images"
    )


def _size(
    processor: Any, placeholder: str, size: tuple[int, int], is_asked: bool
) -> tuple[int, int]:
    """Near that height and width, those of a picture that the processor leaves as it is. ValueError
    if others were asked for."""
    found = size
    for _ in range(_ROUNDS):
        made = _made_size(processor, placeholder, found)
        if made == found:
            break
        found = made
    if found != size and is_asked:
        raise ValueError(
            f"[images] an image size must be one that the processor leaves as it is; got "
            f"{_text(size)}; try {_text(found)}"
        )
    return found


def _made_size(processor: Any, placeholder: str, size: tuple[int, int]) -> tuple[int, int]:
    """The height and width that the processor makes of a picture's."""
    sample = _prepared(processor, _pictures(*size)[0], placeholder)
    height, width = sample["pixel_values"].shape[-2:]
    patch: Any = getattr(processor.image_processor, "patch_size", None)
    if "image_grid_thw" in sample:
        height, width = (int(n) * patch for n in sample["image_grid_thw"][0, 1:])
    elif "image_position_ids" in sample:
        width, height = ((int(n) + 1) * patch for n in sample["image_position_ids"][0].amax(0))
    return int(height), int(width)


def _settings(image_processor: Any) -> dict[str, Any]:
    """Those that `edgewise.pictures.array` follows."""
    found = {k: v for k, v in image_processor.to_dict().items() if v is not None and k in KNOWN}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=dict))
    return plain


def _way(
    image_processor: Any,
    settings: dict[str, Any],
    size: tuple[int, int],
    made: tuple[list[Any], list[dict[str, torch.Tensor]]],
    is_own: bool,
) -> tuple[tuple[int, int], dict[str, Any], Arrange]:
    """The size of an image, settings, and what becomes of its pixels: what gives the samples."""
    pictures, samples = made
    wanted = [sample["pixel_values"] for sample in samples]
    shape = tuple(wanted[0].shape)
    is_image = len(shape) > 3 and shape[-3] == 3
    height, width = shape[-2:] if is_image else size
    fixed = {"do_resize": True, "size": {"height": height, "width": width}, "do_center_crop": False}
    tried = ({**settings, **fixed}, settings) if is_own else ({**settings, **fixed},)
    ways = _arrangements(image_processor, shape, height, width)
    for how in reversed(tried):
        try:
            pixels = [torch.from_numpy(array(one, how)) for one in pictures]
        except (KeyError, TypeError, ValueError):
            continue
        if any(p.shape[-2:] != (height, width) for p in pixels):
            continue
        for arrange in ways:
            pairs = zip(pixels, wanted, strict=True)
            if all(float((arrange(p) - w).abs().max()) <= _LARGEST_STEP for p, w in pairs):
                return (height, width), how, arrange
    raise ValueError(
        f"[images] pictures must be resized, cut out, rescaled and normalised, and no more; got "
        f"other pixels {list(shape)} of {type(image_processor).__name__}; try without --images, "
        f"and please tell us of this processor"
    )


def _arrangements(
    image_processor: Any, shape: tuple[int, ...], height: int, width: int
) -> list[Arrange]:
    """Ways from [1, 3, height, width] to a tensor of that shape."""
    found: list[Arrange] = []
    if shape[-3:] == (3, height, width):
        found.append(lambda pixels: pixels.reshape(shape))
    side = getattr(image_processor, "patch_size", None)
    merge = getattr(image_processor, "merge_size", None)
    times = getattr(image_processor, "temporal_patch_size", None)
    if len(shape) == 3 and isinstance(side, int) and shape[-1] == 3 * side * side:
        rows, columns = height // side, width // side

        def in_rows(pixels: torch.Tensor) -> torch.Tensor:
            split = pixels.reshape(3, rows, side, columns, side)
            return split.permute(1, 3, 2, 4, 0).reshape(shape)

        found.append(in_rows)
    if len(shape) == 2 and side and merge and times:
        high, wide = height // side // merge, width // side // merge

        def in_blocks(pixels: torch.Tensor) -> torch.Tensor:
            split = pixels.reshape(3, high, merge, side, wide, merge, side)
            split = split.permute(1, 4, 2, 5, 0, 3, 6).unsqueeze(5)
            return split.expand(-1, -1, -1, -1, -1, times, -1, -1).reshape(shape)

        found.append(in_blocks)
    return found
