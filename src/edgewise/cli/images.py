"""From picture files to arrays. Needs Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"}


@dataclass(frozen=True)
class Preprocessing:
    """From pixels (0 to 255) to what the model takes, channel by channel:
    (pixel / scale - mean) / std. margin: the shorter side is made so many times the model's
    before the middle is cut out. stretch: both sides are made the model's instead. short_side:
    in pixels, instead of `margin`."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    margin: float = 1.0
    short_side: int | None = None
    stretch: bool = False

    def __str__(self) -> str:
        cut = "stretched to the model's size"
        if not self.stretch:
            side = self.short_side or f"{self.margin:.3g} x the model's"
            cut = f"shorter side to {side}, middle cut out"
        return f"{cut}; (pixel / {self.scale:g} - {list(self.mean)}) / {list(self.std)}"


PREPROCESSINGS: dict[str, Preprocessing] = {
    "imagenet": Preprocessing(255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), margin=256 / 224),
    "unit": Preprocessing(255, (0.0,), (1.0,)),
    "symmetric": Preprocessing(255, (0.5,), (0.5,)),
    "raw": Preprocessing(1, (0.0,), (1.0,)),
}
"""By name: torchvision's for ImageNet, [0, 1], [-1, 1], [0, 255]."""

Preprocess = Annotated[
    str,
    typer.Option(
        "--preprocess",
        metavar="NAME",
        autocompletion=lambda: list(PREPROCESSINGS),
        help="Of pictures: imagenet (mean and deviation of torchvision), unit (0 to 1), "
        "symmetric (-1 to 1) or raw (0 to 255).",
    ),
]
Mean = Annotated[
    str | None,
    typer.Option("--mean", metavar="M", help="Of pictures, instead: 0.5 or 0.485,0.456,0.406."),
]
Std = Annotated[str | None, typer.Option("--std", metavar="S", help="Of pictures, as --mean.")]
Resize = Annotated[
    int | None,
    typer.Option(
        "--resize", min=1, metavar="N", help="Of pictures: the shorter side before the cut, pixels."
    ),
]
Stretch = Annotated[
    bool, typer.Option("--stretch", help="Of pictures: change the proportions, cut nothing off.")
]


def preprocessing(
    name: str,
    mean: str | None = None,
    std: str | None = None,
    resize: int | None = None,
    stretch: bool = False,
) -> Preprocessing:
    """What the options say. CliError for a name or a number that is none."""
    if name not in PREPROCESSINGS:
        raise CliError(f"[--preprocess] must be one of {', '.join(PREPROCESSINGS)}; got {name!r}")
    found = PREPROCESSINGS[name]
    return replace(
        found,
        mean=_numbers("--mean", mean) if mean is not None else found.mean,
        std=_numbers("--std", std) if std is not None else found.std,
        short_side=resize,
        stretch=stretch,
    )


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise CliError(
            f"[{option}] must be a number or one for each channel; got {text!r}; "
            f"try {option} 0.485,0.456,0.406"
        ) from None


def is_image(path: Path) -> bool:
    """By its name."""
    return path.suffix.lower() in SUFFIXES


def holds_images(path: Path) -> bool:
    """Whether it is a picture, or a folder with one."""
    if path.is_dir():
        return any(is_image(one) for one in path.rglob("*"))
    return is_image(path)


def read_image(path: Path, shape: Sequence[int], dtype: str, how: Preprocessing) -> NDArray[Any]:
    """The picture as an input of that shape: [1, C, H, W], [1, H, W, C], or without the 1."""
    import numpy as np

    from edgewise.pictures import opened

    channels, height, width, first = _layout(path, shape)
    try:
        picture = opened(path, "L" if channels == 1 else "RGB")
    except OSError as failure:
        from PIL import UnidentifiedImageError

        if not isinstance(failure, UnidentifiedImageError):
            raise
        raise CliError(f"[{path}] must be a picture that Pillow reads; got other bytes") from None
    pixels = np.asarray(_fitted(picture, height, width, how), dtype=np.float32)
    values = pixels.reshape(height, width, channels)
    for option, numbers in (("--mean", how.mean), ("--std", how.std)):
        if len(numbers) not in (1, channels):
            if channels == 1:  # a preset's three channels for a grey picture
                continue
            raise CliError(
                f"[{option}] must be one number, or one for each of {channels} channels; "
                f"got {len(numbers)}"
            )
    mean, std = (_for(channels, numbers) for numbers in (how.mean, how.std))
    values = (values / np.float32(how.scale) - mean) / std
    if first:
        values = values.transpose(2, 0, 1)
    if np.dtype(dtype).kind in "iu":
        if how.scale != 1 or how.mean != (0.0,) or how.std != (1.0,):
            raise CliError(
                f"[{path}] the model takes {dtype}, not real numbers; try --preprocess raw"
            )
        values = np.round(values)
    return np.ascontiguousarray(values.reshape(shape), dtype=dtype)


def _layout(path: Path, shape: Sequence[int]) -> tuple[int, int, int, bool]:
    """Channels, height, width, and whether channels come first."""
    inner = list(shape)[1:] if len(shape) == 4 and shape[0] == 1 else list(shape)
    if len(inner) == 3 and inner[0] in (1, 3):
        return inner[0], inner[1], inner[2], True
    if len(inner) == 3 and inner[2] in (1, 3):
        return inner[2], inner[0], inner[1], False
    raise CliError(
        f"[{path}] a picture is for an input of 1x3xHxW or 1xHxWx3 (or 1 channel); got "
        f"{'x'.join(map(str, shape))}; try an .npy or .npz file"
    )


def _for(channels: int, numbers: tuple[float, ...]) -> Any:
    import numpy as np

    wanted = numbers if len(numbers) == channels else (sum(numbers) / len(numbers),)
    return np.asarray(wanted, dtype=np.float32)


def _fitted(picture: Any, height: int, width: int, how: Preprocessing) -> Any:
    from PIL import Image

    bilinear = Image.Resampling.BILINEAR
    if how.stretch:
        return picture.resize((width, height), bilinear)
    if how.short_side is not None:
        factor = how.short_side / min(picture.size)
    else:
        factor = how.margin * max(width / picture.width, height / picture.height)
    size = round(picture.width * factor), round(picture.height * factor)
    if size[0] < width or size[1] < height:
        raise CliError(
            f"[--resize] the picture must not become smaller than the model's {width}x{height}; "
            f"got {size[0]}x{size[1]}; try a larger --resize, or --stretch"
        )
    picture = picture.resize(size, bilinear)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.crop((left, top, left + width, top + height))
