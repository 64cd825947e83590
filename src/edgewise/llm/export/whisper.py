"""Whisper as a program: an encoder that leaves keys and values for a decoder with a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from edgewise.edge.export import export_module
from edgewise.emit.config import ExecutorchBackendConfig, MemoryPlanningConfig
from edgewise.llm.export.attention import NAME
from edgewise.llm.export.cache import PassingCache
from edgewise.llm.export.heads import move_transposes
from edgewise.llm.export.shared_copy import shared_copy
from edgewise.llm.export.step import Attention, Caches, Row, Step, running
from edgewise.lowering import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.registry import partitioner_for

__all__ = ["lower_whisper"]


def lower_whisper(
    model: Any, *, max_context_len: int | None = None, max_seq_len: int = 16
) -> ExecutorchProgramManager:
    """A `WhisperForConditionalGeneration`, quantized or not, in one program.

    `encode(features float32 [1, mels, frames])` leaves what the decoder reads of the audio in the
    program's state, and returns the encoder's result [1, frames / 2, width]. `forward(tokens int64
    [1, S], input_pos int64 [1])` returns the logits [1, vocabulary] after the last token. If the
    model's `generation_config` has `alignment_heads`: `align`, with the same inputs, returns these
    heads' scores of the sound [heads, S, frames / 2], by which words get times.

    max_context_len: tokens of a text; None for as many as the model's positions. max_seq_len: most
    tokens of one call. ValueError if the model's positions do not reach so far.
    """
    config = model.config
    most = config.max_target_positions
    context = most if max_context_len is None else max_context_len
    if not 2 <= context <= most:
        raise ValueError(
            f"[export] max_context_len must be from 2 to the model's max_target_positions, {most}; "
            f"got {context}"
        )
    max_seq_len = min(max_seq_len, context)
    frames = 2 * config.max_source_positions
    length = torch.export.Dim("length", min=1, max=max_seq_len)
    tokens = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    features = torch.zeros(1, config.num_mel_bins, frames)
    programs = {"encode": export_module(_Encode(model), (features,))}
    decoders: dict[str, _Decode] = {"forward": _Decode(model, context)}
    if heads := _alignment_heads(model):
        decoders["align"] = _Align(model, context, heads)
    for name, module in decoders.items():
        programs[name] = export_module(module, tokens, ({1: length}, None))
        move_transposes(programs[name])
    lowered = to_edge_transform_and_lower(
        programs,
        partitioner=[partitioner_for()],
        constant_methods=_constants(model, context, max_seq_len),
    )
    planning = MemoryPlanningConfig(share_mutable_buffers=True)
    return lowered.to_executorch(ExecutorchBackendConfig(memory_planning=planning))


class _CrossCaches(torch.nn.Module):
    """Keys and values of the audio, by layer of the decoder: [1, slots, heads, depth]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        self.heads = config.decoder_attention_heads
        self.depth = config.d_model // self.heads
        self.slots, self.count = config.max_source_positions, config.decoder_layers
        for index in range(self.count):
            for kind in ("k", "v"):
                empty = torch.zeros(1, self.slots, self.heads, self.depth)
                self.register_buffer(f"{kind}_cross_{index}", empty, persistent=False)

    def cross(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return getattr(self, f"k_cross_{index}"), getattr(self, f"v_cross_{index}")


class _Encode(_CrossCaches):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.encoder = model.model.encoder
        layers = [layer.encoder_attn for layer in model.model.decoder.layers]
        self.keys = torch.nn.ModuleList(layer.k_proj for layer in layers)
        self.values = torch.nn.ModuleList(layer.v_proj for layer in layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.encoder(features).last_hidden_state
        shape = (1, self.slots, self.heads, self.depth)
        for index in range(self.count):
            keys, values = self.cross(index)
            keys.copy_(self.keys[index](hidden).view(shape))
            values.copy_(self.values[index](hidden).view(shape))
        return hidden


class _Decode(_CrossCaches):
    def __init__(self, model: Any, context: int) -> None:
        super().__init__(model)
        model = shared_copy(model)
        model.set_attn_implementation(NAME)
        self.decoder, self.proj_out = model.model.decoder, model.proj_out
        self.context = context
        for index in range(self.count):
            for kind in ("k", "v"):
                empty = torch.zeros(1, context, self.heads, self.depth)
                self.register_buffer(f"{kind}_cache_{index}", empty, persistent=False)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.run(tokens, input_pos, {})
        logits: torch.Tensor = self.proj_out(hidden[:, -1])
        return logits

    def run(
        self, tokens: torch.Tensor, input_pos: torch.Tensor, aligned: Mapping[int, Sequence[int]]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The decoder's result, and scores as `Step` has them."""
        length = tokens.shape[1]
        start: Any = input_pos.item()
        check: Any = torch._check
        check(start >= 0)
        check(start + length <= self.context)
        caches: Caches = {
            (index, Attention, 0): (
                getattr(self, f"k_cache_{index}"),
                getattr(self, f"v_cache_{index}"),
            )
            for index in range(self.count)
        }
        cross = {index: self.cross(index) for index in range(self.count)}
        row = Row(start, input_pos)
        step = Step([row], length, self.context, caches, cross=cross, aligned=aligned)
        with running(step):
            hidden: torch.Tensor = self.decoder(
                input_ids=tokens,
                position_ids=(torch.arange(length) + input_pos).unsqueeze(0),
                # Its keys and values are those that `encode` left.
                encoder_hidden_states=torch.zeros(1, 1, self.heads * self.depth),
                cache=PassingCache(start),
                use_cache=True,
            ).last_hidden_state
        return hidden, step.scores


class _Align(_Decode):
    """The same over the same caches, for what its heads attend to."""

    def __init__(self, model: Any, context: int, heads: Mapping[int, Sequence[int]]) -> None:
        super().__init__(model, context)
        self.aligned = heads

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        _, scores = self.run(tokens, input_pos, self.aligned)
        return torch.cat(scores, 1)[0]


def _alignment_heads(model: Any) -> dict[int, list[int]]:
    """By layer of the decoder, as the model's makers chose them. ValueError if it has no such."""
    found: dict[int, list[int]] = {}
    config = model.config
    for layer, head in getattr(model.generation_config, "alignment_heads", None) or ():
        if not (0 <= layer < config.decoder_layers and 0 <= head < config.decoder_attention_heads):
            raise ValueError(
                f"[export] alignment_heads in generation_config.json must be heads of the "
                f"decoder's {config.decoder_layers} layers; got [{layer}, {head}]"
            )
        found.setdefault(layer, []).append(head)
    return found


def _constants(model: Any, context: int, max_seq_len: int) -> dict[str, Any]:
    config, generation = model.config, model.generation_config
    ends = generation.eos_token_id if generation.eos_token_id is not None else config.eos_token_id

    def told(name: str) -> list[int]:
        found = getattr(generation, name, None)
        found = getattr(config, name, None) if found is None else found
        return [] if found is None else [int(t) for t in found if 0 <= int(t) < config.vocab_size]

    more: dict[str, Any] = {}
    for name, known in (
        ("get_no_timestamps_id", getattr(generation, "no_timestamps_token_id", None)),
        ("get_max_initial_timestamp", getattr(generation, "max_initial_timestamp_index", None)),
    ):
        if known is not None:
            more[name] = int(known)
    if _alignment_heads(model):
        more["get_median_filter_width"] = int(config.median_filter_width)
    if languages := getattr(generation, "lang_to_id", None):
        more["get_language_ids"] = sorted(int(t) for t in languages.values())
    return {
        **more,
        "get_max_seq_len": max_seq_len,
        "get_max_context_len": context,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.decoder_layers,
        "get_bos_id": config.decoder_start_token_id,
        "get_eos_ids": list(ends) if isinstance(ends, (list, tuple)) else [ends],
        "get_suppress_ids": told("suppress_tokens"),
        "get_begin_suppress_ids": told("begin_suppress_tokens"),
        "use_kv_cache": True,
        "enable_dynamic_shape": True,
    }
