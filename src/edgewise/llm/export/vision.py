"""What a model sees in an image, as a program's method: from pixels to vectors as of tokens."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from edgewise.edge.export import export_module
from edgewise.llm.export.decoder import LARGEST_GAP, EmbeddingDecoder, gap_of
from edgewise.llm.export.loading import text_part
from edgewise.llm.images import AxialPositions, ImagePlace

__all__ = ["ImageInputs", "VisionEncoder", "image_methods", "vision_encoder"]

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


class VisionEncoder(torch.nn.Module):
    """forward(pixels float32 [1, 3, height, width]) to [1, tokens, width of an embedding].

    The model's own code from pixels to vectors. is_seen_whole: the tokens of an image see each
    other, also those behind them. others: how it takes images of other sizes.
    """

    def __init__(self, model: Any, inputs: ImageInputs, others: Sequence[ImageInputs] = ()) -> None:
        super().__init__()
        inner = copy.copy(model.model)
        decoder = model.get_decoder()
        # Without the language model, whose weights have nothing to do with it.
        inner._modules = {n: m for n, m in inner._modules.items() if m is not decoder}
        self.model = inner
        self.inputs = inputs
        self.others = tuple(others)
        self.is_seen_whole = False
        # Models with embeddings for each layer have those of padding for an image.
        by_layer = getattr(decoder, "embed_tokens_per_layer", None)
        behind = None
        if by_layer is not None:
            pad = model.config.text_config.pad_token_id
            with torch.no_grad():
                behind = by_layer(torch.full((1, 1), pad))
        self.register_buffer("behind", behind, persistent=False)

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
        if isinstance(self.behind, torch.Tensor):
            parts.append(self.behind.expand(1, parts[0].shape[1], -1))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]

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
    try:
        for one in encoder.sizes():
            _compare(model, one)
            encoder.is_seen_whole = one.is_seen_whole
        return encoder
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as failure:
        if str(failure).startswith("["):
            raise
        raise ValueError(
            f"[images] a model must see by get_image_features, and read vectors; got "
            f"{type(model).__name__}: {str(failure).splitlines()[0]}; try without --images, or a "
            f"model that docs/llm.md lists"
        ) from failure


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
            got = _text(decoder, encoder, tokens, seen)
            gaps[encoder.is_seen_whole] = gap_of(got, want)
    encoder.is_seen_whole = gaps[True] < gaps[False]
    gap = gaps[encoder.is_seen_whole]
    if gap <= LARGEST_GAP:
        return
    raise ValueError(
        f"[images] a text with an image must have the logits of the model's own code; got a "
        f"difference of {gap:.2g} of their deviation for {type(model).__name__}; try "
        f"without --images, or a model that docs/llm.md lists"
    )


def image_methods(
    decoder: EmbeddingDecoder, encoder: VisionEncoder, length: Any
) -> dict[str, ExportedProgram]:
    """Methods under the names that ExecuTorch's multimodal runner has.

    `vision_encoder(pixels) -> vectors`, `token_embedding(tokens) -> vectors` and
    `text_decoder(vectors, input_pos) -> logits`, for `length` tokens; for images of other sizes
    `vision_encoder_1` and so on; and for models in which the tokens of an image see each other
    `image_decoder`, as `text_decoder`, for those of one image. Where positions have three axes,
    `text_decoder` takes them, too. ValueError if images are seen whole and have several sizes.
    """
    if encoder.is_seen_whole and encoder.others:
        raise ValueError(
            f"[images] images whose tokens see each other must have one size; got "
            f"{1 + len(encoder.others)}; try one image size"
        )
    words = decoder.words
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    with torch.no_grad():
        width = words(tokens).shape[-1]
    start = torch.zeros(1, dtype=torch.int64)
    decoder.is_image = False
    more = [torch.zeros(3, 2, dtype=torch.int64)] if decoder.has_axes else []
    shapes = ({1: length}, None, *({1: length} for _ in more))
    found = {}
    for number, one in enumerate(encoder.sizes()):
        name = f"vision_encoder_{number}" if number else "vision_encoder"
        found[name] = export_module(one, (torch.zeros(1, 3, *one.inputs.size),))
    found |= {
        "token_embedding": export_module(words, (tokens,), ({1: length},)),
        "text_decoder": export_module(decoder, (torch.zeros(1, 2, width), start, *more), shapes),
    }
    if encoder.is_seen_whole:
        decoder.is_image = True
        image = torch.zeros(1, encoder.inputs.count, width)
        found["image_decoder"] = export_module(decoder, (image, start))
    return found


def _text(
    decoder: EmbeddingDecoder, encoder: VisionEncoder, tokens: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
    """The logits after a prompt [1, S] with one image."""
    words = decoder.words(tokens)
    image = torch.nonzero(tokens[0] == encoder.inputs.token).reshape(-1)
    words[0, image] = seen[0]
    start, end = int(image[0]), int(image[-1]) + 1
    decoder.clear()
    logits = torch.zeros(1, 0)
    axes, grid = AxialPositions(), encoder.inputs.grid or (1, encoder.inputs.count)
    places = [
        ImagePlace(at - start, *grid) if start <= at < end else None
        for at in range(tokens.shape[1])
    ]
    for first, last in ((0, start), (start, end), (end, tokens.shape[1])):
        if first < last:
            decoder.is_image = encoder.is_seen_whole and first == start
            more = []
            if encoder.inputs.grid is not None and decoder.has_axes:
                more = [torch.from_numpy(axes.of(places[first:last], first))]
            logits = decoder(words[:, first:last], torch.tensor([first]), *more)
    return logits[0]


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
