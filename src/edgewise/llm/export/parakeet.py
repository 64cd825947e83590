"""Parakeet as a program: an encoder, and what makes text of its frames.

Fast Conformer with one of three decoders: logits of each frame (CTC), a transducer (RNN-T), or a
transducer that also tells how many frames a token takes (TDT).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from edgewise.edge.export import export_module
from edgewise.emit.config import ExecutorchBackendConfig
from edgewise.llm.export.shared_copy import shared_copy
from edgewise.llm.mel import FRAMES_PER_SECOND, RATE
from edgewise.lowering import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.registry import partitioner_for

__all__ = ["PARAKEETS", "check_features", "head_of", "lower_parakeet", "with_linear_convolutions"]

PARAKEETS = ("parakeet_ctc", "parakeet_rnnt", "parakeet_tdt")
"""The `model_type` of each."""
_SECONDS = 30.0
_AT_ONCE = 8
"""Frames whose logits one call of `joint` makes, at most."""
_FEATURES = {
    "feature_extractor_type": "ParakeetFeatureExtractor",
    "hop_length": RATE // FRAMES_PER_SECOND,
    "n_fft": 512,
    "padding_value": 0.0,
    "preemphasis": 0.97,
    "sampling_rate": RATE,
    "win_length": 400,
}
"""What `mel.log_mel_normalized` computes."""


def lower_parakeet(model: Any, *, seconds: float | None = None) -> ExecutorchProgramManager:
    """A `ParakeetForCTC`, `ParakeetForRNNT` or `ParakeetForTDT`, quantized or not, in one program.

    `encode(features float32 [1, frames, mels])` returns what the decoder reads, [1, T, width], with
    T = frames / 8 rounded up; of CTC the logits [1, T, vocabulary]. Of a transducer there are two
    more: `predict(token int64 [1, 1], hidden, cell float32 [layers, 1, width])` returns the
    prediction [1, 1, width] and the new states, and `joint(frames float32 [1, N, width], prediction
    [1, 1, width])` the logits of N <= 8 frames [1, N, vocabulary], behind which TDT has those of
    the durations.

    seconds: the longest sound of one call of `encode`, 30 unless told. ValueError if it is less
    than 2 or the model's positions do not reach so far.
    """
    config = model.config
    encoder = config.encoder_config
    step = encoder.subsampling_factor
    seconds = _SECONDS if seconds is None else seconds
    frames = int(seconds * FRAMES_PER_SECOND) // step * step
    most = encoder.max_position_embeddings * step
    if not 2 * FRAMES_PER_SECOND <= frames <= most:
        raise ValueError(
            f"[export] audio seconds must be from 2 to {most // FRAMES_PER_SECOND}, which is as "
            f"far as the model's positions reach; got {seconds:g}"
        )
    dynamic: Any = torch.export.Dim.DYNAMIC
    open_frames = dynamic(min=step + 1, max=frames)
    features = torch.zeros(1, 2 * step + 1, encoder.num_mel_bins)
    programs = {
        "encode": export_module(
            _Encode(model, frames // step),
            (features,),
            ({1: open_frames},),
        )
    }
    constants: dict[str, Any] = {
        "get_vocab_size": config.vocab_size,
        "get_blank_id": config.pad_token_id,
        "get_frames_per_step": step,
        "enable_dynamic_shape": True,
    }
    if config.model_type != "parakeet_ctc":
        width = config.decoder_hidden_size
        states = [torch.zeros(config.num_decoder_layers, 1, width) for _ in range(2)]
        token = torch.zeros(1, 1, dtype=torch.int64)
        count = torch.export.Dim("count", min=1, max=_AT_ONCE)
        joined = torch.zeros(1, 2, width), torch.zeros(1, 1, width)
        programs["predict"] = export_module(_Predict(model), (token, *states))
        programs["joint"] = export_module(_Joint(model), joined, ({1: count}, None))
        constants["get_blank_id"] = config.blank_token_id
        constants["get_start_id"] = _start_of(model)
        constants["get_max_symbols_per_step"] = config.max_symbols_per_step
        if config.model_type == "parakeet_tdt":
            constants["get_durations"] = [int(n) for n in config.durations]
    lowered = to_edge_transform_and_lower(
        programs, partitioner=[partitioner_for()], constant_methods=constants
    )
    return lowered.to_executorch(ExecutorchBackendConfig())


class _Encode(torch.nn.Module):
    def __init__(self, model: Any, most: int) -> None:
        super().__init__()
        self.encoder = shared_copy(model.encoder)
        self.encoder.encode_positions = _Positions(self.encoder.encode_positions, most)
        is_ctc = model.config.model_type == "parakeet_ctc"
        self.last = model.ctc_head if is_ctc else model.encoder_projector

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.encoder(features).last_hidden_state)
        return found


class _Positions(torch.nn.Module):
    """Those of the encoder, of a table: [1, 2 T - 1, width] from T - 1 down to 1 - T."""

    def __init__(self, original: Any, most: int) -> None:
        super().__init__()
        self.most = most
        self.register_buffer("table", original(torch.zeros(1, most, 1)), persistent=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        count = hidden_states.shape[1]
        table: torch.Tensor = self.table  # type: ignore[assignment]
        return table.narrow(1, self.most - count, 2 * count - 1)


class _Predict(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self, token: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        embedded = self.decoder.embedding(token)
        found, (hidden, cell) = self.decoder.lstm(embedded, (hidden, cell))
        return self.decoder.decoder_projector(found), hidden, cell


class _Joint(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.joint = model.joint

    def forward(self, frames: torch.Tensor, prediction: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.joint(prediction, frames)
        return logits


def _start_of(model: Any) -> int:
    """The token that a text begins behind."""
    start = getattr(model.generation_config, "decoder_start_token_id", None)
    return int(model.config.blank_token_id if start is None else start)


def head_of(model: Any) -> torch.nn.Module:
    """The layer that makes logits."""
    is_ctc = model.config.model_type == "parakeet_ctc"
    found: torch.nn.Module = model.ctc_head if is_ctc else model.joint.head
    return found


def check_features(told: Mapping[str, Any]) -> None:
    """told: the feature extractor's own settings. ValueError if it computes others than
    `mel.log_mel_normalized` does."""
    for name, value in _FEATURES.items():
        if told.get(name, value) != value:
            raise ValueError(
                f"[checkpoint] the spectrogram must have {name} {value}; got {told[name]}"
            )


class _Pointwise(torch.nn.Module):
    """A convolution of width 1 as a linear layer, which can be quantized as all others."""

    def __init__(self, original: torch.nn.Conv1d) -> None:
        super().__init__()
        self.linear = _linear(original)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(x.transpose(1, 2)).transpose(1, 2)
        return found


def _linear(original: torch.nn.Conv1d) -> torch.nn.Linear:
    """With the weights of a convolution of width 1."""
    sizes = original.in_channels, original.out_channels
    made = torch.nn.Linear(*sizes, bias=original.bias is not None, device="meta")
    made.weight = torch.nn.Parameter(original.weight[:, :, 0], requires_grad=False)
    if original.bias is not None:
        made.bias = torch.nn.Parameter(original.bias, requires_grad=False)
    return made


def with_linear_convolutions(model: Any) -> Any:
    """A copy, with the same weights, whose convolutions along time that mix channels alone are
    linear layers."""
    model = shared_copy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Conv1d and child.kernel_size == (1,):
                setattr(module, name, _Pointwise(child))
    if model.config.model_type == "parakeet_ctc":
        model.ctc_head = _linear(model.ctc_head)  # which takes and gives channels last
    return model
