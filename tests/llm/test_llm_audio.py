"""Models that hear: what they write about sounds is what transformers' own code writes."""

from __future__ import annotations

import base64
import io
import json
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.cli import main
from edgewise.llm import Generator, PromptLookup
from edgewise.llm.architectures import HEARING
from edgewise.llm.audio import AudioPrompt, Steps
from edgewise.llm.chat import Chat
from edgewise.llm.conversation import Conversation
from edgewise.llm.text import load_tokenizer

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("PIL", reason="the extra cli is not installed")
if not hasattr(transformers, "Gemma4AudioFeatureExtractor"):
    pytest.skip("models that hear need transformers 5.24", allow_module_level=True)

from hearing_models import CLASSES, CONFIGS, RATE, hearing_checkpoint, sound  # noqa: E402
from media_checks import (  # noqa: E402
    answer,
    chat_of,
    check_conversation,
    check_refused,
    export_with,
    made_once,
    openai_client,
)
from seeing_models import picture  # noqa: E402

NEW_TOKENS = 16
LONG = ("glmasr", "audioflamingo3", "voxtral")
"""Take sounds that are longer than a window."""
ONE_SOUND = ("glmasr", "audioflamingo3")
"""Whose processors take one sound for a text."""


class Hearing:
    """A checkpoint, its processor, and its file in float32."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder / kind
        self.processor = hearing_checkpoint(kind, self.folder)
        self.path = folder / f"{kind}.pte"
        assert export(self.folder, self.path, *self.options()) == 0
        self.model = getattr(transformers, CLASSES[kind]).from_pretrained(self.folder).eval()

    def options(self) -> list[str]:
        more = ["--audio-seconds", "2", "--images", "--image-size", "96"]
        return ["--quantize", "none", "--all-logits", *(more if self.kind == "gemma4" else [])]

    def chat(self, generator: Generator) -> Chat:
        return chat_of(self.path, generator)

    def wanted(self, messages: list[dict[str, Any]]) -> list[int]:
        """Greedy tokens of transformers' model, on prompts of its processor."""
        parts = [part for message in messages for part in message["content"]]
        given = {"audio": [part["audio"] for part in parts if part["type"] == "audio"]}
        if images := [part["image"] for part in parts if part["type"] == "image"]:
            given["images"] = images
        text = self.processor.tokenizer.apply_chat_template(
            messages,
            chat_template=self.processor.chat_template,
            tokenize=False,
            add_generation_prompt=True,
        )
        asked = self.processor(text=[text], return_tensors="pt", sampling_rate=RATE, **given)
        with torch.no_grad():
            found = self.model.generate(
                **asked, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False
            )
        return found[0, asked["input_ids"].shape[1] :].tolist()


def export(checkpoint: Path, output: Path, *options: str) -> int:
    return export_with("--audio", checkpoint, output, "--max-context-len", "400", *options)


def asks(text: str, *sounds: Any, images: Any = ()) -> dict[str, Any]:
    parts = [{"type": "image", "image": image} for image in images]
    parts += [{"type": "audio", "audio": one} for one in sounds]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return made_once(Hearing, tmp_path_factory)


@pytest.mark.parametrize("kind", CONFIGS)
def test_tokens_are_those_of_transformers(kind: str, hearing: Any) -> None:
    model = hearing(kind)
    generator = Generator(model.path)
    chat = model.chat(generator)
    lengths = [1.3, 0.31, 2.0, 0.5 + 1 / RATE, *((2.2, 5.1) if kind in LONG else ())]
    sounds = [sound(seconds, seed) for seed, seconds in enumerate(lengths)]
    conversations = [[asks("What is it?", one)] for one in sounds]
    if kind not in ONE_SOUND:
        said = {"role": "assistant", "content": [{"type": "text", "text": "a cat"}]}
        conversations.append([asks("And these?", *sounds[:2]), said, asks("Sure?", sounds[3])])
    options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": True}
    for messages in conversations:
        written = list(generator.generate(chat.prompt(messages), **options))
        assert written == model.wanted(messages)
    first, second = (
        generator.logits(chat.prompt([asks("What is it?", sound(1.3, seed))])) for seed in (0, 9)
    )
    assert np.abs(first - second).max() > 0.05, "what is in a sound does not matter"


