"""A small Whisper: features, the encoder, the decoder with its two caches."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.llm.mel import RATE, log_mel
from edgewise.llm.transcriber import Transcriber, read_wav

transformers = pytest.importorskip("transformers")
FRAMES = 120
START = [3, 7]


def whisper() -> Any:
    """Random weights of a size at which one token stands out."""
    config = transformers.WhisperConfig(
        vocab_size=300,
        num_mel_bins=80,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=FRAMES // 2,
        max_target_positions=64,
        decoder_start_token_id=3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        suppress_tokens=[11, 12],
        begin_suppress_tokens=[2, 13],
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:
                weight.normal_(0, 0.5)
            elif weight.dim() > 1:
                weight.mul_(6)
            elif "layer_norm" in name and "weight" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(0, 0.1)
    return model


def sound(seconds: float) -> Any:
    at = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(0).standard_normal(len(at)) * 0.05
    return (np.sin(2 * np.pi * (200 + 300 * at) * at) * 0.3 + noise).astype(np.float32)


@pytest.fixture(scope="module", params=["none", "8da4w"])
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    from edgewise.llm.export import quantize_model
    from edgewise.llm.export.quantization import Recipe
    from edgewise.llm.export.speech import lower_whisper

    model = whisper()
    if request.param != "none":
        model = quantize_model(model, Recipe(request.param))
    path = tmp_path_factory.mktemp(f"speech-{request.param}-") / "whisper.pte"
    lower_whisper(model, max_seq_len=4).save(path)
    return model, path


def next_logits(model: Any, features: Any, tokens: list[int]) -> Any:
    """Behind `tokens`, of which those at the start count; without caches, and suppressed as
    `transformers`' own processors of logits have it."""
    given = {"decoder_input_ids": torch.tensor([tokens]), "use_cache": False}
    with torch.no_grad():
        logits = model(torch.from_numpy(features), **given).logits[0, -1]
    logits[[11, 12]] = -torch.inf
    if len(tokens) == len(START):
        logits[[2, 13]] = -torch.inf
    return logits


def test_tokens_are_those_of_eager_pytorch(made: tuple[Any, Path]) -> None:
    model, path = made
    # A row's number halfway between two steps of 8 bits is another one after other roundings.
    margin = 0 if "none" in path.parent.name else 0.03
    transcriber = Transcriber(path)
    for seconds in (1.2, 0.4):  # of the second nothing is left of the first
        features = log_mel(sound(seconds), 80, FRAMES)
        tokens = list(transcriber.generate(features, START, max_new_tokens=32))
        assert len(set(tokens)) > 3, "a text of one token says nothing"
        # The end of text is not given.
        every = tokens if len(tokens) == 32 else [*tokens, 2]
        for i, token in enumerate(every):
            logits = next_logits(model, features, [*START, *tokens[:i]])
            assert logits[token] >= logits.max() - margin, i


@pytest.mark.peer
def test_the_peer_runs_it(made: tuple[Any, Path]) -> None:
    """Its Python has no sessions, in which methods share state: the encoder's result alone."""
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    model, path = made
    features = torch.from_numpy(log_mel(sound(1), 80, FRAMES))
    (got,) = Runtime.get().load_program(str(path)).load_method("encode").execute([features])
    with torch.no_grad():
        want = model.model.encoder(features).last_hidden_state
    gap = float((got - want).abs().max() / want.std())
    # A value between two steps of 8 bits goes to one or the other by the last bit of a sum.
    assert gap < (1e-4 if "none" in path.parent.name else 0.2)


@pytest.mark.parametrize("bands", [80, 128])
def test_features(bands: int) -> None:
    """As those of transformers, which computes some of it in float32."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands, chunk_length=2)
    for seconds in (0.3, 2, 3):
        want = extractor(sound(seconds), sampling_rate=RATE, return_tensors="np").input_features
        got = log_mel(sound(seconds), bands, 200)
        assert got.shape == want.shape
        assert np.abs(got - want).max() < 1e-4


def test_long_sound_goes_piece_by_piece(made: tuple[Any, Path]) -> None:
    transcriber = Transcriber(made[1])
    found = list(transcriber.transcribe(sound(2.5), START, max_new_tokens=5))
    one = list(transcriber.generate(log_mel(sound(2.5), 80, FRAMES), START, max_new_tokens=5))
    assert found[: len(one)] == one
    assert len(found) > len(one)


def test_what_does_not_fit_is_refused(made: tuple[Any, Path], tmp_path: Path) -> None:
    transcriber = Transcriber(made[1])
    with pytest.raises(ValueError, match=r"must be \[1, 80, 120\]"):
        transcriber.generate(np.zeros((1, 80, 100)))
    with pytest.raises(ValueError, match="below 300"):
        transcriber.generate(np.zeros((1, 80, FRAMES)), [300])
    path = tmp_path / "a.wav"
    for rate, width, message in ((8000, 2, "8000 Hz and 16 bits"), (RATE, 1, "8 bits")):
        with wave.open(str(path), "wb") as file:
            file.setparams((1, width, rate, 0, "NONE", ""))
            file.writeframes(bytes(64))
        with pytest.raises(ValueError, match=message):
            read_wav(path)
    path.write_bytes(b"no sound")
    with pytest.raises(ValueError, match="a WAV file"):
        read_wav(path)


def test_transcribe_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from edgewise.cli import main

    checkpoint, path, heard = tmp_path / "whisper", tmp_path / "small.pte", tmp_path / "a.wav"
    model = whisper()
    model.save_pretrained(checkpoint)
    given = ["--checkpoint", str(checkpoint), "--output", str(path), "--quantize", "none"]
    assert main(["llm", "export", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model_type"] == "whisper"
    with wave.open(str(heard), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((sound(1) * 32767).astype("<i2").tobytes())
    assert (
        main(["llm", "transcribe", str(path), str(heard), "--max-new-tokens", "9", "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    features = log_mel(read_wav(heard), 80, FRAMES)
    assert told["tokens"] == list(Transcriber(path).generate(features, max_new_tokens=9))
    assert told["text"] is None


def test_wav(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes(np.array([[16384, 0], [-32768, -32768]], dtype="<i2").tobytes())
    assert read_wav(path).tolist() == [0.25, -1.0]
