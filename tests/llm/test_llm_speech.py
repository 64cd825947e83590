"""A small Whisper: features, the encoder, the decoder with its two caches."""

from __future__ import annotations

import copy
import json
import struct
import sys
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.llm.alignment import words_of
from edgewise.llm.mel import RATE, log_mel, log_mel_of_all
from edgewise.llm.subtitles import FORMATS
from edgewise.llm.text import load_tokenizer
from edgewise.llm.timestamps import Segment, Timestamps
from edgewise.llm.transcriber import Fallback, Transcriber, read_speech

transformers = pytest.importorskip("transformers")
FRAMES = 120
START = [3, 7]


def whisper(eos: int = 2) -> Any:
    """Random weights of a size at which one token stands out. eos: the token that ends a text."""
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
        eos_token_id=eos,
        pad_token_id=eos,
        suppress_tokens=[11, 12],
        begin_suppress_tokens=[eos, 13],
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
    from edgewise.llm.export.whisper import lower_whisper

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


def test_long_sound_without_times_goes_piece_by_piece(made: tuple[Any, Path]) -> None:
    transcriber = Transcriber(made[1])
    found = list(transcriber.transcribe(sound(2.5), START, max_new_tokens=5))
    assert [(one.start, one.end) for one in found] == [(0, 1.2), (1.2, 2.4), (2.4, 2.5)]
    features = log_mel_of_all(sound(2.5), 80)[None, :, :FRAMES]
    assert found[0].tokens == list(transcriber.generate(features, START, max_new_tokens=5))
    with pytest.raises(ValueError, match="tells no times"):
        transcriber.generate(features, START, times=True)
    with pytest.raises(ValueError, match="tells no languages apart"):
        transcriber.detect_language(features)


NO_TIMES, EOS = 200, 190
"""Tokens; times follow the first."""
LANGUAGES = {"<|en|>": 191, "<|de|>": 192, "<|fr|>": 193}


