"""A log-mel spectrogram of sound: our file and ExecuTorch's, which take turns.

The model is ExecuTorch's own `WhisperAudioProcessor`: 80 mel bands of 400-point transforms each 10
ms, for 30 s of sound at 16 kHz, exported for any length up to that. ExecuTorch's file calls a
kernel of its runtime for the Fourier transform; ours multiplies by a matrix in the delegate.

Milliseconds are medians, of two threads; ratios are medians of the rounds' ratios to ExecuTorch's
file on its runtime. Also the largest difference to eager PyTorch.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import report
from _two_runtimes import SIDES, measure, median_ratio, options_of

RATE, SECONDS = 16_000, 30


def processor() -> Any:
    """ExecuTorch's module."""
    from executorch.extension.audio.mel_spectrogram import WhisperAudioProcessor

    return WhisperAudioProcessor(max_audio_len=SECONDS).eval()


def make(ours: Path, peers: Path) -> None:
    """Both files of `forward(waveform)`, from one export each, as ExecuTorch's script makes it."""
    import torch
    from executorch.extension.audio.mel_spectrogram import _export_processor_model

    import edgewise
    from edgewise.backends.xnnpack import XnnpackPartitioner

    _export_processor_model(processor(), str(peers))
    sound = torch.randn(RATE)
    sizes = torch.export.ShapesCollection()
    sizes[sound] = {0: torch.export.Dim.DYNAMIC(max=SECONDS * RATE)}
    # As there: one sample is no case of its own.
    with torch.no_grad(), torch.fx.experimental._config.patch(backed_size_oblivious=True):
        exported = torch.export.export(processor(), (sound,), dynamic_shapes=sizes, strict=True)
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    edge.to_executorch().save(ours)


def main() -> int:
    """Prints the table; the exit code says whether ours is the faster."""
    options = options_of(Path(__file__), __doc__ or "", 15)
    if options is None:
        return 0
    ours, peers = (options.cache / f"spectrogram-{side}.pte" for side in SIDES)
    if not (ours.exists() and peers.exists()):
        make(ours, peers)
    import torch

    sound = np.random.default_rng(0).standard_normal(SECONDS * RATE).astype(np.float32)
    with torch.no_grad():
        want = processor()(torch.from_numpy(sound)).flatten()[:4096].numpy()
    files = {
        "ours": ("ours", ours),
        "our file on ExecuTorch": ("executorch", ours),
        "ExecuTorch": ("executorch", peers),
    }
    seconds, results = measure(Path(__file__), files, [[sound]], options.rounds)
    rows = [
        {
            "what": name,
            "file kB": files[name][1].stat().st_size / 1e3,
            "ms": 1e3 * float(np.median(seconds[name])),
            "ratio": median_ratio(seconds[name], seconds["ExecuTorch"]),
            "difference": float(np.abs(results[name] - want).max()),
        }
        for name in files
    ]
    report("Log-mel spectrogram of 30 s", rows, [], options.json)
    return 0 if rows[0]["ratio"] < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
