"""What a model hears in a sound, as a program's method: from a spectrogram to vectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from edgewise.edge.export import export_module
from edgewise.llm.export.decoder import EmbeddingDecoder, gap_of
from edgewise.llm.export.loading import text_part
from edgewise.llm.export.media_encoder import (
    MediaEncoder,
    check_gap,
    own_code,
    text_logits,
)

__all__ = ["AudioInputs", "AudioTower", "audio_tower"]


@dataclass(frozen=True)
class AudioInputs:
    """How a model takes a window of sound.

    shape: of its spectrogram, [1, bands, frames], or [1, frames, bands]. frames: of a window.
    token: the number of a token of a sound; count: the most of a window. mask: the type of a mask
    of frames that are sound. sample: a prompt with a sound that is shorter than a window, as the
    model's processor makes it, and `frames` of which are sound.
    """

    shape: tuple[int, ...]
    frames: int
    token: int
    count: int
    mask: torch.dtype
    sample: dict[str, torch.Tensor]
    sample_frames: int


class AudioTower(MediaEncoder):
    """forward(features float32 [1, bands, frames], frames int64 [1]) to [1, tokens, width of an
    embedding], by the model's own code: vectors of a window, of which the first are its sound's."""

    def __init__(self, model: Any, inputs: AudioInputs) -> None:
        super().__init__(model)
        self.inputs = inputs

    def forward(self, features: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
        """Vectors in the order of the tokens."""
        mask = (torch.arange(self.inputs.frames) < frames).to(self.inputs.mask).unsqueeze(0)
        with _KeepRows():
            heard = _features(self.model, features, mask)
        return self.joined([heard.reshape(1, -1, heard.shape[-1])])

    def exported(self) -> ExportedProgram:
        """Without the number of frames, if the model does not ask for it."""
        example = torch.zeros(self.inputs.shape), torch.full((1,), self.inputs.frames)
        program = export_module(self, example)
        if _is_used([node for node in program.graph.nodes if node.op == "placeholder"][-1]):
            return program
        return export_module(_Whole(self), example[:1])


def _is_used(node: Node) -> bool:
    """Whether a result of the program is computed from it."""
    reached = [node]
    for one in reached:
        reached += [user for user in one.users if user not in reached]
    return any(one.op == "output" for one in reached)


class _Whole(torch.nn.Module):
    """The same of windows that are full of sound."""

    def __init__(self, tower: AudioTower) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.tower(features, torch.full((1,), self.tower.inputs.frames))
        return found


def audio_tower(model: Any, inputs: AudioInputs) -> AudioTower:
    """Of a model that hears. ValueError if its text, computed from these vectors, would not be that
    of the model's own code."""
    tower = AudioTower(model, inputs)
    with own_code("audio", model, "hear by get_audio_features"), torch.no_grad():
        named = inspect.signature(model.forward).parameters
        sample = {name: value for name, value in inputs.sample.items() if name in named}
        tokens = sample["input_ids"]
        want = model(**sample, use_cache=False).logits[0, -1]
        count = int((tokens == inputs.token).sum())
        features = torch.zeros(inputs.shape)
        given = sample["input_features"]
        both = tuple(slice(min(pair)) for pair in zip(given.shape, inputs.shape, strict=True))
        features[both] = given[both]
        heard = tower(features, torch.full((1,), inputs.sample_frames))
        if heard.shape[1] < count:
            raise ValueError(
                f"[audio] a sound must be as many vectors as tokens; got {heard.shape[1]} and "
                f"{count} for {type(model).__name__}"
            )
        length = tokens.shape[1]
        decoder = EmbeddingDecoder(text_part(model), length, length)
        got = text_logits(decoder, tokens, inputs.token, heard[:, :count])
        check_gap("audio", gap_of(got, want), model)
    return tower


def _features(inner: Any, features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """By the model's code: [..., width of an embedding], in which the sound's come first."""
    if hasattr(inner, "get_audio_features"):
        given = {"input_features": features}
        if "input_features_mask" in inspect.signature(inner.get_audio_features).parameters:
            given["input_features_mask"] = mask
        result = inner.get_audio_features(**given)
        found: torch.Tensor = getattr(result, "pooler_output", result)
        return found
    # Qwen2-Audio's code is in the middle of its forward.
    tower = inner.audio_tower
    count, _ = tower._get_feat_extract_output_lengths(mask.sum(-1))
    rows = torch.arange((features.shape[-1] - 2) // 2 + 1)
    hidden = torch.where(rows < count[:, None], 0.0, torch.finfo(torch.float32).min)
    heard = tower(features, attention_mask=hidden[:, None, None, :]).last_hidden_state
    projected: torch.Tensor = inner.multi_modal_projector(heard)
    return projected


class _KeepRows(TorchFunctionMode):
    """Leaves all rows where the model's code chooses those of sound, which come first: how many
    they are is known where the vectors are read."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.__getitem__:
            values, index = args
            if isinstance(index, torch.Tensor) and index.dtype == torch.bool:
                return values.reshape(-1, *values.shape[index.dim() :])
        return func(*args, **(kwargs or {}))