@pytest.fixture(scope="module", params=[1, 2])
def timed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model that writes times, of other weights each time."""
    from edgewise.llm.export.whisper import lower_whisper

    model = whisper(EOS)
    torch.manual_seed(request.param)
    with torch.no_grad():
        model.proj_out.weight.normal_(0, 0.6)
    told = model.generation_config
    told.no_timestamps_token_id, told.lang_to_id, told.is_multilingual = NO_TIMES, LANGUAGES, False
    told.max_initial_timestamp_index = 20 if request.param == 1 else None
    told.alignment_heads = [[0, 1], [1, 0], [1, 3]]
    path = tmp_path_factory.mktemp("timed") / "whisper.pte"
    lower_whisper(model, max_seq_len=4).save(path)
    return model, path


@pytest.mark.parametrize("prompt", [[], [196, 20, 21, 22]], ids=["", "prompt"])
@pytest.mark.parametrize("seconds", [1.3, 3.14, 6])
def test_times_are_those_of_transformers(
    timed: tuple[Any, Path], seconds: float, prompt: list[int]
) -> None:
    """Each text begins where the last segment that was whole has ended."""
    model, path = timed
    transcriber = Transcriber(path)
    heard = log_mel_of_all(sound(seconds), 80)[None, :, :FRAMES]
    start = [*transcriber.start_ids, transcriber.detect_language(heard)]
    found = list(transcriber.transcribe(sound(seconds), start, max_new_tokens=40, prompt=prompt))
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    features = extractor(
        sound(seconds),
        sampling_rate=RATE,
        return_tensors="pt",
        truncation=False,
        padding="longest",
    ).input_features
    options = {"return_timestamps": True, "return_segments": True, "max_new_tokens": 40}
    if prompt:
        options["prompt_ids"] = torch.tensor(prompt)
    with torch.no_grad():
        wanted = model.generate(features, **options)["segments"][0]
    told = [
        (float(one["start"]), float(one["end"]), [t for t in one["tokens"] if t <= NO_TIMES])
        for one in wanted
    ]
    told = [(start, end, [int(t) for t in tokens]) for start, end, tokens in told if tokens]
    assert len(told) > (seconds > 2), "one segment shows no times"
    assert [one.tokens for one in found] == [tokens for _, _, tokens in told]
    for one, (start, end, _) in zip(found, told, strict=True):
        assert (one.start, one.end) == pytest.approx((start, end), abs=1e-6)


@pytest.mark.parametrize("seconds", [0.5, 1.3, 3.14])
def test_times_of_tokens_are_those_of_transformers(timed: tuple[Any, Path], seconds: float) -> None:
    """Their attention, median and path, of each piece that is heard."""
    from transformers.models.whisper import generation_whisper as theirs

    model, path = timed
    transcriber = Transcriber(path)
    assert transcriber.tells_words
    start = [*transcriber.start_ids, 192]
    options: dict[str, Any] = {"max_new_tokens": 40, "token_times": True}
    found = list(transcriber.transcribe(sound(seconds), start, **options))
    plain = list(transcriber.transcribe(sound(seconds), start, max_new_tokens=40))
    assert [(s.start, s.end, s.tokens) for s in found] == [
        (s.start, s.end, s.tokens) for s in plain
    ]
    levels = log_mel_of_all(sound(seconds), 80)
    if seconds * 100 <= FRAMES:
        levels = log_mel(sound(seconds), 80, FRAMES)[0]
    count, seek, checked = int(np.ceil(seconds * 100)), 0, 0
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    while seek < count:
        heard = min(FRAMES, count - seek)
        features = np.zeros((1, 80, FRAMES), dtype=np.float32)
        taken = levels[:, seek : seek + FRAMES]
        features[0, :, : taken.shape[1]] = taken
        times: dict[str, Any] = {"times": True, "max_new_tokens": 40}
        written = list(transcriber.generate(features, start, **times))
        segments, moved = transcriber.times.segments(written, heard)
        words = [token for one in segments for token in one.tokens]
        if words:
            given = torch.tensor([[*start, NO_TIMES, *words, EOS]])
            with torch.no_grad():
                attention = eager(
                    torch.from_numpy(features), decoder_input_ids=given, output_attentions=True
                ).cross_attentions
            weights = torch.stack(
                [attention[layer][0, head] for layer, head in [(0, 1), (1, 0), (1, 3)]]
            )
            weights = weights[:, :, : heard // 2]
            weights = weights / weights.sum(-1, keepdim=True)
            weights = (weights - weights.mean(-2, keepdim=True)) / weights.std(
                -2, keepdim=True, unbiased=False
            )
            matrix = theirs._median_filter(weights, 7).mean(0)[len(start) : -1]
            rows, steps = theirs._dynamic_time_warping(-matrix.double().numpy())
            jumps = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
            wanted = seek / 100 + steps[jumps].clip(0, moved // 2) * 0.02
            got = found[checked : checked + sum(bool(s.tokens) for s in segments)]
            checked += len(got)
            flat = [t for one in got for t in one.token_times[:-1]] + [got[-1].token_times[-1]]
            assert flat == pytest.approx(wanted.tolist(), abs=1e-6)
        seek += moved
    assert checked == len(found) > 0


def test_the_language_is_that_of_transformers(timed: tuple[Any, Path]) -> None:
    model, path = timed
    transcriber = Transcriber(path)
    assert transcriber.language_ids == sorted(LANGUAGES.values())
    features = transcriber.features(sound(1))
    with torch.no_grad():
        (wanted,) = model.detect_language(torch.from_numpy(features), num_segment_frames=FRAMES)
    assert transcriber.detect_language(features) == int(wanted)


@pytest.mark.parametrize("silence", [0.0, 0.003, 1.0])
@pytest.mark.parametrize("logprob", [0.0, -1.6, -9.0])
def test_silence_is_that_of_transformers(
    timed: tuple[Any, Path], silence: float, logprob: float
) -> None:
    """Texts that are left out; no other temperature is tried."""
    model, path = timed
    transcriber = Transcriber(path)
    heard = log_mel_of_all(sound(4), 80)[None]
    start = [*transcriber.start_ids, transcriber.detect_language(heard[..., :FRAMES])]
    fallback = Fallback((0,), least_logprob=logprob, most_silence=silence)
    options: dict[str, Any] = {"max_new_tokens": 20, "fallback": fallback}
    found = [one.tokens for one in transcriber.transcribe(sound(4), start, **options)]
    with torch.no_grad():
        (wanted,) = model.generate(
            torch.from_numpy(heard),
            return_timestamps=True,
            return_segments=True,
            max_new_tokens=20,
            temperature=0.0,
            logprob_threshold=logprob,
            no_speech_threshold=silence,
        )["segments"]
    texts = [[int(t) for t in one["tokens"] if t <= NO_TIMES] for one in wanted]
    assert found == [text for text in texts if text]


def test_texts_that_are_not_believed(timed: tuple[Any, Path]) -> None:
    """They are written again, at random, and equally each time."""
    transcriber = Transcriber(timed[1])

    def texts(**changed: Any) -> list[list[int]]:
        options: dict[str, Any] = {"max_new_tokens": 20, "fallback": Fallback(**changed)}
        return [one.tokens for one in transcriber.transcribe(sound(1), START, **options)]

    plain = [one.tokens for one in transcriber.transcribe(sound(1), START, max_new_tokens=20)]
    believed = {"least_logprob": -99.0, "most_compression": 99.0}
    assert texts(**believed) == plain
    for doubt in ({"least_logprob": 1.0}, {"most_compression": 0.0}):
        other = texts(temperatures=(0, 1.0), most_silence=1.0, **{**believed, **doubt})
        assert other != plain
        assert other == texts(temperatures=(0, 1.0), most_silence=1.0, **{**believed, **doubt})
        assert texts(temperatures=(0,), most_silence=1.0, **{**believed, **doubt}) == plain


def test_models_of_english_have_one_language(tmp_path: Path) -> None:
    """Their tokenizers have all languages' tokens, and their texts begin without one."""
    words = load_tokenizer(vocabulary(tmp_path))
    english: Any = SimpleNamespace(
        times=Timestamps(NO_TIMES, EOS), language_ids=[], start_ids=[3], tokenizer=words
    )
    assert Transcriber.begin(english, sound(1), "en", False) == ([3], "en")
    for language, translate in (("de", False), (None, True)):
        with pytest.raises(ValueError, match="one language and task"):
            Transcriber.begin(english, sound(1), language, translate)


