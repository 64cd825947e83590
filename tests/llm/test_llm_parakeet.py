"""Small Parakeets with random weights: of each frame, and transducers; features, pieces, texts."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.cli import main
from edgewise.llm.architectures import SPEECH
from edgewise.llm.export import lower_model, quantize_model
from edgewise.llm.export.parakeet import lower_parakeet, with_linear_convolutions
from edgewise.llm.export.quantization import Recipe
from edgewise.llm.mel import RATE, log_mel_normalized
from edgewise.llm.recognizer import Recognizer, Spoken
from edgewise.llm.speech import load_speech_model
from edgewise.llm.text import load_tokenizer
from edgewise.llm.transcriber import Transcriber

transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "ParakeetForRNNT"):
    pytest.skip("transducers need transformers 5.24", allow_module_level=True)
BANDS, BLANK = 80, 64
KINDS = ("CTC", "RNNT", "TDT")
SECONDS = (0.03, 0.3, 1.0, 2.57)
"""The first is shorter than what the encoder takes at least."""


def parakeet(kind: str) -> Any:
    """Weights of a size at which frames differ, and most of a transducer's are blank."""
    encoder = transformers.ParakeetEncoderConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        subsampling_conv_channels=32,
        num_mel_bins=BANDS,
    )
    values: dict[str, Any] = {"vocab_size": BLANK + 1, "encoder_config": encoder}
    if kind == "CTC":
        values["pad_token_id"] = BLANK
    else:
        values |= {"blank_token_id": BLANK, "decoder_hidden_size": 64}
    config = getattr(transformers, f"Parakeet{kind}Config")(**values)
    torch.manual_seed(0)
    model = getattr(transformers, f"ParakeetFor{kind}")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embedding" not in name:
                size = 5 if "head" in name else 1.5
                weight.normal_(0, size / weight[0].numel() ** 0.5)
            elif "norm" in name and "weight" in name:
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(0, 0.1 if weight.dim() == 1 else 1)
        if kind != "CTC":
            model.generation_config.decoder_start_token_id = BLANK
            model.joint.head.bias[BLANK] += 16 if kind == "RNNT" else 8
            # Or `generate` takes a duration for a token.
            model.joint.head.bias[BLANK + 1 :] -= 60
    return model


def sound(seconds: float) -> Any:
    at = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(0).standard_normal(len(at)) * 0.05
    return (np.sin(2 * np.pi * (200 + 300 * at) * at) * 0.3 + noise).astype(np.float32)


@pytest.fixture(scope="module", params=KINDS)
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    model = parakeet(request.param)
    path = tmp_path_factory.mktemp(f"parakeet-{request.param}-") / "parakeet.pte"
    lower_model(model).save(path)
    return request.param, model, path


def generated(kind: str, model: Any, samples: Any) -> list[tuple[int, int]]:
    """Tokens of `transformers`, and at which steps they begin."""
    extractor = transformers.ParakeetFeatureExtractor(feature_size=BANDS)
    found = model.generate(**extractor(samples, sampling_rate=RATE, return_tensors="pt"))
    if kind == "CTC":
        tokens = found[0].tolist()
        starts = [at for at in range(len(tokens)) if at == 0 or tokens[at] != tokens[at - 1]]
    else:
        tokens, steps = found.sequences[0].tolist(), found.durations[0].tolist()
        starts = list(range(1, len(tokens)))
        times = np.cumsum([0, *steps[1:]]).tolist()
        return [(tokens[at], times[at - 1]) for at in starts if tokens[at] != BLANK]
    return [(tokens[at], at) for at in starts if tokens[at] != BLANK]


def test_tokens_and_times_are_those_of_transformers(made: tuple[str, Any, Path]) -> None:
    kind, model, path = made
    recognizer = Recognizer(path)
    seen: set[int] = set()
    for seconds in SECONDS[1:]:
        want = generated(kind, model, sound(seconds))
        got = [(one.token, one.start) for one in recognizer.spoken(sound(seconds))]
        # `generate` ends a text of as many tokens as could be, with one fewer.
        assert got[: len(want)] == want
        assert len(got) - len(want) <= (kind == "RNNT")
        seen |= {token for token, _ in got}
    assert len(seen) > 2, "a text of one token says nothing"


