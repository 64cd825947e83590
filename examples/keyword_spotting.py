"""Keyword spotting on a stream: trained, quantized to int8, run window by window.

    pip install edgewise[export]
    python examples/keyword_spotting.py

There is no microphone and no data set here: the "words" are synthetic (four gliding tones with
harmonics, of varying pitch, length and loudness, in noise), and so is the stream. All else is
as it would be: cepstral features, MLPerf Tiny's DS-CNN, static int8, a window every 100 ms,
scores smoothed over windows. Features and network run in numpy and on the native runtime.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

RATE = 8000
WINDOW = RATE  # one second
WORDS = ("silence", "rise", "fall", "peak", "dip")
GLIDES = {"rise": (1, 2), "fall": (2, 1), "peak": (1, 2, 1), "dip": (2, 1, 2)}


def word(name: str, rng: np.random.Generator) -> np.ndarray:
    """A second of sound, float32 [8000], that holds the word at a random place, or noise alone."""
    sound = rng.normal(0, rng.uniform(0.01, 0.1), WINDOW)
    if name != "silence":
        length = int(rng.uniform(0.35, 0.6) * RATE)
        corners = np.array(GLIDES[name]) * rng.uniform(250, 450)
        pitch = np.interp(np.linspace(0, len(corners) - 1, length), range(len(corners)), corners)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        voice = sum(np.sin(k * phase) / k for k in range(1, 5))
        start = rng.integers(0, WINDOW - length)
        sound[start : start + length] += rng.uniform(0.2, 0.6) * voice * np.hanning(length)
    return sound.astype(np.float32)


def _filters(bands: int = 20, size: int = 512) -> np.ndarray:
    """Triangles on the mel scale, [bands, size / 2 + 1]."""
    mel = np.linspace(2595 * np.log10(1 + 60 / 700), 2595 * np.log10(1 + 3800 / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1) * size / RATE
    bins = np.arange(size // 2 + 1)
    rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rise, fall))


FILTERS = _filters()
COSINES = np.cos(np.pi / 20 * np.outer(np.arange(10), np.arange(20) + 0.5))


def features(sound: np.ndarray) -> np.ndarray:
    """Ten cepstral coefficients of 49 windows of 40 ms: [8000] to float32 [1, 1, 49, 10]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, 320)[::160][:49]
    power = np.abs(np.fft.rfft(frames * np.hanning(320), 512)) ** 2
    return (np.log(power @ FILTERS.T + 1e-4) @ COSINES.T / 10).astype(np.float32)[None, None]


def stream(seconds: int, rng: np.random.Generator) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """A longer sound, and when which word begins: one in most stretches of two seconds."""
    sound = rng.normal(0, 0.03, seconds * RATE).astype(np.float32)
    said = []
    for second in range(1, seconds - 1, 2):
        name = WORDS[rng.integers(0, len(WORDS))]
        if name != "silence":
            sound[second * RATE : (second + 1) * RATE] += word(name, rng)
            said.append((float(second), name))
    return sound, said


def main() -> int:
    import torch

    import edgewise
    from examples.models.mlperf_tiny import DsCnn

    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(WORDS), 1900)
    x = torch.from_numpy(np.concatenate([features(word(WORDS[k], rng)) for k in labels]))
    y = torch.from_numpy(labels)

    torch.manual_seed(0)
    model = DsCnn(len(WORDS), channels=32)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    start = time.perf_counter()
    for epoch in range(3):
        for chosen in torch.randperm(1600).split(64):
            loss = torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {time.perf_counter() - start:.0f} s")
    model.eval()

    program = edgewise.compile(
        model, (x[:1],), quantize="int8", calibration=x[:200].split(1), verbose=False
    )
    path = Path("build/keyword_spotting.pte")
    path.parent.mkdir(exist_ok=True)
    program.save(path)
    run = edgewise.load(path, threads=1)
    test = x[1600:]
    found = np.array([run(one[None].numpy()).argmax() for one in test])
    with torch.no_grad():
        floats = model(test).argmax(1).numpy()
    truth = labels[1600:]
    print(
        f"{len(test)} test words: float32 {100 * np.mean(floats == truth):.1f} %, "
        f"int8 {100 * np.mean(found == truth):.1f} %; {path} has {path.stat().st_size / 1e3:.0f} kB"
    )

    sound, said = stream(24, np.random.default_rng(1))
    heard: list[tuple[float, str]] = []
    scores = np.zeros(len(WORDS))
    times = []
    for begin in range(0, len(sound) - WINDOW + 1, RATE // 10):
        at = time.perf_counter()
        logits = run(features(sound[begin : begin + WINDOW]))[0]
        times.append(time.perf_counter() - at)
        shares = np.exp(logits - logits.max())
        scores = 0.6 * scores + 0.4 * shares / shares.sum()
        best = int(scores.argmax())
        now = (begin + WINDOW) / RATE
        if best and scores[best] > 0.8 and (not heard or now - heard[-1][0] > 1.2):
            heard.append((now, WORDS[best]))
    print(f"stream of {len(sound) // RATE} s: {1000 * np.median(times):.2f} ms a window")
    for begin, name in said:
        match = [h for h in heard if begin < h[0] <= begin + 2]
        answer = f"heard {match[0][1]} at {match[0][0]:.1f} s" if match else "not heard"
        print(f"  {begin:4.0f} s  {name:5}  {answer}")
    right = sum(any(b < t <= b + 2 and h == n for t, h in heard) for b, n in said)
    print(f"{right} of {len(said)} words heard, {len(heard) - right} heard wrongly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
