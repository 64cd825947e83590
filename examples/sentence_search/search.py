"""Searches Markdown pages by meaning: embeds their paragraphs and the question, without torch.

    pip install edgewise[llm]                    # numpy and tokenizers
    python examples/sentence_search/search.py "which chips does it run on?"

Without a question it reads them from standard input, one a line. `export.py` makes the model.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import edgewise

LENGTH = 64


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a page, under its last heading."""

    page: Path
    line: int
    heading: str
    text: str


class Embedder:
    """Texts to unit vectors [N, 384]."""

    def __init__(self, folder: Path) -> None:
        self._run = edgewise.load(folder / "sentences.pte")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(LENGTH)
        self._tokenizer.enable_padding(length=LENGTH)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        coded = self._tokenizer.encode_batch(list(texts))
        pairs = [(np.array([c.ids]), np.array([c.attention_mask])) for c in coded]
        return np.concatenate([self._run(ids, mask) for ids, mask in pairs])


def paragraphs(page: Path) -> list[Paragraph]:
    """The prose of a page: no code, no tables."""
    found: list[Paragraph] = []
    heading, lines, start, code = "", [], 0, False
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            code = not code
        if line.startswith("#") and not code:
            heading = line.lstrip("# ")
        elif line.strip() and not code and not line.startswith(("|", "```")):
            start = start or number
            lines.append(line.strip())
            continue
        if len(lines) > 1:
            found.append(Paragraph(page, start, heading, " ".join(lines)))
        lines, start = [], 0
    return found


def main() -> int:
    here = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("question", nargs="*")
    options.add_argument("--model", type=Path, default=Path("build/sentence_search"))
    options.add_argument("--pages", type=Path, default=here / "docs", help="folder of .md files")
    options.add_argument("--best", type=int, default=3)
    chosen = options.parse_args()
    if not (chosen.model / "sentences.pte").exists():
        print(f"no model in {chosen.model}; make one with export.py", file=sys.stderr)
        return 1

    embed = Embedder(chosen.model)
    texts = [p for page in sorted(chosen.pages.glob("*.md")) for p in paragraphs(page)]
    start = time.perf_counter()
    vectors = embed([f"{p.heading}. {p.text}" for p in texts])
    each = (time.perf_counter() - start) / len(texts)
    print(f"{len(texts)} paragraphs, {1000 * each:.1f} ms each", file=sys.stderr)

    for question in [" ".join(chosen.question)] if chosen.question else map(str.strip, sys.stdin):
        scores = vectors @ embed([question])[0]
        for index in np.argsort(-scores)[: chosen.best]:
            p = texts[index]
            plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", p.text)
            print(f"{scores[index]:.2f}  {p.page.name}:{p.line}  {p.heading}\n      {plain[:160]}")
    assert "torch" not in sys.modules
    return 0


if __name__ == "__main__":
    sys.exit(main())