TEXTS = {
    # Times of a text, of 10 written tokens; frames that were heard. Segments; frames moved on.
    "no time": ([5, 6], 100, [(0, 1.0, [5, 6])], 100),
    "one time at the end": ([201, 5, 211], 100, [(0, 0.2, [5])], 100),
    "only a beginning": ([201, 5, 6], 100, [(0, 1.0, [5, 6])], 100),
    "two segments": ([201, 5, 211, 211, 6, 221], 100, [(0, 0.2, [5]), (0.2, 0.4, [6])], 100),
    "one that is cut off": ([201, 5, 211, 211, 6], 100, [(0, 0.2, [5])], 20),
    "only times": ([201, 201], 100, [(0, 0, [])], 100),
    "nothing": ([], 100, [(0, 1.0, [])], 100),
}


@pytest.mark.parametrize("case", TEXTS)
def test_segments_of_a_text(case: str) -> None:
    written, frames, wanted, moved = TEXTS[case]
    found, on = Timestamps(NO_TIMES, EOS).segments(written, frames)
    assert [(one.start, one.end, one.tokens) for one in found] == [
        (pytest.approx(start), pytest.approx(end), tokens) for start, end, tokens in wanted
    ]
    assert on == moved


def vocabulary(folder: Path) -> Path:
    """A tokenizer whose words are w0, w1, ..., with a Whisper's special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    names = {f" w{n}": n for n in range(300)}
    special = {**LANGUAGES, "<|transcribe|>": 194, "<|translate|>": 195, "<|notimestamps|>": 200}
    special["<|startofprev|>"] = 196
    special |= {f"<|{n * 0.02:.2f}|>": 201 + n for n in range(99)}
    words = {name: n for name, n in names.items() if n not in special.values()} | special
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" w0"))
    made.decoder = tokenizers.decoders.Fuse()
    made.add_special_tokens(list(special))
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_times_on_the_command_line(
    timed: tuple[Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgewise.cli import main

    path, heard = timed[1], tmp_path / "a.wav"
    with wave.open(str(heard), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((sound(3) * 32767).astype("<i2").tobytes())
    given = ["llm", "transcribe", str(path), str(heard), "--max-new-tokens", "30", "--no-fallback"]
    known = ["--tokenizer", str(vocabulary(tmp_path))]
    assert main([*given, *known, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert f"<|{told['language']}|>" in LANGUAGES
    assert len(told["segments"]) > 1
    special = [*LANGUAGES.values(), 194, 195]
    assert told["text"] == "".join(f" w{t}" for t in told["tokens"] if t not in special)
    assert main([*given, *known]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == told["text"].strip()
    assert f"language: {told['language']}" in said.err
    assert main([*given, *known, "--language", told["language"], "--format", "srt", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1\n00:00:00,")
    assert shown.count(" --> ") == len(told["segments"])
    assert main([*given, *known, "--format", "vtt"]) == 0
    assert capsys.readouterr().out.startswith("WEBVTT\n\n00:00:00.")
    assert main([*given, *known, "--words", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["segments"]
    assert [one["text"] for one in said] == [
        "".join(w["text"] for w in one["words"]) for one in said
    ]
    times = [word[end] for one in said for word in one["words"] for end in ("start", "end")]
    assert times == sorted(times)
    assert main([*given, *known, "--words", "--format", "srt"]) == 0
    assert capsys.readouterr().out.count(" --> ") == sum(len(one["words"]) for one in said)
    assert main([*given, *known, "--words"]) != 0
    assert "--words needs --format srt" in " ".join(capsys.readouterr().err.split())
    assert main([*given, "--format", "vtt"]) != 0
    assert "--words and --format need a tokenizer" in " ".join(capsys.readouterr().err.split())
    assert main([*given, *known, "--prompt", "w7 w8", "--json"]) == 0
    prompted = json.loads(capsys.readouterr().out)
    assert prompted["tokens"] != told["tokens"]
    assert main([*given, *known, "--language", "xx"]) != 0
    assert "one of the model's languages" in " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def heard(timed: tuple[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """OpenAI's client of a server of speech alone, and the sound that it sends."""
    openai = pytest.importorskip("openai")
    testclient = pytest.importorskip("starlette.testclient")
    pytest.importorskip("python_multipart", reason="the extra serve is not installed")
    from edgewise.llm.server import make_application

    folder = timed[1].with_suffix(".tokenizer")
    folder.mkdir(exist_ok=True)
    vocabulary(folder)
    path = tmp_path_factory.mktemp("heard") / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((sound(3) * 32767).astype("<i2").tobytes())
    application = make_application(timed[1], None, name="ears", waiting=2, body_bytes=1 << 17)
    with testclient.TestClient(application) as http:
        where = {"base_url": "http://testserver/v1", "api_key": "none", "max_retries": 0}
        yield openai.OpenAI(http_client=http, **where), path


