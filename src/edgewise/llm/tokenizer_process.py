"""The libraries that read tokenizer files, in a process of their own: the files are others'.

    python -m edgewise.llm.tokenizer_process LIBRARY PATH BYTES

A damaged file can end a library's process, or make it ask for any amount of memory: BYTES is the
most that it may have. Requests, one line of JSON each, come on standard input; answers go to the
descriptor that was standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

Encode = Callable[[str], list[int]]
Decode = Callable[[Sequence[int]], str]
EncodePair = Callable[[str, "str | None"], dict[str, Any]]


def _json(library: Any, path: str) -> tuple[int, Encode, Decode, EncodePair]:
    """A `tokenizer.json` of the library tokenizers."""
    tokenizer = library.Tokenizer.from_file(path)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def pair(text: str, second: str | None) -> dict[str, Any]:
        found = tokenizer.encode(text, second)
        return {
            "tokens": found.ids,
            "types": found.type_ids,
            "special": found.special_tokens_mask,
            "offsets": found.offsets,
            "words": found.tokens,
            "cut": bool(found.overflowing),
        }

    return size, lambda text: list(tokenizer.encode(text).ids), tokenizer.decode, pair


def _sentencepiece(library: Any, path: str) -> tuple[int, Encode, Decode, EncodePair]:
    """A `tokenizer.model` of sentencepiece, which knows no numbers beyond its own."""
    tokenizer = library.SentencePieceProcessor(model_file=path)
    size = int(tokenizer.vocab_size())

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode([t for t in tokens if t < size]))

    def pair(text: str, second: str | None) -> dict[str, Any]:
        raise ValueError("texts with their types and places need a tokenizer.json")

    return size, lambda text: list(tokenizer.encode(text)), decode, pair


_OPENERS = {"tokenizers": _json, "sentencepiece": _sentencepiece}


def main(library: str, path: str, most_bytes: int) -> None:
    """Answers until the parent closes the pipe."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What the library prints goes to the log, not between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)

    def answer(make: Callable[[], dict[str, Any]]) -> bool:
        try:
            message = make()
        except ModuleNotFoundError as failure:
            message = {"error": str(failure), "missing": failure.name}
        except BaseException as failure:  # what Rust panics with is no Exception
            message = {"error": str(failure) or type(failure).__name__}
        answers.write(json.dumps(message) + "\n")
        answers.flush()
        return "error" not in message

    opened: list[Any] = []

    def load() -> dict[str, Any]:
        opened.extend(_OPENERS[library](importlib.import_module(library), path))
        return {"size": opened[0]}

    if not answer(load):
        return
    _, encode, decode, pair = opened

    def work(asked: dict[str, Any]) -> dict[str, Any]:
        if "pair" in asked:
            return dict(pair(asked["text"], asked["pair"]))
        if "text" in asked:
            return {"tokens": encode(asked["text"])}
        return {"text": str(decode(asked["tokens"]))}

    for line in sys.stdin:
        asked = json.loads(line)
        answer(lambda asked=asked: work(asked))  # type: ignore[misc]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
