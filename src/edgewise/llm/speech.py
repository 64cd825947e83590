"""Files that write what is said: Whisper's and Parakeet's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from edgewise.llm.alignment import Word
from edgewise.llm.recognizer import Recognizer
from edgewise.llm.text import Tokenizer
from edgewise.llm.timestamps import Segment
from edgewise.llm.transcriber import Fallback, Transcriber
from edgewise.runtime import Program, Runtime

__all__ = ["SpeechModel", "is_speech_model", "load_speech_model"]


class SpeechModel(Protocol):
    """What both can do."""

    @property
    def tells_times(self) -> bool:
        """Whether segments have times."""

    @property
    def tells_words(self) -> bool:
        """Whether the file tells when each token is said."""

    def begin(
        self, sound: Any, language: str | None, translate: bool
    ) -> tuple[list[int], str | None]:
        """What the text of a sound begins with, and its language: the one that is heard where none
        is told, or None. ValueError for what the model cannot be told, or without a tokenizer."""

    def prompt_ids(self, text: str | None) -> list[int]:
        """Tokens of a text that stands before what is said. ValueError if the model takes none."""

    def words(self, segment: Segment, language: str | None) -> list[Word]:
        """Those of a segment whose tokens have times. ValueError without a tokenizer."""

    def transcribe(
        self,
        sound: Any,
        start: Sequence[int] = (),
        *,
        max_new_tokens: int | None = None,
        fallback: Fallback | None = None,
        prompt: Sequence[int] = (),
        token_times: bool = False,
    ) -> Iterator[Segment]:
        """What is said in a sound float [samples] at 16 kHz, of any length."""


def is_speech_model(program: Program) -> bool:
    """Whether `load_speech_model` reads it."""
    names = program.method_names
    return "encode" in names and bool(names & {"get_suppress_ids", "get_blank_id"})


def load_speech_model(
    path: str | Path, tokenizer: Tokenizer | None = None, *, threads: int | None = None
) -> SpeechModel:
    """tokenizer: the model's; needed for languages, prompts and sentences.

    Raises ValueError if the file is of neither, and as `Runtime.load_program`.
    """
    names = Runtime.get().load_program(path, threads=threads).method_names
    made = Recognizer if "get_blank_id" in names else Transcriber
    return made(path, tokenizer, threads=threads)