def test_openai_s_client_hears(heard: Any, timed: tuple[Any, Path]) -> None:
    client, path = heard
    words = load_tokenizer(timed[1].with_suffix(".tokenizer"))
    transcriber = Transcriber(timed[1], words)
    samples = read_speech(path)
    start, language = transcriber.begin(samples, None, False)
    segments = list(transcriber.transcribe(samples, start, fallback=Fallback()))
    text = "".join(words.decode(one.tokens) for one in segments).strip()
    given = {"model": "ears", "file": path}
    assert client.audio.transcriptions.create(**given).text == text
    told = client.audio.transcriptions.create(**given, response_format="verbose_json")
    assert (told.language, told.text, told.duration) == (language, text, 3.0)
    assert [one.tokens for one in told.segments] == [one.tokens for one in segments]
    assert told.words is None
    timed_ = list(transcriber.transcribe(samples, start, fallback=Fallback(), token_times=True))
    said = [w for one in timed_ for w in words_of(one.tokens, one.token_times, words, language)]
    for wanted in (["word"], ["word", "segment"]):
        told = client.audio.transcriptions.create(
            **given, response_format="verbose_json", timestamp_granularities=wanted
        )
        assert [(w.word, w.start, w.end) for w in told.words] == [
            (w.text.strip(), w.start, w.end) for w in said
        ]
        assert (told.segments is not None) == ("segment" in wanted)
    srt = client.audio.transcriptions.create(**given, response_format="srt", language=language)
    assert srt.count(" --> ") == len(segments)
    assert client.audio.translations.create(**given).text != text
    assert client.audio.transcriptions.create(**given, temperature=0.9).text != text
    assert [one.id for one in client.models.list()] == ["ears"]
    hints = transcriber.prompt_ids("w7  w8")
    assert hints[0] == 196
    segments = list(transcriber.transcribe(samples, start, fallback=Fallback(), prompt=hints))
    text = "".join(words.decode(one.tokens) for one in segments).strip()
    assert client.audio.transcriptions.create(**given, prompt="w7  w8").text == text