def test_a_model_that_sees_and_hears(hearing: Any) -> None:
    model = hearing("gemma4")
    generator = Generator(model.path)
    chat = model.chat(generator)
    messages = [asks("What is it?", sound(0.7), sound(1.1, 1), images=[picture(96, 96)])]
    options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    prompt = chat.prompt(messages)
    assert list(generator.generate(prompt, **options)) == model.wanted(messages)
    # Wherever half of the context begins, neither is cut in two.
    for keep in (0, 5, 40, 60):
        shifted = generator.generate(
            prompt, max_new_tokens=400, ignore_eos=True, context_shift=keep
        )
        assert len(list(shifted)) == 400
        assert generator.statistics.shifts


def test_each_sound_is_heard_once(hearing: Any) -> None:
    model = hearing("audioflamingo3")
    generator = Generator(model.path)
    chat = model.chat(generator)
    first, second = sound(3.1, 2), sound(1, 3)
    begun = chat.prompt([asks("What?", first)])
    options = {"max_new_tokens": 4, "ignore_eos": True, "reuse_prefix": True}
    list(generator.generate(begun, **options))
    going_on = chat.prompt([asks("What?", first), asks("And?", second)])
    list(generator.generate(going_on, **options))
    assert generator.statistics.reused_tokens >= len(begun) - len("<|assistant|>")
    assert chat.prompt([asks("What?", wave_of(first))]) != begun  # rounded to 16 bits
    assert chat.prompt([asks("What?", first.copy())]) == begun
    plain = list(generator.generate(begun, max_new_tokens=20, ignore_eos=True))
    drafted = generator.generate(begun, max_new_tokens=20, ignore_eos=True, draft=PromptLookup())
    assert list(drafted) == plain


def test_silence_of_two_lengths(hearing: Any) -> None:
    """One spectrogram, of which more or less is sound."""
    generator = Generator(hearing("qwen2_audio").path)
    chat = hearing("qwen2_audio").chat(generator)
    for seconds in (0.5, 1.5, 0.5):
        messages = [asks("What?", np.zeros(round(seconds * RATE), np.float32))]
        written = list(
            generator.generate(chat.prompt(messages), max_new_tokens=NEW_TOKENS, ignore_eos=True)
        )
        assert written == hearing("qwen2_audio").wanted(messages)


def test_parts_are_quantized(hearing: Any, tmp_path: Path) -> None:
    model, path = hearing("audioflamingo3"), tmp_path / "small.pte"
    assert export(model.folder, path) == 0
    assert path.stat().st_size < 0.5 * model.path.stat().st_size
    results = []
    for file in (model.path, path):
        generator = Generator(file)
        assert generator.media is not None
        assert generator.media.audio is not None
        features = np.random.default_rng(0).standard_normal((1, 16, 200))
        tokens = generator.media.audio.tokens(features, 150, 37)
        results.append(generator.media.vectors.vectors(tokens))
    assert results[0].shape == (37, 64)
    assert np.abs(results[0] - results[1]).max() < 0.05 * np.abs(results[0]).max()


