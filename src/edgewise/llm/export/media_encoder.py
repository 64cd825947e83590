"""What is common to what a model sees and hears: the model's code in the place of embeddings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from edgewise.llm.export.decoder import LARGEST_GAP, EmbeddingDecoder

__all__ = ["MediaEncoder", "check_gap", "own_code", "text_logits"]


class MediaEncoder(torch.nn.Module):
    """Of a model's modules those that make vectors in the place of tokens' embeddings."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        inner = copy.copy(model.model)
        decoder = model.get_decoder()
        # Without the language model, whose weights have nothing to do with it.
        inner._modules = {n: m for n, m in inner._modules.items() if m is not decoder}
        self.model = inner
        # Models with embeddings for each layer have those of padding for an image or a sound.
        by_layer = getattr(decoder, "embed_tokens_per_layer", None)
        behind = None
        if by_layer is not None:
            pad = model.config.text_config.pad_token_id
            with torch.no_grad():
                behind = by_layer(torch.full((1, 1), pad))
        self.register_buffer("behind", behind, persistent=False)

    def joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """[1, tokens, width] of parts that stand behind each other, and of what each layer adds."""
        parts = list(parts)
        if isinstance(self.behind, torch.Tensor):
            parts.append(self.behind.expand(1, parts[0].shape[1], -1))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def text_logits(
    decoder: EmbeddingDecoder,
    tokens: torch.Tensor,
    token: int,
    vectors: torch.Tensor,
    *,
    is_seen_whole: bool = False,
    positions: Callable[[int, int], list[torch.Tensor]] | None = None,
) -> torch.Tensor:
    """The logits after a prompt int64 [1, S] in which vectors float32 [1, N, width] take the place
    of the N tokens `token`.

    is_seen_whole: they see each other. positions: what the decoder takes besides for tokens of a
    range from a first token to before a last one.
    """
    words = decoder.words(tokens)
    at = torch.nonzero(tokens[0] == token).reshape(-1)
    words[0, at] = vectors[0]
    start, end = int(at[0]), int(at[-1]) + 1
    decoder.clear()
    logits = torch.zeros(1, 0)
    for first, last in ((0, start), (start, end), (end, tokens.shape[1])):
        if first < last:
            decoder.is_image = is_seen_whole and first == start
            more = positions(first, last) if positions else []
            logits = decoder(words[:, first:last], torch.tensor([first]), *more)
    return logits[0]


def check_gap(kind: str, gap: float, model: Any) -> None:
    """ValueError if logits differ too much from those of the model's own code. kind: "images" or
    "audio"."""
    if gap <= LARGEST_GAP:
        return
    what = {"images": "an image", "audio": "a sound"}[kind]
    raise ValueError(
        f"[{kind}] a text with {what} must have the logits of the model's own code; got a "
        f"difference of {gap:.2g} of their deviation for {type(model).__name__}; try "
        f"without --{kind}, or a model that docs/llm.md lists"
    )


@contextmanager
def own_code(kind: str, model: Any, ways: str) -> Iterator[None]:
    """Turns what a model's code raises into a ValueError that says what it should be. kind: as of
    `check_gap`. ways: how it must make vectors."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as failure:
        if str(failure).startswith("["):
            raise
        raise ValueError(
            f"[{kind}] a model must {ways}, and read vectors; got "
            f"{type(model).__name__}: {str(failure).splitlines()[0]}; try without --{kind}, or a "
            f"model that docs/llm.md lists"
        ) from failure