def test_openai_s_client_hears_a_stream(heard: Any) -> None:
    client, path = heard
    given = {"model": "ears", "file": path}
    text = client.audio.transcriptions.create(**given).text
    for _ in range(2):
        *parts, last = client.audio.transcriptions.create(**given, stream=True)
        assert len(parts) > 1
        assert {one.type for one in parts} == {"transcript.text.delta"}
        assert (last.type, last.text) == ("transcript.text.done", text)
        assert "".join(one.delta for one in parts).strip() == text
    # A client that goes leaves the ear to others.
    stream = client.audio.transcriptions.create(**given, stream=True)
    next(iter(stream))
    stream.close()
    assert client.audio.transcriptions.create(**given).text == text


def header(rate: int, bits: int) -> bytes:
    """A WAV file of 8 bytes of samples."""
    about = struct.pack("<HHIIHH", 1, 1, rate, rate * bits // 8, bits // 8, bits)
    parts = b"fmt " + struct.pack("<I", len(about)) + about + b"data" + struct.pack("<I", 8)
    return b"RIFF" + struct.pack("<I", 4 + len(parts) + 8) + b"WAVE" + parts + bytes(8)


HEARD_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no sound": ({"file": ("a.wav", b"no sound")}, "must be a file with sound"),
    "too long": ({"file": ("a.wav", bytes(1 << 18))}, "at most 131072 bytes"),
    # Of a few bytes 16,000 times as many samples would be made.
    "too slow": ({"file": ("a.wav", header(1, 16))}, "4000 to 384000 samples a second; got 1"),
    "cut short": ({"file": ("a.mp3", b"ID3\x04" + bytes(40))}, "must be a file with sound"),
    # FFmpeg would read what they name.
    "a playlist": (
        {"file": ("a.m3u8", b"#EXTM3U\n#EXTINF:1,\nfile:///a.wav\n")},
        "must be a file with sound",
    ),
    "a list of files": (
        {"file": ("a.txt", b"ffconcat version 1.0\nfile /a.wav\n")},
        "must be a file with sound",
    ),
    "another model": ({"model": "eyes"}, "no such model; got 'eyes'"),
    "another language": ({"language": "xx"}, "one of the model's languages"),
    "a form that is not known": ({"response_format": "xml"}, "must be one of json, text"),
    "a stream of no sound": (
        {"file": ("a.wav", b"no sound"), "stream": True},
        "must be a file with sound",
    ),
    "a stream of subtitles": ({"stream": True, "response_format": "srt"}, "a stream is of text"),
    "a chunking": ({"chunking_strategy": "auto"}, "chunking_strategy is not supported"),
    "too hot": ({"temperature": 3}, "temperature must be from 0 to 1"),
    "words in a text": ({"timestamp_granularities": ["word"]}, "need response_format verbose_json"),
    "letters": ({"timestamp_granularities": ["segment", "letter"]}, "of segment or word; got"),
}


