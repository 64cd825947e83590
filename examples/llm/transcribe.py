"""The way from speech to text, without a download: sound of espeak-ng, features, a net of the
shape of Whisper tiny, tokens. Its weights are random, so the tokens mean nothing: this shows how
the parts fit together, not what was said.

    python examples/llm/transcribe.py --output build/whisper

With a checkpoint that you have:

    edgewise llm export --checkpoint DIR --output whisper.pte
    edgewise llm transcribe whisper.pte speech.wav
"""

import argparse
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

TINY = {
    "d_model": 384,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "decoder_ffn_dim": 1536,
    "vocab_size": 51865,
}
SMALL = {**TINY, "d_model": 96, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 2000}


def speech(text: str) -> Any:
    """float32 [samples] at 16 kHz; a tone that rises where espeak-ng is not installed."""
    from edgewise.llm.mel import RATE

    if shutil.which("espeak-ng") is None:
        print("no espeak-ng: a tone stands for speech")
        at = np.arange(3 * RATE) / RATE
        return (0.3 * np.sin(2 * np.pi * (200 + 100 * at) * at)).astype(np.float32)
    command = ["espeak-ng", "--stdout", text]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    # Behind its header, 44 bytes: 22,050 Hz, 16 bits.
    samples = np.frombuffer(data[44 : len(data) // 2 * 2], dtype="<i2") / 32768
    count = int(len(samples) * RATE / 22_050)
    at = np.arange(count) * 22_050 / RATE
    return np.interp(at, np.arange(len(samples)), samples).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("build/whisper"), metavar="DIR")
    parser.add_argument("--small", action="store_true", help="a smaller net: sooner done")
    parser.add_argument("--text", default="The quick brown fox jumps over the lazy dog.")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    from edgewise.llm.export import lower_model, quantize_model, random_model
    from edgewise.llm.transcriber import Transcriber

    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "decoder_start_token_id": 3}
    sizes = SMALL if options.small else TINY
    none = {"suppress_tokens": [], "begin_suppress_tokens": []}
    model = random_model({"model_type": "whisper", **sizes, **ends, **none})
    path = options.output / "whisper.pte"
    lower_model(quantize_model(model), max_context_len=64).save(path)
    sound = speech(options.text)
    transcriber = Transcriber(path)
    start = time.perf_counter()
    tokens = [t for part in transcriber.transcribe(sound, max_new_tokens=20) for t in part.tokens]
    seconds = time.perf_counter() - start
    print(f"wrote {path}: {path.stat().st_size / 1e6:.1f} MB, random weights")
    print(f"sound: {len(sound) / 16_000:.1f} s; {len(tokens)} tokens in {seconds:.2f} s")
    print(f"tokens, which mean nothing: {tokens}")


if __name__ == "__main__":
    main()