def wave_of(samples: Any, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setnchannels(1)
        opened.setsampwidth(2)
        opened.setframerate(rate)
        opened.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


REFUSED_PROMPTS = {
    "more sounds than the template writes": (
        [{"role": "user", "content": [{"type": "text", "text": "<|AUDIO|>"}]}],
        "once for each audio; got 1 for 0",
    ),
    "no sound": ([asks("What?", b"RIFF")], r"\[sound\] must be a file with sound"),
    "no file": ([asks("What?", "nowhere.wav")], "nowhere.wav"),
    "two channels": ([asks("What?", np.zeros((2, 100), np.float32))], r"got float32\[2, 100\]"),
    "too long": ([asks("What?", sound(2.1))], "at most 2 seconds; got 2.1; try a part of it"),
    "too long a file": ([asks("What?", wave_of(sound(2.1)))], "at most 2 seconds"),
    "no sound in its part": (
        [{"role": "user", "content": [{"type": "audio"}]}],
        r"a part of audio must have 'audio'; got \['type'\]",
    ),
    "nothing": ([asks("What?", sound(0))], "must be longer; got 0 samples"),
    "an image": ([asks("What?", images=[picture(8, 8)])], "images need a model that sees"),
}


@pytest.mark.parametrize("case", REFUSED_PROMPTS)
def test_prompts_that_are_refused(case: str, hearing: Any) -> None:
    messages, told = REFUSED_PROMPTS[case]
    model = hearing("qwen2_audio")
    with pytest.raises((ValueError, FileNotFoundError), match=told):
        model.chat(Generator(model.path)).prompt(messages)


REFUSED_EXPORTS = {
    "a length where there is one": (
        "qwen2_audio",
        ["--audio-seconds", "5"],
        "have windows of 2 seconds; got 5; try without --audio-seconds",
    ),
    "too short": ("gemma4", ["--audio-seconds", "0.5"], "must last 1 to 30 seconds; got 0.5"),
    "more tokens than the context": (
        "qwen2_audio",
        ["--max-context-len", "50"],
        "more than a sound's 50 tokens",
    ),
    "several texts at a time": ("qwen2_audio", ["--batch", "2"], "one text at a time; got batch=2"),
    "images of a model that does not see": ("glmasr", ["--images"], "images must be seen by"),
    "a size of no images": ("glmasr", ["--image-size", "96"], "are for --images"),
}


@pytest.mark.parametrize("case", REFUSED_EXPORTS)
def test_exports_that_are_refused(
    case: str, hearing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, options, told = REFUSED_EXPORTS[case]
    folder = hearing(kind).folder
    capsys.readouterr()
    status = export(folder, tmp_path / "x.pte", "--quantize", "none", *options)
    check_refused(status, told, capsys)


BROKEN_CHECKPOINTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another sound token": ({"audio_token_id": 5}, {}, "a sound must be tokens"),
    "another rate": ({}, {"sampling_rate": 8000}, "16000 samples a second; got 8000"),
    "other windows": ({}, {"n_fft": 512}, "must be Whisper's or Gemma's; got another"),
    "another hop": ({}, {"hop_length": 80}, "must be Whisper's or Gemma's; got another"),
    "another model's processor": (
        {},
        {"processor_class": "ParakeetProcessor"},
        "must tell its audio token; got ParakeetProcessor",
    ),
}


@pytest.mark.parametrize("case", BROKEN_CHECKPOINTS)
def test_checkpoints_that_are_refused(case: str, hearing: Any, tmp_path: Path) -> None:
    from edgewise.llm.export.audio_processor import read_audio_processor

    config, about, told = BROKEN_CHECKPOINTS[case]
    folder = tmp_path / "checkpoint"
    shutil.copytree(hearing("qwen2_audio").folder, folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    path = folder / "processor_config.json"
    values = json.loads(path.read_text())
    values["feature_extractor"] |= {k: v for k, v in about.items() if k != "processor_class"}
    values |= {k: v for k, v in about.items() if k == "processor_class"}
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=told):
        read_audio_processor(folder)


def test_a_model_that_hears_alone_reads_text(
    hearing: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = hearing("audioflamingo3"), tmp_path / "text.pte"
    given = ["--checkpoint", str(model.folder), "--output", str(path), "--quantize", "none"]
    assert main(["llm", "export", *given]) == 0
    assert "left out; the model can hear it with --audio" in capsys.readouterr().out
    generator, heard = Generator(path), Generator(model.path)
    words = [5, 6, 7, 8, 9]
    assert generator.media is None
    wanted = heard.logits(words).reshape(generator.logits(words).shape)
    assert np.abs(generator.logits(words) - wanted).max() < 1e-4
    folder = path.with_suffix(".tokenizer")
    with pytest.raises(ValueError, match="sounds need a model that hears"):
        Chat(load_tokenizer(folder), folder).prompt([asks("What?", sound(1))])


def test_conversations_about_sounds(
    hearing: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "cat.wav"
    file.write_bytes(wave_of(sound(1.2), rate=8000))
    part = {"type": "audio", "audio": file}
    check_conversation(hearing("audioflamingo3").path, part, capsys, monkeypatch)


def test_the_documentation_lists_them() -> None:
    assert list(HEARING) == list(CONFIGS)
    text = (Path(__file__).parents[2] / "docs" / "llm.md").read_text()
    for kind, (name, takes) in HEARING.items():
        assert f"| {name} | `{kind}` | {takes} |" in text


@pytest.fixture(scope="module")
def client(hearing: Any) -> Any:
    with openai_client(hearing("audioflamingo3").path) as made:
        yield made


def heard(data: bytes) -> dict[str, Any]:
    about = {"data": base64.b64encode(data).decode(), "format": "wav"}
    return {"type": "input_audio", "input_audio": about}


def test_the_server_hears(client: Any, hearing: Any) -> None:
    model, data = hearing("audioflamingo3"), wave_of(sound(3))
    conversation = Conversation(model.path, model.path.with_suffix(".tokenizer"), max_new_tokens=6)
    wanted = "".join(conversation.say("What?", audio=[data]))
    assert [answer(client, heard(data)) for _ in range(3)] == [wanted] * 3
    items = [heard(data), {"type": "input_text", "text": "What?"}]
    response = client.responses.create(
        model="model",
        input=[{"role": "user", "content": items}],
        temperature=0,
        max_output_tokens=16,
    )
    assert response.output_text.startswith(wanted)


REFUSED_PARTS = {
    "no data": ({"type": "input_audio", "input_audio": {}}, "a sound must be in the request"),
    "no base64": ({"type": "input_audio", "input_audio": {"data": "*"}}, "must be base64"),
    "no sound": (heard(b"RIFFRIFF"), "must be a file with sound"),
    "too many tokens": (heard(wave_of(sound(17))), "leave room in the context of 400"),
}


@pytest.mark.parametrize("case", REFUSED_PARTS)
def test_parts_that_the_server_refuses(case: str, client: Any) -> None:
    openai = pytest.importorskip("openai")
    part, told = REFUSED_PARTS[case]
    with pytest.raises(openai.BadRequestError, match=told):
        answer(client, part)


STEPS = {
    "frames of samples": (Steps(160, 159, 200), {0: 0, 1: 1, 160: 1, 161: 2, 99999: 200}),
    "whole ones": (Steps(4, 0, 9), {0: 0, 3: 0, 4: 1, 7: 1, 8: 2, 100: 9}),
    "fewer": (Steps(160, -1, 9), {0: 0, 1: 0, 160: 0, 161: 1}),
}


@pytest.mark.parametrize("case", STEPS)
def test_steps(case: str) -> None:
    steps, wanted = STEPS[case]
    assert {count: steps.of(count) for count in wanted} == wanted


def test_a_file_of_settings_that_is_broken(hearing: Any, tmp_path: Path) -> None:
    assert AudioPrompt.load(tmp_path) is None
    told = json.loads((hearing("glmasr").path.with_suffix(".tokenizer") / "audio.json").read_text())
    for changed in ({"spectrogram": "none"}, {"tokens": 3}, {"more": 1}):
        (tmp_path / "audio.json").write_text(json.dumps({**told, **changed}))
        with pytest.raises(ValueError, match="must be what edgewise llm export wrote"):
            AudioPrompt.load(tmp_path)
