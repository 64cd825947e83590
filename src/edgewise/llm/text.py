"""Text to tokens and back: tokenizer files, text that grows, and where to stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = ["StopStrings", "TextStream", "Tokenizer", "check_fit", "load_tokenizer"]

_SMALLEST = 0.9
"""Of the model's vocabulary, that a tokenizer must know: models pad theirs a little."""


class Tokenizer(Protocol):
    """What both kinds of tokenizer files can do."""

    size: int

    def encode(self, text: str) -> list[int]:
        """The text's tokens, with those that the file says begin or end a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The tokens' text, without special ones."""


class _JsonTokenizer:
    """A `tokenizer.json` of the library tokenizers."""

    def __init__(self, path: Path) -> None:
        library = _library("tokenizers", path)
        try:
            self._tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as failure:  # the library has no class of its own for what it refuses
            raise _unreadable(path, failure) from None
        self.size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))


class _SentencePieceTokenizer:
    """A `tokenizer.model` of sentencepiece."""

    def __init__(self, path: Path) -> None:
        library = _library("sentencepiece", path)
        try:
            self._tokenizer = library.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as failure:
            raise _unreadable(path, failure) from None
        self.size = int(self._tokenizer.vocab_size())

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        known = [t for t in tokens if t < self.size]
        return str(self._tokenizer.decode(known))


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Reads `tokenizer.json`, a sentencepiece `.model`, or the directory that one of them is in.

    FileNotFoundError if there is none; ValueError if it cannot be read; ModuleNotFoundError
    without the library that reads it.
    """
    path = Path(path)
    if path.is_dir():
        found = [path / n for n in ("tokenizer.json", "tokenizer.model") if (path / n).is_file()]
        if not found:
            raise FileNotFoundError(
                f"[tokenizer] a directory must hold tokenizer.json or tokenizer.model; got {path}"
            )
        path = found[0]
    if not path.is_file():
        raise FileNotFoundError(f"[tokenizer] no such file: {path}")
    return _SentencePieceTokenizer(path) if path.suffix == ".model" else _JsonTokenizer(path)


def check_fit(tokenizer: Tokenizer, vocab_size: int) -> None:
    """ValueError if the tokenizer cannot be the one that the model was trained with."""
    if _SMALLEST * vocab_size <= tokenizer.size <= vocab_size:
        return
    raise ValueError(
        f"[tokenizer] a tokenizer must fit the model, whose vocabulary has {vocab_size} tokens; "
        f"got one of {tokenizer.size}; try the file that came with the model's weights"
    )


class TextStream:
    """The text of tokens that come one by one. A character may take several tokens."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        # How a token reads may depend on the one before: spaces are part of some tokens.
        self._tokenizer = tokenizer
        self._tokens = list(before[-4:])
        self._told = tokenizer.decode(self._tokens)

    def add(self, token: int) -> str:
        """What can be told now; "" in the middle of a character."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        if text.endswith("\ufffd"):
            return ""
        new = text[len(self._told) :]
        self._tokens = self._tokens[-4:]
        self._told = self._tokenizer.decode(self._tokens)
        return new

    def rest(self) -> str:
        """What was left of a character that did not end."""
        return self._tokenizer.decode(self._tokens)[len(self._told) :]


class StopStrings:
    """Text up to the first of some strings, which may come in pieces."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = [s for s in strings if s]
        self._held = ""
        self.has_stopped = False

    def feed(self, text: str) -> str:
        """What surely comes before a stop string."""
        self._held += text
        places = [p for s in self._strings if (p := self._held.find(s)) >= 0]
        if places:
            self.has_stopped = True
            return self._take(min(places))
        begun = (
            length
            for s in self._strings
            for length in range(1, len(s))
            if self._held.endswith(s[:length])
        )
        return self._take(len(self._held) - max(begun, default=0))

    def rest(self) -> str:
        """What was held because it might have begun one."""
        return "" if self.has_stopped else self._take(len(self._held))

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken


def _library(name: str, path: Path) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        package = "edgewise[llm]" if name == "tokenizers" else name
        raise ModuleNotFoundError(
            f"[tokenizer] reading {path} needs the package {name}; try pip install {package}",
            name=name,
        ) from None


def _unreadable(path: Path, failure: Exception) -> ValueError:
    hint = "a tokenizer.json of the library tokenizers, or a sentencepiece .model"
    if path.suffix == ".json":
        try:
            read_json(path.read_bytes())
        except ValueError:
            hint = "JSON"
    return ValueError(f"[tokenizer] a tokenizer must be {hint}; got {path}: {failure}")