def test_sounds_of_no_length(made: tuple[str, Any, Path]) -> None:
    recognizer = Recognizer(made[2])
    assert list(recognizer.transcribe(np.zeros(0, np.float32))) == []
    assert list(recognizer.transcribe(np.zeros(159, np.float32))) == []
    for one in recognizer.transcribe(sound(SECONDS[0])):
        assert one.end <= SECONDS[0]


@pytest.mark.parametrize("bands", [80, 128])
def test_features(bands: int) -> None:
    """As those of transformers, which computes them in float32."""
    extractor = transformers.ParakeetFeatureExtractor(feature_size=bands)
    for seconds in SECONDS:
        found = extractor(sound(seconds), sampling_rate=RATE, return_tensors="np")
        want = found["input_features"][0, : int(found["attention_mask"].sum())]
        got = log_mel_normalized(sound(seconds), bands)
        assert got.shape == want.shape
        assert np.abs(got - want).max() < 2e-4


SCHEMES = {"CTC": "8da4w", "RNNT": "8w", "TDT": "8da8w"}


def test_quantized(made: tuple[str, Any, Path], tmp_path: Path) -> None:
    """The encoder's result as eager PyTorch's with the same integers; the convolutions that mix
    channels are among them."""
    kind, model, _ = made
    scheme = SCHEMES[kind]
    quantized = quantize_model(model, Recipe(scheme))
    names = [n for n, m in quantized.named_modules() if type(m) is torch.nn.Conv1d]
    assert names
    assert all("depthwise" in name for name in names)
    path = tmp_path / "quantized.pte"
    lower_model(quantized).save(path)
    levels = log_mel_normalized(sound(1), BANDS)
    with torch.no_grad():
        want = quantized.encoder(torch.from_numpy(levels)[None]).last_hidden_state
        last = quantized.ctc_head if kind == "CTC" else quantized.encoder_projector
        want = last(want)[0].numpy()
    got = Recognizer(path)._encoded(levels)
    # A value between two steps of 8 bits goes to one or the other by the last bit of a sum.
    assert np.abs(got - want).max() / want.std() < (1e-4 if scheme == "8w" else 0.3)
    assert np.abs(got - want).mean() / want.std() < 0.03


@pytest.mark.parametrize("kind", ["CTC", "TDT"])
def test_the_head_has_bits_of_its_own(kind: str) -> None:
    quantized = quantize_model(parakeet(kind), Recipe("8da8w", head="none"))
    head = quantized.ctc_head if kind == "CTC" else quantized.joint.head
    assert type(head.weight) is torch.nn.Parameter
    assert type(quantized.encoder.subsampling.linear.weight) is not torch.nn.Parameter


def test_methods_are_for_models_of_texts() -> None:
    with pytest.raises(ValueError, match="methods are for models of texts; got a parakeet_tdt"):
        quantize_model(parakeet("TDT"), methods=["gptq"], calibration=[torch.zeros(1, 8).long()])


def test_linear_convolutions_are_the_convolutions() -> None:
    model = parakeet("CTC")
    features = torch.from_numpy(log_mel_normalized(sound(1), BANDS))[None]
    with torch.no_grad():
        want, got = model(features).logits, with_linear_convolutions(model)(features).logits
    assert float((got - want).abs().max()) < 1e-4 * float(want.std())
    assert type(model.ctc_head) is not torch.nn.Linear


def test_long_sounds_are_heard_in_pieces(tmp_path: Path) -> None:
    """Of an encoder that looks no farther than its convolutions do, they are those of a whole."""
    for kind in ("CTC", "TDT"):
        model = parakeet(kind)
        with torch.no_grad():
            for layer in model.encoder.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.self_attn.o_proj.bias.zero_()
        found = []
        for seconds in (10, 20):
            path = tmp_path / f"{kind}{seconds}.pte"
            lower_parakeet(model, seconds=seconds).save(path)
            recognizer = Recognizer(path)
            assert recognizer.frames == seconds * 100
            found.append([(one.token, one.start) for one in recognizer.spoken(sound(19.9))])
        assert found[0] == found[1]
        assert found[0][-1][1] > 180, "nothing was heard of the last piece"


class Said(Recognizer):
    """What is said is known before."""

    def __init__(self, spoken: list[Spoken], tokenizer: Any) -> None:
        self.known, self.tokenizer, self.frames_per_step = spoken, tokenizer, 8

    def spoken(self, sound: Any) -> Any:
        return iter(self.known)


