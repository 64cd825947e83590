"""What a model sees in an image, as a program's method: from pixels to vectors as of tokens."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from edgewise.llm.export.decoder import EmbeddingDecoder, gap_of
from edgewise.llm.export.loading import text_part
from edgewise.llm.export.media_encoder import (
    MediaEncoder,
    check_gap,
    own_code,
    text_logits,
)
from edgewise.llm.images import AxialPositions
from edgewise.llm.vectors import VectorPlace

__all__ = ["ImageInputs", "VisionEncoder", "vision_encoder"]

Arrange = Callable[[torch.Tensor], torch.Tensor]
"""From pixels float32 [1, 3, height, width] to what a model's code takes."""


@dataclass(frozen=True)
class ImageInputs:
    """How a model takes one image, of one size.

    size: height and width. count: tokens that stand for it, of the number `token`; grid: their rows
    and columns, if their order tells where in the image they are. arrange: see
    `Arrange`. constants: what the model's code takes beside pixels, which the size decides. sample:
    a prompt with an image, as the model's processor makes it.
    """

    size: tuple[int, int]
    count: int
    token: int
    arrange: Arrange
    grid: tuple[int, int] | None = None
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    sample: dict[str, torch.Tensor] = field(default_factory=dict)


class VisionEncoder(MediaEncoder):
    """forward(pixels float32 [1, 3, height, width]) to [1, tokens, width of an embedding].

    The model's own code from pixels to vectors. is_seen_whole: the tokens of an image see each
    other, also those behind them. others: how it takes images of other sizes.
    """

    def __init__(self, model: Any, inputs: ImageInputs, others: Sequence[ImageInputs] = ()) -> None:
        super().__init__(model)
        self.inputs = inputs
        self.others = tuple(others)
        self.is_seen_whole = False

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Vectors in the order of the tokens."""
        with _FoldConstants():
            return self.vectors(self.inputs.arrange(pixels))

    def vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        """Of pixels as the model's code takes them: [1, tokens, width]."""
        parts = [
            part.reshape(1, -1, part.shape[-1])
            for part in _features(self.model, pixels, self.inputs.constants)
        ]
        return self.joined(parts)

    def sizes(self) -> list[VisionEncoder]:
        """One for each size, with the same weights."""
        found = [self]
        for inputs in self.others:
            other = copy.copy(self)
            other.inputs = inputs
            found.append(other)
        return found

    @property
    def count(self) -> int:
        """The most tokens of an image."""
        return max(inputs.count for inputs in (self.inputs, *self.others))

    @property
    def deep(self) -> int:
        """How many layers of the language model take more of an image (deepstack)."""
        return len(getattr(self.model.config.vision_config, "deepstack_visual_indexes", ()))


def vision_encoder(
    model: Any, inputs: ImageInputs, others: Sequence[ImageInputs] = ()
) -> VisionEncoder:
    """Of a model that sees, for images of one size or several. ValueError if its text, computed
    from these vectors, would not be that of the model's own code."""
    encoder = VisionEncoder(model, inputs, others)
    with own_code("images", model, "see by get_image_features"):
        for one in encoder.sizes():
            _compare(model, one)
            encoder.is_seen_whole = one.is_seen_whole
    return encoder


def _compare(model: Any, encoder: VisionEncoder) -> None:
    """Tells `encoder` whether an image is seen whole. ValueError as `vision_encoder`."""
    inputs = encoder.inputs
    named = inspect.signature(model.forward).parameters
    sample = {name: value for name, value in inputs.sample.items() if name in named}
    tokens = sample["input_ids"]
    with torch.no_grad():
        want = model(**sample, use_cache=False).logits[0, -1]
        pixels = sample.pop("pixel_values")
        seen = encoder.vectors(pixels)
        if seen.shape[1] != inputs.count:
            raise ValueError(
                f"[images] an image must be as many vectors as tokens; got {seen.shape[1]} and "
                f"{inputs.count} for {type(model).__name__}"
            )
        length = tokens.shape[1]
        decoder = EmbeddingDecoder(text_part(model), length, length, deep=encoder.deep)
        gaps = {}
        for encoder.is_seen_whole in (False, True):
            got = text_logits(
                decoder,
                tokens,
                inputs.token,
                seen,
                is_seen_whole=encoder.is_seen_whole,
                positions=_axes_of(tokens, inputs) if decoder.has_axes else None,
            )
            gaps[encoder.is_seen_whole] = gap_of(got, want)
    encoder.is_seen_whole = gaps[True] < gaps[False]
    check_gap("images", gaps[encoder.is_seen_whole], model)


def _axes_of(tokens: torch.Tensor, inputs: ImageInputs) -> Callable[[int, int], list[torch.Tensor]]:
    """Positions in three axes of a range of a prompt's tokens [1, S]."""
    image = torch.nonzero(tokens[0] == inputs.token).reshape(-1)
    start, end = int(image[0]), int(image[-1]) + 1
    axes, grid = AxialPositions(), inputs.grid or (1, inputs.count)
    places = [
        VectorPlace(at - start, *grid) if start <= at < end else None
        for at in range(tokens.shape[1])
    ]
    return lambda first, last: [torch.from_numpy(axes.of(places[first:last], first))]


def _features(
    inner: Any, pixels: torch.Tensor, constants: dict[str, torch.Tensor]
) -> list[torch.Tensor]:
    """Of one image, by the model's code: [..., width of an embedding]; with deepstack several."""
    if hasattr(inner, "connector") and hasattr(inner, "vision_model"):
        # Idefics 3's code asks each image whether it is all zeros: padding.
        side = inner.config.vision_config.patch_size
        image = pixels.reshape(1, *pixels.shape[-3:])
        rows, columns = (n // side for n in image.shape[-2:])
        mask = torch.ones(1, rows, columns, dtype=torch.bool)
        hidden = inner.vision_model(pixel_values=image, patch_attention_mask=mask)
        return [inner.connector(hidden.last_hidden_state)]
    named = inspect.signature(inner.get_image_features).parameters
    given = {name: value for name, value in constants.items() if name in named}
    result = inner.get_image_features(pixel_values=pixels, **given)
    seen = [getattr(result, "pooler_output", result)]
    seen += getattr(result, "deepstack_features", None) or []
    return [torch.cat(list(one)) if isinstance(one, (list, tuple)) else one for one in seen]


class _FoldConstants(TorchFunctionMode):
    """While a model is traced, computes what depends on constants alone, such as the positions of
    patches of an image whose size is known: code that asks tensors for sizes cannot be traced."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not all(map(_is_known, tree_leaves((args, kwargs)))):
            if func is torch.Tensor.__getitem__ and _is_mask(args[1]):
                with _disable_current_modes():
                    chosen = tuple(args[1].nonzero().unbind(1))
                return func(args[0], chosen)
            return func(*args, **kwargs)
        with _disable_current_modes():
            return func(*args, **kwargs)


def _is_mask(index: Any) -> bool:
    """Whether it is known which elements an index chooses."""
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool and _is_known(index)


def _is_known(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is torch.Tensor and not torch._is_functional_tensor(value)
    return not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
