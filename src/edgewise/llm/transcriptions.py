"""Speech in requests of OpenAI's interface: `/v1/audio/transcriptions` and `translations`."""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from edgewise.llm.chat import tokenizer_folder
from edgewise.llm.mel import RATE
from edgewise.llm.requests import RequestError
from edgewise.llm.speech import load_speech_model
from edgewise.llm.subtitles import FORMATS, head_of
from edgewise.llm.text import TextStream, load_tokenizer
from edgewise.llm.timestamps import Segment
from edgewise.llm.transcriber import Fallback, read_speech

__all__ = [
    "SpeechEvents",
    "TranscriptionRequest",
    "Transcriptions",
    "read_form",
    "read_transcription",
]

SpeechEvents = Generator[dict[str, Any], None, None]
"""Of a stream of the interface."""

_FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
_TIMES = {"segment", "word"}
_MOST_SECONDS = 3 * 3600
"""Of a sound. Compressed, a day of silence takes no more bytes than a request may have."""
_REFUSED = ("include[]", "chunking_strategy", "known_speaker_names[]")


@dataclass(frozen=True)
class TranscriptionRequest:
    """sound: a file. format: of the answer. language: None for the one that is heard.
    temperature: 0 for the likeliest tokens, and others where these are not believed. prompt: a text
    that stands before what is said. stream: pieces of the text as it is written. times: of what,
    in verbose_json: "segment", "word"."""

    sound: bytes
    format: str = "json"
    language: str | None = None
    temperature: float = 0
    prompt: str | None = None
    stream: bool = False
    times: frozenset[str] = frozenset({"segment"})