def vocabulary(folder: Path, kind: str = "TDT") -> Path:
    """A tokenizer of words, with the space before a word as a part of it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["<unk>", "<pad>", "▁hello", "▁world", ".", "▁it", "'", "s", "▁3", "5", "?", "▁so"]
    words += [f"▁w{i}" for i in range(len(words), BLANK)]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    whole = transformers.ParakeetTokenizer(
        tokenizer_object=made, unk_token="<unk>", pad_token="<blank>" if kind == "CTC" else "<pad>"
    )
    extractor = transformers.ParakeetFeatureExtractor(feature_size=BANDS)
    transformers.ParakeetProcessor(extractor, whole).save_pretrained(folder)
    return folder


class Wide:
    """A tokenizer of one sentence, without spaces."""

    size = 1

    def decode(self, tokens: list[int], *, special: bool = False) -> str:
        return "".join("好。"[at % 2] for at in range(len(tokens)))


def test_sentences_and_pauses_end_segments(tmp_path: Path) -> None:
    words = load_tokenizer(vocabulary(tmp_path))
    hello, world, stop, it, s, three, five, so = 2, 3, 4, 5, 7, 8, 9, 11
    tokens = [hello, world, stop, it, 6, s, three, stop, five, so, hello]
    steps = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 30]
    spoken = [Spoken(token, at, at + 1) for token, at in zip(tokens, steps, strict=True)]
    model = Said(spoken, words)
    segments = list(model.transcribe(np.zeros(40 * 1280, np.float32)))
    assert [one.tokens for one in segments] == [tokens[:3], tokens[3:10], tokens[10:]]
    assert [(one.start, one.end) for one in segments] == [(0, 0.32), (0.32, 0.88), (2.4, 2.48)]
    assert [(w.text.strip(), w.start, w.end) for w in model.words(segments[1], None)] == [
        ("it's", 0.32, 0.56),
        ("3.5", 0.56, 0.8),
        ("so", 0.8, 0.88),
    ]
    by_pauses = list(Said(spoken, None).transcribe(np.zeros(40 * 1280, np.float32)))
    assert [one.tokens for one in by_pauses] == [tokens[:10], tokens[10:]]
    wide = Recognizer.transcribe(Said([Spoken(0, at, at + 1) for at in range(4)], Wide()), sound(1))
    assert [len(one.tokens) for one in wide] == [2, 2]
    few = list(model.transcribe(np.zeros(40 * 1280, np.float32), max_new_tokens=4))
    assert [one.tokens for one in few] == [tokens[:3], tokens[3:4]]


@pytest.mark.peer
def test_the_peer_runs_it(made: tuple[str, Any, Path]) -> None:
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    kind, model, path = made
    program = Runtime.get().load_program(str(path))
    features = torch.from_numpy(log_mel_normalized(sound(1), BANDS))[None]
    (frames,) = program.load_method("encode").execute([features])
    with torch.no_grad():
        want = model.encoder(features).last_hidden_state
        want = model.ctc_head(want) if kind == "CTC" else model.encoder_projector(want)
    assert float((frames - want).abs().max() / want.std()) < 1e-4
    if kind == "CTC":
        return
    states = [torch.zeros(2, 1, 64) for _ in range(2)]
    token = torch.full((1, 1), BLANK)
    prediction, *states = program.load_method("predict").execute([token, *states])
    (logits,) = program.load_method("joint").execute([frames[:, :3].contiguous(), prediction])
    with torch.no_grad():
        want = model.joint(model.decoder(token), want[:, :3])
    assert float((logits - want).abs().max() / want.std()) < 1e-4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parakeet-checkpoint-")
    parakeet("TDT").save_pretrained(folder)
    return vocabulary(folder)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parakeet-sound-") / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound(3) * 32767).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def exported(checkpoint: Path) -> Path:
    path = checkpoint.parent / f"{checkpoint.name}.pte"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert command("export", "--checkpoint", checkpoint, "-o", path, "--quantize", "none") == 0
    assert "note:" not in shown.getvalue()
    assert "context" not in shown.getvalue()
    return path


def command(*words: object) -> int:
    return main(["llm", *(str(word) for word in words)])


def test_the_command_writes_what_is_said(exported: Path, recording: Path, capsys: Any) -> None:
    words = load_tokenizer(exported.with_suffix(".tokenizer"))
    model = load_speech_model(exported, words)
    assert isinstance(model, Recognizer)
    samples = (sound(3) * 32767).astype("<i2") / np.float32(32768)
    want = list(model.transcribe(samples))
    assert len({token for one in want for token in one.tokens}) > 2
    capsys.readouterr()
    assert command("transcribe", exported, recording, "--json", "--words") == 0
    told = json.loads(capsys.readouterr().out)
    assert [part["tokens"] for part in told["segments"]] == [one.tokens for one in want]
    assert told["text"] == words.decode(told["tokens"])
    assert told["language"] is None
    said = [word for part in told["segments"] for word in part["words"]]
    assert "".join(word["text"] for word in said).split() == told["text"].split()
    assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(said))
    assert command("transcribe", exported, recording, "--format", "srt") == 0
    assert capsys.readouterr().out.count(" --> ") == len(want)


REFUSED = {
    "a language": (["--language", "de"], "writes in the language that it hears; got --language de"),
    "a translation": (["--translate"], "got --translate"),
    "a prompt": (["--prompt", "names"], "takes no prompt"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_be_told(name: str, exported: Path, recording: Path, capsys: Any) -> None:
    options, text = REFUSED[name]
    assert command("transcribe", exported, recording, *options) != 0
    assert text in " ".join(capsys.readouterr().err.split())


NOT_EXPORTED = {
    "a context": (["--max-context-len", "64"], "has no context; got --max-context-len"),
    "tokens at once": (["--max-seq-len", "64"], "has no context; got --max-seq-len"),
    "a batch": (["--batch", "2"], "has no batch"),
    "a short piece": (["--audio-seconds", "1"], "audio seconds must be from 2"),
}


@pytest.mark.parametrize("name", NOT_EXPORTED)
def test_what_it_cannot_be_exported_with(name: str, checkpoint: Path, capsys: Any) -> None:
    options, text = NOT_EXPORTED[name]
    path = checkpoint.parent / "never.pte"
    assert command("export", "--checkpoint", checkpoint, "-o", path, *options) != 0
    assert text in " ".join(capsys.readouterr().err.split())
    assert not path.exists()


def test_other_spectrograms_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    from edgewise.llm.export import load_model

    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "processor_config.json").read_text())
    settings["feature_extractor"]["preemphasis"] = 0.9
    (tmp_path / "processor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"must have preemphasis 0\.97; got 0\.9"):
        load_model(tmp_path)
    (tmp_path / "processor_config.json").write_text("[1")
    with pytest.raises(ValueError, match=r"processor_config\.json must hold settings"):
        load_model(tmp_path)


def test_the_documentation_names_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "llm.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.count(" | ") == 2]
    named = {
        kind.strip("`"): name.strip("| ") for name, kind, _ in rows if kind.strip("`") in SPEECH
    }
    assert named == SPEECH


def test_other_releases_of_transformers_are_told(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgewise.llm.export import load_model

    monkeypatch.setattr("transformers.AutoModelForTDT", None)
    with pytest.raises(ValueError, match=r"a Parakeet TDT needs transformers 5\.24; got"):
        load_model(checkpoint)


def test_files_of_others_are_refused(exported: Path) -> None:
    with pytest.raises(ValueError, match="encode and forward"):
        Transcriber(exported)


def test_openai_s_client_hears(exported: Path, recording: Path) -> None:
    openai = pytest.importorskip("openai")
    from starlette.testclient import TestClient

    from edgewise.llm.server import make_application

    application = make_application(exported, None, name="ears")
    words = load_tokenizer(exported.with_suffix(".tokenizer"))
    with TestClient(application) as http:
        where = {"base_url": "http://testserver/v1", "api_key": "none", "max_retries": 0}
        client = openai.OpenAI(http_client=http, **where)
        given = {"model": "ears", "file": recording}
        told = client.audio.transcriptions.create(
            **given, response_format="verbose_json", timestamp_granularities=["word", "segment"]
        )
        tokens = [token for one in told.segments for token in one.tokens]
        assert told.text == words.decode(tokens)
        assert " ".join(word.word for word in told.words).split() == told.text.split()
        for asked, message in (
            ({"language": "de"}, "language that it hears"),
            ({"prompt": "names"}, "takes no prompt"),
            ({"temperature": 0.5}, "the likeliest text"),
        ):
            with pytest.raises(openai.BadRequestError, match=message):
                client.audio.transcriptions.create(**given, **asked)