@pytest.mark.parametrize("case", HEARD_WRONG)
def test_speech_that_is_refused(case: str, heard: Any) -> None:
    import openai

    (client, path), (changed, told) = heard, HEARD_WRONG[case]
    with pytest.raises(openai.APIStatusError, match=told):
        client.audio.transcriptions.create(**{"model": "ears", "file": path, **changed})


def test_a_server_of_speech_alone_writes_no_text(heard: Any) -> None:
    import openai

    client, _ = heard
    with pytest.raises(openai.NotFoundError, match="writes down speech, and no more"):
        client.completions.create(model="ears", prompt="So")
    with pytest.raises(openai.NotFoundError, match="writes down speech, and no more"):
        client.chat.completions.create(model="ears", messages=[{"role": "user", "content": "So"}])
    response = client._client.post("/v1/audio/transcriptions", json={"model": "ears"})
    assert "must be multipart/form-data" in response.json()["error"]["message"]


SAID = {
    "words": (" Well, I said: (yes) it's 3.5 m long... isn't it?", "en"),
    "quoted": (' He said "no" and "yes, sir!"', "en"),
    "characters": ("今天天气很好,我们去公园吧。", "zh"),
    "parts of characters": (" Zażółć gęślą jaźń 🙂 😀!", "pl"),
    "one": (" Yes", "en"),
    "nothing": ("", "en"),
}