class Transcriptions:
    """Answers requests with a file that `load_speech_model` reads, one after the other.

    Its tokenizer is in the folder beside it: FileNotFoundError if there is none.
    ModuleNotFoundError without the package that reads forms.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        if find_spec("python_multipart") is None:
            raise ModuleNotFoundError(
                "[serve] speech needs the package python-multipart; try pip install "
                "'edgewise[llm,serve]'",
                name="python_multipart",
            )
        folder = tokenizer_folder(path)
        if folder is None:
            raise FileNotFoundError(
                f"[transcriber] its tokenizer must be in a folder beside it; got none at "
                f"{Path(path).with_suffix('.tokenizer')}"
            )
        self._tokenizer = load_tokenizer(folder)
        self._model = load_speech_model(path, self._tokenizer, threads=threads)
        self._lock = threading.Lock()

    def answer(self, asked: TranscriptionRequest, translate: bool) -> Response:
        """In the thread of the caller. RequestError or ValueError if it cannot be answered."""
        samples = self._samples(asked)
        with self._lock:
            language, segments = self._hear(asked, samples, translate)
            stream = TextStream(self._tokenizer)
            said = [(one, stream.add(*one.tokens)) for one in segments]
            words = [
                {"word": word.text.strip(), "start": word.start, "end": word.end}
                for one, _ in said
                if "word" in asked.times and one.token_times
                for word in self._model.words(one, language)
            ]
        text = "".join(part for _, part in said).strip()
        if asked.format == "text":
            return PlainTextResponse(text + "\n")
        if asked.format in FORMATS:
            write = FORMATS[asked.format]
            parts = [write(number, *one) for number, one in enumerate(said, 1)]
            return PlainTextResponse(head_of(asked.format) + "\n".join(parts))
        if asked.format == "json":
            return JSONResponse({"text": text})
        told: dict[str, Any] = {
            "task": "translate" if translate else "transcribe",
            "language": language,
            "duration": len(samples) / RATE,
            "text": text,
        }
        if "word" in asked.times:
            told["words"] = words
        if "segment" in asked.times:
            told["segments"] = [_told(number, *one) for number, one in enumerate(said)]
        return JSONResponse(told)

    def events(self, asked: TranscriptionRequest, translate: bool) -> SpeechEvents:
        """The text's pieces, then all of it, as a stream of the interface has them. Errors are
        those of `answer`, before the first piece."""
        samples = self._samples(asked)
        text, stream = "", TextStream(self._tokenizer)
        with self._lock:
            _, segments = self._hear(asked, samples, translate)
            for one in segments:
                piece = stream.add(*one.tokens)
                piece = piece if text else piece.lstrip()
                text += piece
                yield {"type": "transcript.text.delta", "delta": piece}
        yield {"type": "transcript.text.done", "text": text.strip()}

    def _samples(self, asked: TranscriptionRequest) -> Any:
        if asked.format in FORMATS and not self._model.tells_times:
            raise RequestError(
                "[serve] the model tells no times; try response_format json", 400, "response_format"
            )
        if "word" in asked.times and not self._model.tells_words:
            raise RequestError(
                "[serve] the model does not tell when words are said; try segment",
                400,
                "timestamp_granularities[]",
            )
        return read_speech(io.BytesIO(asked.sound), most_seconds=_MOST_SECONDS)

    def _hear(
        self, asked: TranscriptionRequest, samples: Any, translate: bool
    ) -> tuple[str | None, Iterator[Segment]]:
        """The language, and segments as they are heard."""
        fallback = Fallback((asked.temperature,)) if asked.temperature else Fallback()
        start, language = self._model.begin(samples, asked.language, translate)
        prompt = self._model.prompt_ids(asked.prompt)
        segments = self._model.transcribe(
            samples, start, fallback=fallback, prompt=prompt, token_times="word" in asked.times
        )
        return language, segments


async def read_form(request: Request, most: int) -> Mapping[str, Any]:
    """The fields of a request of `multipart/form-data` with `most` bytes or fewer, files as bytes.
    One of several values is the list of them. RequestError if it is none."""

    async def parts() -> AsyncGenerator[bytes, None]:
        count = 0
        async for part in request.stream():
            count += len(part)
            if count > most:
                raise RequestError(
                    f"[serve] a request must have at most {most} bytes; got more", 413
                )
            yield part

    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise RequestError("[serve] a request must be multipart/form-data, with a file")
    try:
        form = await MultiPartParser(request.headers, parts(), max_files=1, max_fields=32).parse()
    except (MultiPartException, KeyError) as failure:
        raise RequestError(f"[serve] a request must be a whole form; got {failure}") from None
    found: dict[str, Any] = {n: v for n, v in form.items() if isinstance(v, str)}
    found |= {n: form.getlist(n) for n in found if n.endswith("[]")}
    files = {name: await value.read() for name, value in form.items() if hasattr(value, "read")}
    await form.close()
    return {**found, **files}


def read_transcription(form: Mapping[str, Any]) -> TranscriptionRequest:
    """Of a request's form. RequestError if it is wrong, or asks for what is not done."""
    for name in _REFUSED:
        if form.get(name) not in (None, "", "false", "False"):
            raise RequestError(f"[serve] {name} is not supported", 400, name)
    sound, format = form.get("file"), form.get("response_format", "json")
    times = form.get("timestamp_granularities[]") or ["segment"]
    if not set(times) <= _TIMES:
        raise RequestError(
            f"[serve] times are those of {' or '.join(sorted(_TIMES))}; got {times}",
            400,
            "timestamp_granularities[]",
        )
    if "word" in times and format != "verbose_json":
        raise RequestError(
            f"[serve] words' times need response_format verbose_json; got {format!r}",
            400,
            "timestamp_granularities[]",
        )
    if not isinstance(sound, bytes):
        raise RequestError("[serve] there must be a file; got none", 400, "file")
    if format not in _FORMATS:
        raise RequestError(
            f"[serve] response_format must be one of {', '.join(_FORMATS)}; got {format!r}",
            400,
            "response_format",
        )
    try:
        temperature = float(form.get("temperature", 0))
    except (TypeError, ValueError):
        temperature = -1
    if not 0 <= temperature <= 1:
        raise RequestError("[serve] temperature must be from 0 to 1", 400, "temperature")
    is_stream = form.get("stream") in ("true", "True")
    if is_stream and format not in ("json", "text"):
        raise RequestError(
            f"[serve] a stream is of text; got {format!r}; try response_format json",
            400,
            "response_format",
        )
    language, prompt = form.get("language") or None, form.get("prompt") or None
    return TranscriptionRequest(
        sound, format, language, temperature, prompt, is_stream, frozenset(times)
    )


def _told(number: int, segment: Segment, text: str) -> dict[str, Any]:
    return {
        "id": number,
        "start": segment.start,
        "end": segment.end,
        "text": text,
        "tokens": segment.tokens,
    }
