"""A causal language model of `transformers` as a program with caches."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from edgewise.llm.export.attention import NAME
from edgewise.llm.export.cache import PassingCache
from edgewise.llm.export.experts import with_linear_experts, with_plain_integers
from edgewise.llm.export.recurrence import own_functions
from edgewise.llm.export.rotary import RotaryTables
from edgewise.llm.export.shared_copy import shared_copy
from edgewise.llm.export.step import (
    Caches,
    Convolution,
    Kept,
    Recurrence,
    Row,
    Step,
    running,
)
from edgewise.llm.export.words import Words, add_to_all

__all__ = ["LARGEST_GAP", "CachedDecoder", "EmbeddingDecoder", "gap_of"]

LARGEST_GAP, _LARGEST_GAP_ROUNDED = 0.02, 0.5
"""Of a logit, in units of their deviation: where activations or keys are rounded to 8 bits, deep
models differ by some tenths."""


class CachedDecoder(torch.nn.Module):
    """The model, whose own code runs, with a cache for each layer and sequence.

    forward(tokens, input_pos): tokens int64 [B, S], S from 1 to `max_seq_len`; input_pos
    int64 [B], the position of each sequence's first token. Returns the logits [B, vocabulary] that
    follow the last one, or with `all_logits` those that follow each, [B, S, vocabulary], and
    leaves the tokens' keys and values in the caches.

    A layer with a sliding window keeps `window + max_seq_len - 1` slots, if that is less than
    `max_context_len`: the newest take the place of those that no query sees any more. So does a
    convolution over time, in float32. A recurrent state is kept whole. Layers that attend to
    another one's keys have no cache.

    kv_cache_dtype: of keys and values; as 8-bit integers they have a scale for each slot and head.
    """

    def __init__(
        self,
        model: Any,
        max_context_len: int,
        max_seq_len: int,
        *,
        batch: int = 1,
        all_logits: bool = False,
        kv_cache_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.model = _prepared(model, max_context_len)
        self.max_context_len = max_context_len
        self.batch, self.all_logits = batch, all_logits
        self.is_image = False
        self.kept = _kept(self.model)
        is_recurrent = any(isinstance(kept, Recurrence) for kept in self.kept.values())
        self.max_rewind: int | None = 0 if is_recurrent else None
        """By how many tokens a text can be taken back; None: by any number."""
        self._names: dict[tuple[int, type[Kept], int], list[str]] = {}
        for (index, kind), kept in self.kept.items():
            slots = max_context_len
            if isinstance(kept, Convolution):  # a ring holds what an output sees
                slots = max(slots, kept.width)
            if isinstance(kept, Recurrence):
                _check_recurrent(self.model, batch, all_logits)
            elif isinstance(kept, Convolution) and self.max_rewind == 0:
                slots = kept.width - 1
            elif (window := _window(kept)) is not None and window + max_seq_len - 1 < slots:
                slots = window + max_seq_len - 1
                self.max_rewind = max_seq_len if self.max_rewind is None else self.max_rewind
            for row in range(batch):
                names = self._names[index, kind, row] = []
                for part, (shape, dtype) in _tensors(kept, slots, kv_cache_dtype).items():
                    name = f"{part}_cache_{index}" + (f"_{row}" if batch > 1 else "")
                    empty = torch.zeros(1, *shape, dtype=dtype)
                    self.register_buffer(name, empty, persistent=False)
                    names.append(name)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        """Logits after the last token of each sequence, or after all."""
        return self._logits({"input_ids": tokens}, tokens.shape[1], input_pos)

    def _logits(
        self,
        given: dict[str, Any],
        length: Any,
        input_pos: torch.Tensor,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        rows = [self._row(input_pos, number, length) for number in range(self.batch)]
        if positions is None:
            first = input_pos.unsqueeze(1) if self.batch > 1 else input_pos
            positions = torch.arange(length) + first
            positions = positions if self.batch > 1 else positions.unsqueeze(0)
        caches: Caches = {
            key: tuple(getattr(self, name) for name in names) for key, names in self._names.items()
        }
        step = Step(
            rows,
            length,
            self.max_context_len,
            caches,
            is_image=self.is_image,
            has_axes=positions.dim() == 3,
        )
        logits = _call(self.model, step, given, positions, keep=0 if self.all_logits else 1)
        return logits if self.all_logits else logits[:, -1]

    def check(self) -> None:
        """That a text in pieces has the logits that the model's own attention computes for it as a
        whole: a model may keep more from call to call than keys and values.

        ValueError if it has not. Leaves the caches empty.
        """
        model, whole = self.model, torch.arange(1, 1 + min(12, self.max_context_len))
        whole = whole % model.config.vocab_size
        pieces = [piece for piece in (whole[:-5], whole[-5:-1], whole[-1:]) if len(piece)]
        with torch.no_grad():
            model.set_attn_implementation("eager")
            want = model(whole.unsqueeze(0), use_cache=False).logits[0, -1]
            model.set_attn_implementation(NAME)
            start = 0
            for piece in pieces:
                at = torch.full((self.batch,), start)
                try:
                    got = self(self._given(piece.expand(self.batch, -1)), at)
                except (IndexError, RuntimeError, TypeError) as failure:
                    raise ValueError(
                        f"[llm] a text in pieces must be computed as the whole is; got "
                        f"{type(model).__name__}: {str(failure).splitlines()[0]}; "
                        f"try a model that docs/llm.md lists"
                    ) from failure
                start += len(piece)
            self.clear()
        got = got[:, -1] if self.all_logits else got
        gap = gap_of(got, want)
        if not gap <= (_LARGEST_GAP_ROUNDED if self._is_rounded() else LARGEST_GAP):
            raise ValueError(
                f"[llm] a text in pieces must have the logits of the whole; got a difference of "
                f"{gap:.2g} of their deviation for {type(model).__name__}; "
                f"try a model that docs/llm.md lists"
            )

    def clear(self) -> None:
        """Empties the caches."""
        for names in self._names.values():
            for name in names:
                getattr(self, name).zero_()

    def _given(self, tokens: torch.Tensor) -> torch.Tensor:
        """What a call takes for tokens."""
        return tokens

    def _is_rounded(self) -> bool:
        """Whether numbers have fewer bits than float32's, or are rounded as the model runs."""
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.buffers()]
        return any(
            hasattr(t, "qdata") or t.dtype in (torch.int8, torch.float16, torch.bfloat16)
            for t in tensors
        )

    def _row(self, input_pos: torch.Tensor, number: int, length: Any) -> Row:
        at = input_pos if self.batch == 1 else input_pos[number : number + 1]
        start: Any = at.item()
        check: Any = torch._check
        check(start >= 0)
        check(start + length <= self.max_context_len)
        return Row(start, at)


