"""Text to tokens and back: tokenizer files, text that grows, and where to stop."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from edgewise import workers
from edgewise.files import read_json
from edgewise.llm import tokenizer_process

__all__ = [
    "Encoded",
    "ProcessTokenizer",
    "StopStrings",
    "TextStream",
    "Tokenizer",
    "check_fit",
    "load_tokenizer",
]

_SMALLEST = 0.9
"""Of the model's vocabulary, that a tokenizer must know: models pad theirs a little."""

MOST_BYTES = 4 << 30
"""Of memory for the process with a tokenizer's library."""
TIME_LIMIT = 60.0
"""Seconds for reading a file, for a text, for some tokens."""


class Tokenizer(Protocol):
    """What both kinds of tokenizer files can do."""

    size: int

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The text's tokens; with those that the file says begin or end a text, if `special`."""

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The tokens' text; with special ones if wanted."""

    def token_to_id(self, token: str) -> int | None:
        """None if there is no token of that text."""

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """What a chat template makes of the variables. ValueError if it fails."""


class _Refused(Exception):
    """The other process could not do it."""


@dataclass(frozen=True)
class Encoded:
    """A text's tokens, one entry each. special_tokens_mask: 1 for those that the tokenizer added;
    offsets: from and to which character of its text it is; pieces: what each is in the vocabulary;
    truncated: whether the text was longer than the file's limit."""

    tokens: list[int]
    type_ids: list[int]
    special_tokens_mask: list[int]
    offsets: list[tuple[int, int]]
    pieces: list[str]
    truncated: bool


class ProcessTokenizer:
    """A tokenizer file with the library that reads it, in a process of its own."""

    def __init__(self, library: str, path: Path) -> None:
        self._library, self._path = library, path
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by _stop
        self._process = workers.start(
            tokenizer_process.__name__, library, str(path), str(MOST_BYTES), log=self._log
        )
        weakref.finalize(self, _stop, self._process, self._log)
        self._lock = threading.Lock()
        self.size = int(self._ask(None)["size"])

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """See `Tokenizer`."""
        return list(self._ask({"text": text, "special": special})["tokens"])

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """See `Tokenizer`."""
        numbers = [int(token) for token in tokens]
        return str(self._ask({"tokens": numbers, "special": special})["text"])

    def encode_pair(self, text: str, second: str | None = None) -> Encoded:
        """The tokens of one text or two with all that is known of them. ValueError if the file is
        none of the library tokenizers."""
        return Encoded(**self._ask({"text": text, "pair": second}))

    def token_to_id(self, token: str) -> int | None:
        """See `Tokenizer`."""
        found: int | None = self._ask({"token": token})["id"]
        return found

    def number(self, token: str) -> int | None:
        """Deprecated: `token_to_id`."""
        warnings.warn("number is now token_to_id", DeprecationWarning, stacklevel=2)
        return self.token_to_id(token)

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """See `Tokenizer`."""
        asked = {"template": template, "variables": dict(variables)}
        try:
            return str(self._ask(asked)["text"])
        except _Refused as refused:
            raise ValueError(f"[chat] the model's chat template failed: {refused}") from None

    def _ask(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """The answer to a request, or to having been started. ValueError if it is an error."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        slow = threading.Timer(TIME_LIMIT, process.kill)
        slow.daemon = True
        with self._lock:
            slow.start()
            try:
                if message is not None:
                    process.stdin.write(json.dumps(message).encode() + b"\n")
                    process.stdin.flush()
                answer: dict[str, Any] = json.loads(process.stdout.readline())
            except (OSError, ValueError):
                raise _unreadable(self._path, self._ending()) from None
            except BaseException:  # Ctrl-C: what is in the pipes belongs to no later call
                process.kill()
                raise
            finally:
                slow.cancel()
        if "missing" in answer:
            name = str(answer["missing"])
            package = name if name == "sentencepiece" else "edgewise[llm]"
            raise ModuleNotFoundError(
                f"[tokenizer] reading {self._path} needs the package {name}; "
                f"try pip install {package}",
                name=answer["missing"],
            )
        if "error" in answer and message is not None and "template" in message:
            raise _Refused(answer["error"])
        if "error" in answer:
            raise _unreadable(self._path, answer["error"])
        return answer

    def _ending(self) -> str:
        """Of the process, which gave no answer."""
        self._process.kill()
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return f"its process was stopped, having worked for {TIME_LIMIT:g} s"
        return f"its process ended with {workers.how_it_ended(code)}"


def _stop(process: subprocess.Popen[bytes], log: BinaryIO) -> None:
    """Also in a forked child, which leaves its parent's process alone."""
    for pipe in (process.stdin, process.stdout, log):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(5)  # it ends with its input
    except subprocess.TimeoutExpired:
        process.kill()


def load_tokenizer(path: str | Path) -> ProcessTokenizer:
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
    return ProcessTokenizer("sentencepiece" if path.suffix == ".model" else "tokenizers", path)


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
        # Numbers above the vocabulary are of images.
        self._tokens = [token for token in before[-4:] if token < tokenizer.size]
        self._told = tokenizer.decode(self._tokens)

    def add(self, *tokens: int) -> str:
        """What can be told now; "" in the middle of a character."""
        self._tokens.extend(tokens)
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


def _unreadable(path: Path, failure: str) -> ValueError:
    hint = "a tokenizer.json of the library tokenizers, or a sentencepiece .model"
    if path.suffix == ".json":
        try:
            read_json(path.read_bytes())
        except ValueError:
            hint = "JSON"
    return ValueError(f"[tokenizer] a tokenizer must be {hint}; got {path}: {failure}")