@pytest.mark.parametrize("case", SAID)
def test_words_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    """With a tokenizer whose tokens are bytes, some of them joined."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers.models.whisper import tokenization_whisper as theirs

    text, language = SAID[case]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(["Well, I said yes, it is long. Isn't it? He said no, sir."], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = made.encode(text).ids
    reference: Any = SimpleNamespace(
        decode=lambda t, **_: made.decode(list(t)), eos_token_id=1 << 20
    )
    named = "chinese" if language == "zh" else "english"
    wanted, parts, _ = theirs._combine_tokens_into_words(reference, tokens, named)
    times = [0.5 * n for n in range(len(tokens) + 1)]
    found = words_of(tokens, times, load_tokenizer(tmp_path / "tokenizer.json"), language)
    ends = np.cumsum([len(part) for part in parts]) if parts else []
    assert [(w.text, w.start, w.end) for w in found] == [
        (word, 0.5 * (end - len(part)), 0.5 * end)
        for word, part, end in zip(wanted, parts, ends, strict=True)
        if word.strip()
    ]
    assert "".join(word.text for word in found) == text


def test_subtitles() -> None:
    segment = Segment(3661.5, 3662.0004, [5])
    assert FORMATS["srt"](7, segment, " So --> we ") == (
        "7\n01:01:01,500 --> 01:01:02,000\nSo --> we\n"
    )
    assert FORMATS["vtt"](7, segment, " So --> we ") == (
        "01:01:01.500 --> 01:01:02.000\nSo -> we\n"
    )


def test_what_does_not_fit_is_refused(made: tuple[Any, Path], tmp_path: Path) -> None:
    transcriber = Transcriber(made[1])
    with pytest.raises(ValueError, match=r"must be \[1, 80, 120\]"):
        transcriber.generate(np.zeros((1, 80, 100)))
    with pytest.raises(ValueError, match="below 300"):
        transcriber.generate(np.zeros((1, 80, FRAMES)), [300])
    path = tmp_path / "a.wav"
    path.write_bytes(b"no sound")
    with pytest.raises(ValueError, match="a file with sound"):
        read_speech(path)


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
    given = ["llm", "transcribe", str(path), str(heard), "--max-new-tokens", "9", "--json"]
    assert main([*given, "--no-fallback"]) == 0
    told = json.loads(capsys.readouterr().out)
    features = log_mel(read_speech(heard), 80, FRAMES)
    assert told["tokens"] == list(Transcriber(path).generate(features, max_new_tokens=9))
    assert told["text"] is None


def test_wav(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes(np.array([[16384, 0], [-32768, -32768]], dtype="<i2").tobytes())
    assert read_speech(path).tolist() == [0.25, -1.0]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_widths_of_wav(width: int, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    most = 1 << (8 * width - 1)
    numbers = [0, most // 2, -most, most - 1]
    if width == 1:
        data = bytes(n + 128 for n in numbers)
    else:
        data = b"".join(n.to_bytes(width, "little", signed=True) for n in numbers)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, width, RATE, 0, "NONE", ""))
        file.writeframes(data + b"x" * (width - 1))  # a last sample that is cut off
    assert read_speech(path) == pytest.approx([0, 0.5, -1, 1 - 1 / most], abs=1e-7)


# Container, codec, samples a second, and how near it is: they leave out what is not heard.
ENCODED: dict[str, tuple[str, str, int, float]] = {
    "mp3": ("mp3", "libmp3lame", 44100, 0.02),
    "m4a": ("ipod", "aac", 16000, 0.02),
    "flac": ("flac", "flac", 24000, 1e-3),
    "ogg": ("ogg", "libopus", 48000, 0.03),
    "webm": ("webm", "libopus", 48000, 0.03),
    "wav": ("wav", "pcm_f32le", 16000, 1e-6),
    "aiff": ("aiff", "pcm_s16be", 16000, 1e-4),
}


def encoded(path: Path, tone: Any, form: str, codec: str, rate: int) -> None:
    """Two channels, of which the second has half of the first one's size."""
    import av

    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate, layout="stereo")
        both = np.stack([tone, tone / 2]).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(both, format="fltp", layout="stereo")
        frame.sample_rate = rate
        context = stream.codec_context
        resampler = av.AudioResampler(context.format, "stereo", rate, context.frame_size or None)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("suffix", ENCODED)
def test_other_files_than_wav(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form, codec, rate, tolerance = ENCODED[suffix]
    path = tmp_path / f"a.{suffix}"
    seconds = np.arange(2 * rate) / rate
    encoded(path, 0.5 * np.sin(2 * np.pi * 440 * seconds), form, codec, rate)
    found = read_speech(path)
    assert abs(len(found) - 2 * RATE) < RATE / 8
    # Codecs may begin later: the tone is there in some phase, and nothing else.
    middle = found[RATE // 2 : 3 * RATE // 2]
    angles = 2 * np.pi * 440 * np.arange(RATE) / RATE
    waves = np.stack([np.sin(angles), np.cos(angles)], 1)
    sizes = np.linalg.lstsq(waves, middle, rcond=None)[0]
    assert np.hypot(*sizes) == pytest.approx(0.375, abs=tolerance)
    assert np.abs(middle - waves @ sizes).max() < tolerance
    with pytest.raises(ValueError, match="must last at most 1 seconds"):
        read_speech(path, most_seconds=1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ModuleNotFoundError, match=r"a WAV file of integers.*no av"):
        read_speech(path)


def test_rates_of_wav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 44100, 0, "NONE", ""))
        tone = np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
        file.writeframes((tone * 16384).astype("<i2").tobytes())
    pytest.importorskip("scipy")
    found = read_speech(path)
    assert len(found) == RATE
    wanted = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE) / 2
    assert np.abs(found - wanted)[100:-100].max() < 2e-3
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    with pytest.raises(ModuleNotFoundError, match=r"16000 samples a second.*got 44100"):
        read_speech(path)