class EmbeddingDecoder(CachedDecoder):
    """The same for tokens that are vectors: those of a text, or what a model sees in an image.

    forward(embeddings, input_pos): float32 [1, S, width], int64 [1]. With `is_image`, the tokens of
    a call see each other, before and behind them, as those of an image do in some models. Models
    with `has_axes` also take positions int64 [3, S], in time, height and width.

    Behind an embedding there may be more of the token, for the first layers (deepstack) or for all
    (embeddings for each layer). deep: layers that take more of an image.
    """

    def __init__(
        self, model: Any, max_context_len: int, max_seq_len: int, *, deep: int = 0, **options: Any
    ) -> None:
        super().__init__(model, max_context_len, max_seq_len, **options)
        self.words = Words(self.model, deep)
        for module in self.model.modules():
            if deep and hasattr(module, "_deepstack_process"):
                module._deepstack_process = add_to_all

    def forward(
        self,
        embeddings: torch.Tensor,
        input_pos: torch.Tensor,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits after the last token, or after all."""
        if positions is not None:
            positions = positions.unsqueeze(1)
        given = self.words.apart(embeddings)
        return self._logits(given, embeddings.shape[1], input_pos, positions)

    @property
    def has_axes(self) -> bool:
        """Whether positions of an image's tokens have three axes (M-RoPE)."""
        return any(isinstance(m, RotaryTables) and m.has_axes for m in self.model.modules())

    def _given(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.words(tokens)
        return found


def gap_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference of logits, in units of their deviation."""
    return float((got - want).abs().max() / want.std())


def _window(kept: Kept) -> int | None:
    """The tokens that the layer sees; None for all."""
    if isinstance(kept, Recurrence):
        return None
    return kept.width if isinstance(kept, Convolution) else kept.window


def _check_recurrent(model: Any, batch: int, all_logits: bool) -> None:
    """ValueError where a state would have to forget tokens."""
    asked = "batch" if batch > 1 else "all_logits" if all_logits else ""
    if asked:
        why = "shorter texts of a batch are padded" if batch > 1 else "drafts can be wrong"
        raise ValueError(
            f"[export] {asked} needs a model that can take tokens back, as {why}; got "
            f"{type(model).__name__}, whose recurrent state cannot; try without {asked}"
        )


def _tensors(
    kept: Kept, slots: int, kv_cache_dtype: torch.dtype
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of what a layer keeps of one sequence, by the first part of its name."""
    if isinstance(kept, Recurrence):
        return {"state": (kept.shape, torch.float32)}
    if isinstance(kept, Convolution):
        return {"conv": ((slots, kept.channels), torch.float32)}
    rows: tuple[int, ...] = (slots, kept.heads)
    numbers, scales = ((*rows, kept.depth), kv_cache_dtype), ((*rows, 1), torch.float32)
    found = {"k": numbers, "v": numbers}
    return found | ({"ks": scales, "vs": scales} if kv_cache_dtype == torch.int8 else {})


def _prepared(model: Any, context: int) -> Any:
    """The model's modules, with its very weights, for the cache's attention and with tables."""
    model = with_linear_experts(model)
    model = shared_copy(model)
    with_plain_integers(model)
    model.set_attn_implementation(NAME)
    types = sorted(set(getattr(model.config, "layer_types", None) or [""]))
    for name, module in list(model.named_modules()):
        if type(module).__name__.endswith("RotaryEmbedding"):
            model.set_submodule(name, RotaryTables(module, context, types))
    return model.eval()


def _call(
    model: Any, step: Step, given: dict[str, Any], positions: torch.Tensor, *, keep: int
) -> torch.Tensor:
    """The logits [B, keep, vocabulary] after the last tokens; after all for 0."""
    # The library has renamed the argument.
    named = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in named else "past_key_values"
    cache: Any = {name: PassingCache(step.rows[0].start)}
    with running(step), own_functions(model):
        result = model(
            **given, position_ids=positions, use_cache=True, logits_to_keep=keep, **cache
        )
    logits: torch.Tensor = result.logits
    return logits


def _kept(model: Any) -> dict[tuple[int, type[Kept]], Kept]:
    """What the model's layers keep, as its code tells for one token."""
    found: dict[tuple[int, type[Kept]], Kept] = {}
    zero = torch.zeros(1, dtype=torch.int64)
    what = type(model).__name__
    try:
        with torch.no_grad():
            step = Step([Row(0, zero)], 1, 1, found=found)
            _call(model, step, {"input_ids": zero.view(1, 1)}, zero.view(1, 1), keep=1)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as failure:
        if str(failure).startswith("["):
            raise
        raise ValueError(
            f"[llm] a model must keep keys and values, inputs of convolutions or states, of one "
            f"layer each, from call to call; got {what}: {str(failure).splitlines()[0]}; "
            f"try a model that docs/llm.md lists"
        ) from failure
    if not found:
        raise ValueError(
            f"[llm] a model must ask its configuration for its attention; got {what}, which does "
            f"not; try a model that docs/llm.md lists"
        )
    return found
