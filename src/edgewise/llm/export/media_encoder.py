"""What is common to what a model sees and hears: the model's code in the place of embeddings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from edgewise.llm.export.decoder import LARGEST_GAP, EmbeddingDecoder

__all__ = ["FoldConstants", "MediaEncoder", "check_gap", "own_code", "text_logits"]


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


class FoldConstants(TorchFunctionMode):
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
