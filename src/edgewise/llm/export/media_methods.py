"""The methods of a program that reads images and sounds among the words of a text."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.edge.export import export_module
from edgewise.llm.export.audio_tower import AudioTower
from edgewise.llm.export.decoder import EmbeddingDecoder
from edgewise.llm.export.vision import VisionEncoder

__all__ = ["media_methods"]


def media_methods(
    decoder: EmbeddingDecoder,
    length: Any,
    images: VisionEncoder | None = None,
    audio: AudioTower | None = None,
) -> dict[str, ExportedProgram]:
    """Methods under the names that ExecuTorch's multimodal runner has.

    `vision_encoder(pixels) -> vectors`, `audio_encoder(features) -> vectors`,
    `token_embedding(tokens) -> vectors` and `text_decoder(vectors, input_pos) -> logits`, for
    `length` tokens; for images of other sizes `vision_encoder_1` and so on; and for models in which
    the tokens of an image see each other `image_decoder`, as `text_decoder`, for those of one
    image. Where positions have three axes, `text_decoder` takes them, too; where the model must
    know how many frames are sound, `audio_encoder` takes their number, int64 [1]. ValueError if
    images are seen whole and have several sizes.
    """
    if images is not None and images.is_seen_whole and images.others:
        raise ValueError(
            f"[images] images whose tokens see each other must have one size; got "
            f"{1 + len(images.others)}; try one image size"
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
    for number, one in enumerate(images.sizes() if images is not None else ()):
        name = f"vision_encoder_{number}" if number else "vision_encoder"
        found[name] = export_module(one, (torch.zeros(1, 3, *one.inputs.size),))
    if audio is not None:
        found["audio_encoder"] = audio.exported()
    found |= {
        "token_embedding": export_module(words, (tokens,), ({1: length},)),
        "text_decoder": export_module(decoder, (torch.zeros(1, 2, width), start, *more), shapes),
    }
    if images is not None and images.is_seen_whole:
        decoder.is_image = True
        image = torch.zeros(1, images.inputs.count, width)
        found["image_decoder"] = export_module(decoder, (image, start))
    return found
