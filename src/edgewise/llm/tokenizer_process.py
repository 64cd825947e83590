"""The libraries that read tokenizer files, in a process of its own: the files are others'.

    python -m edgewise.llm.tokenizer_process LIBRARY PATH BYTES

A damaged file can end a library's process, or make it ask for any amount of memory: BYTES is the
most that it may have. Chat templates, which are programs, run here for the same reason. Requests,
one line of JSON each, come on standard input; answers go to the descriptor that was standard
output.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol


class _Tokenizer(Protocol):
    size: int

    def encode(self, text: str, special: bool) -> list[int]: ...

    def decode(self, tokens: list[int], special: bool) -> str: ...

    def token_to_id(self, token: str) -> int | None: ...

    def pair(self, text: str, second: str | None) -> dict[str, Any]: ...


class _Json:
    """A `tokenizer.json` of the library tokenizers."""

    def __init__(self, library: Any, path: str) -> None:
        self._tokenizer = tokenizer = library.Tokenizer.from_file(path)
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, special: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: list[int], special: bool) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=not special))

    def token_to_id(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def pair(self, text: str, second: str | None) -> dict[str, Any]:
        found = self._tokenizer.encode(text, second)
        return {
            "tokens": found.ids,
            "type_ids": found.type_ids,
            "special_tokens_mask": found.special_tokens_mask,
            "offsets": found.offsets,
            "pieces": found.tokens,
            "truncated": bool(found.overflowing),
        }


class _Sentencepiece:
    """A `tokenizer.model` of sentencepiece, which knows no ids beyond its own."""

    def __init__(self, library: Any, path: str) -> None:
        self._tokenizer = library.SentencePieceProcessor(model_file=path)
        self.size = int(self._tokenizer.vocab_size())

    def encode(self, text: str, special: bool) -> list[int]:
        return list(self._tokenizer.encode(text))

    def decode(self, tokens: list[int], special: bool) -> str:
        return str(self._tokenizer.decode([t for t in tokens if t < self.size]))

    def token_to_id(self, token: str) -> int | None:
        found = int(self._tokenizer.piece_to_id(token))
        return found if self._tokenizer.id_to_piece(found) == token else None

    def pair(self, text: str, second: str | None) -> dict[str, Any]:
        raise ValueError("texts with type ids and offsets need a tokenizer.json")


_OPENERS: dict[str, Callable[[Any, str], _Tokenizer]] = {
    "tokenizers": _Json,
    "sentencepiece": _Sentencepiece,
}


def _render(template: str, variables: dict[str, Any]) -> str:
    from edgewise.llm.template import render

    return render(template, variables)


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

    opened: list[_Tokenizer] = []

    def load() -> dict[str, Any]:
        opened.append(_OPENERS[library](importlib.import_module(library), path))
        return {"size": opened[0].size}

    if not answer(load):
        return
    tokenizer = opened[0]

    def work(asked: dict[str, Any]) -> dict[str, Any]:
        special = bool(asked.get("special", True))
        if "pair" in asked:
            return tokenizer.pair(asked["text"], asked["pair"])
        if "template" in asked:
            return {"text": _render(asked["template"], asked["variables"])}
        if "text" in asked:
            return {"tokens": tokenizer.encode(asked["text"], special)}
        if "token" in asked:
            return {"id": tokenizer.token_to_id(asked["token"])}
        return {"text": tokenizer.decode(asked["tokens"], special)}

    for line in sys.stdin:
        asked = json.loads(line)
        answer(lambda asked=asked: work(asked))  # type: ignore[misc]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
