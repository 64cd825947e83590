"""Text of speech, by a Whisper in a file."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgewise.llm.alignment import Word, align, words_of
from edgewise.llm.calls import constants
from edgewise.llm.mel import FRAMES_PER_SECOND, RATE, log_mel, log_mel_of_all
from edgewise.llm.text import Tokenizer
from edgewise.llm.timestamps import FRAMES_PER_STEP, STEP, Segment, Timestamps
from edgewise.runtime import Program, Runtime
from edgewise.sounds import read_sound

__all__ = ["Fallback", "Transcriber", "beginning", "read_speech"]


@dataclass(frozen=True)
class Fallback:
    """When a text is not believed, as Whisper's own code has it.

    It is written again, at the next of `temperatures`, if the mean of its tokens' log
    probabilities is below `least_logprob`, or if zlib makes them more than `most_compression` times
    smaller, as they repeat themselves. It is left out if that mean is as low and the probability of
    silence above `most_silence`. seed: of random numbers.
    """

    temperatures: tuple[float, ...] = (0, 0.2, 0.4, 0.6, 0.8, 1)
    least_logprob: float = -1.0
    most_compression: float = 1.35
    most_silence: float = 0.6
    seed: int = 0


@dataclass(frozen=True)
class _Attempt:
    tokens: list[int]
    mean_logprob: float
    silence: float


class Transcriber:
    """A program of `lower_whisper`, with `encode` and `forward`.

    tokenizer: the model's, for languages and prompts. Raises ValueError if the program is another
    one, and as `Runtime.load_program`.
    """

    def __init__(
        self, path: str | Path, tokenizer: Tokenizer | None = None, *, threads: int | None = None
    ) -> None:
        program = Runtime.get().load_program(path, threads=threads)
        if not {"encode", "forward", "get_suppress_ids"} <= program.method_names:
            raise ValueError(
                f"[transcribe] must have the methods encode and forward; got {path}; try a file "
                f"that edgewise llm export makes of a Whisper"
            )
        _, self.bands, self.frames = (
            int(n) for n in program.metadata("encode").input_tensor_meta(0).sizes()
        )
        """Of the features that the encoder takes."""
        self._chunk = int(program.metadata("forward").input_tensor_meta(0).sizes()[1])
        self.max_context_len = int(constants(program, "get_max_context_len")[0])
        """Most tokens of a text, with those it begins with."""
        self.vocab_size = int(constants(program, "get_vocab_size")[0])
        """Tokens are from 0 to below this."""
        self.tokenizer = tokenizer
        self.start_ids = [int(t) for t in constants(program, "get_bos_id")]
        """What a text begins with."""
        self.eos_ids = frozenset(int(t) for t in constants(program, "get_eos_ids"))
        """Tokens that end a text."""
        self.times = _times(program, min(self.eos_ids))
        """Of a text; None if the file does not tell them."""
        self.language_ids = [int(t) for t in constants(program, "get_language_ids")]
        """Tokens of the languages that the model can tell apart; none for one of a single one."""
        self._never = [int(t) for t in constants(program, "get_suppress_ids")]
        self._not_first = [int(t) for t in constants(program, "get_begin_suppress_ids")]
        self._heard: Any = None
        self._median_width = constants(program, "get_median_filter_width")
        self._session = program.new_session()
        self._encode = self._session.load_method("encode")
        self._forward = self._session.load_method("forward")

    @property
    def tells_times(self) -> bool:
        """Whether segments have times."""
        return self.times is not None

    @property
    def tells_words(self) -> bool:
        """Whether the file tells when each token is said."""
        return bool(self._median_width) and self.times is not None

    @functools.cached_property
    def _align(self) -> Any:
        """Loaded when words are asked for."""
        return self._session.load_method("align")

    def begin(
        self, sound: Any, language: str | None, translate: bool
    ) -> tuple[list[int], str | None]:
        """What the text of a sound begins with, and its language: the one that is heard where none
        is told. ValueError as of `beginning`, or without a tokenizer."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            if language is not None or translate:
                raise ValueError("[transcribe] languages need a tokenizer; try --tokenizer")
            return list(self.start_ids), None
        if self.times is not None and not self.language_ids:
            # Tokenizers of English models know other languages all the same.
            if language not in (None, "en") or translate:
                raise _one_language(language)
            return list(self.start_ids), language
        if language is None and self.language_ids:
            token = self.detect_language(self.features(sound))
            language = tokenizer.decode([token], special=True).strip().strip("<|>")
        begin = beginning(tokenizer, self.start_ids, language, translate, self.tells_times)
        return begin, language

    def prompt_ids(self, text: str | None) -> list[int]:
        """Tokens of a text that stands before what is said: names, spellings, a style. Of a long
        one its end, as much as half of the context holds. ValueError if the model takes none, or
        without a tokenizer."""
        if not text or not text.strip():
            return []
        if self.tokenizer is None:
            raise ValueError("[transcribe] a prompt needs a tokenizer; try --tokenizer")
        before = self.tokenizer.token_to_id("<|startofprev|>")
        if before is None:
            raise ValueError("[transcribe] the model takes no prompt; try without")
        words = self.tokenizer.encode(" " + text.strip(), special=False)
        return [before, *words[-(self.max_context_len // 2 - 1) :]]

    def words(self, segment: Segment, language: str | None) -> list[Word]:
        """Those of a segment with times of tokens, as of `words_of`. ValueError without a
        tokenizer."""
        if self.tokenizer is None:
            raise ValueError("[transcribe] words need a tokenizer; try --tokenizer")
        return words_of(segment.tokens, segment.token_times, self.tokenizer, language)

    def generate(
        self,
        features: Any,
        start: Sequence[int] = (),
        *,
        max_new_tokens: int | None = None,
        times: bool = False,
        prompt: Sequence[int] = (),
    ) -> Iterator[int]:
        """The most likely tokens, one by one, without one that ends the text.

        features: float32 [1, bands, frames]. start: what the text begins with, such as a language
        and a task; the model's own beginning if empty. times: as `Timestamps` has them. prompt:
        what stands before the text, as of `prompt_ids`. ValueError if they do not fit the model.
        """
        features = self._checked(features)
        if times and self.times is None:
            raise ValueError("[transcribe] the file tells no times; try edgewise llm export again")
        begin, _ = self._begun(start, prompt)
        return self._generate(features, begin, max_new_tokens, self.times if times else None)

    def _begun(self, start: Sequence[int], prompt: Sequence[int]) -> tuple[list[int], int]:
        """What the decoder is given first, and the number of the token that begins the text."""
        begin = [*prompt, *(list(start) or self.start_ids)]
        if len(begin) >= self.max_context_len or not all(0 <= t < self.vocab_size for t in begin):
            raise ValueError(
                f"[transcribe] a text must begin with less than {self.max_context_len} tokens "
                f"below {self.vocab_size}; got {begin}"
            )
        return begin, len(prompt)

    def _checked(self, features: Any) -> Any:
        features = np.asarray(features, dtype=np.float32)
        if features.shape != (1, self.bands, self.frames):
            raise ValueError(
                f"[transcribe] features must be {[1, self.bands, self.frames]}; "
                f"got {list(features.shape)}"
            )
        return features

    def detect_language(self, features: Any) -> int:
        """The likeliest token of `language_ids` for a sound. ValueError if there are none."""
        if not self.language_ids:
            raise ValueError("[transcribe] the model tells no languages apart; try --language")
        self._hear(self._checked(features))
        logits = self._run(self.start_ids, 0)
        return max(self.language_ids, key=lambda token: float(logits[token]))

    def _hear(self, features: Any) -> None:
        """Leaves what the decoder reads of them, unless it is there: a language was heard first."""
        if self._heard is None or not np.array_equal(features, self._heard):
            self._heard = None
            self._encode.execute([features])
            self._heard = features.copy()

    def features(self, sound: Any) -> Any:
        """Of the beginning of a sound, as the encoder takes them."""
        return log_mel(sound, self.bands, self.frames)

    def _generate(
        self, features: Any, begin: list[int], most: int | None, times: Timestamps | None
    ) -> Iterator[int]:
        self._hear(features)
        for token, _ in self._write(self._begin(begin, 0), len(begin), most, times, _likeliest):
            if token not in self.eos_ids:
                yield token

    def _begin(self, tokens: Sequence[int], position: int) -> Any:
        """The logits behind tokens of which the first is at that position."""
        logits: Any = None
        for first in range(0, len(tokens), self._chunk):
            logits = self._run(tokens[first : first + self._chunk], position + first)
        return logits

    def _write(
        self,
        logits: Any,
        position: int,
        most: int | None,
        times: Timestamps | None,
        pick: Callable[[Any], int],
    ) -> Iterator[tuple[int, Any]]:
        """Tokens, also one that ends the text, and the logits that they were picked from."""
        written: list[int] = []
        while True:
            logits = np.array(logits)
            logits[self._never + ([] if written else self._not_first)] = -np.inf
            if times is not None:
                times.restrict(logits, written)
            token = pick(logits)
            yield token, logits
            written.append(token)
            if token in self.eos_ids or len(written) == most or position >= self.max_context_len:
                return
            logits = self._run([token], position)
            position += 1

    def _believed(
        self, features: Any, begun: tuple[list[int], int], most: int | None, fallback: Fallback
    ) -> list[int] | None:
        """The first text that is believed, or the last one that was tried; None for silence."""
        random = np.random.default_rng(fallback.seed)
        self._hear(self._checked(features))
        bytes_of_token = int(math.log2(self.vocab_size) / 8) + 1
        tokens: list[int] = []
        for temperature in fallback.temperatures:
            found = self._attempt(begun, most, temperature, random)
            tokens = found.tokens
            data = b"".join(token.to_bytes(bytes_of_token, "little") for token in tokens)
            is_doubtful = found.mean_logprob < fallback.least_logprob
            if is_doubtful and found.silence > fallback.most_silence:
                return None
            if not is_doubtful and len(data) <= fallback.most_compression * len(
                zlib.compress(data)
            ):
                break
        return [token for token in tokens if token not in self.eos_ids]

    def _attempt(
        self, begun: tuple[list[int], int], most: int | None, temperature: float, random: Any
    ) -> _Attempt:
        begin, at = begun

        def picked(logits: Any) -> int:
            if temperature == 0:
                return _likeliest(logits)
            chances = np.exp((logits - logits.max()).astype(np.float64) / temperature)
            return int(random.choice(len(chances), p=chances / chances.sum()))

        first = self._begin(begin[: at + 1], 0)
        silence = 0.0
        if self.times is not None:  # the token before that for a text without times
            silence = math.exp(_log_probability(first, self.times.none - 1))
        logits = self._begin(begin[at + 1 :], at + 1) if len(begin) > at + 1 else first
        tokens, total = [], 0.0
        for token, seen in self._write(logits, len(begin), most, self.times, picked):
            tokens.append(token)
            total += _log_probability(seen, token)
        return _Attempt(tokens, total / len(tokens), silence)

    def _run(self, tokens: Sequence[int], position: int) -> Any:
        inputs = [np.array([list(tokens)], dtype=np.int64), np.array([position], dtype=np.int64)]
        return self._forward.execute(inputs)[0].reshape(-1)

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
        """What is said in a sound of any length, segment by segment.

        Of a model with times, each text goes on where the last whole segment of the one before
        ended; of others sound is taken in pieces of 30 s, and words on their borders are cut.

        sound: float [samples] at 16 kHz, -1 to 1. start: as of `generate`, without the token that
        says that there are no times. max_new_tokens: of each 30 s. fallback: which texts are not
        believed; None: all are, and the likeliest tokens are written. prompt: as of `generate`, for
        each 30 s. token_times: segments have them (`words_of` makes words); ValueError if the file
        does not tell.
        """
        if token_times and not self.tells_words:
            raise ValueError(
                "[transcribe] the file does not tell when words are said; try edgewise llm export "
                "of a Whisper whose generation_config.json has alignment_heads"
            )
        sound = np.asarray(sound).reshape(-1)
        is_short = len(sound) <= self.frames * RATE // FRAMES_PER_SECOND
        if is_short:
            levels, count = self.features(sound)[0], -(-len(sound) * FRAMES_PER_SECOND // RATE)
        else:
            levels = log_mel_of_all(sound, self.bands)
            count = levels.shape[1]
        seek = 0
        while seek < max(count, 1):
            heard = min(self.frames, max(count, 1) - seek)
            features = np.zeros((1, self.bands, self.frames), dtype=np.float32)
            taken = levels[:, seek : seek + self.frames]
            features[0, :, : taken.shape[1]] = taken
            begin = seek / FRAMES_PER_SECOND
            written: list[int] | None
            if fallback is None:
                has_times = self.times is not None
                options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "times": has_times}
                written = list(self.generate(features, start, prompt=prompt, **options))
            else:
                begun = self._begun(start, prompt)
                written = self._believed(features, begun, max_new_tokens, fallback)
            if written is None:
                seek += heard
                continue
            if self.times is None:
                yield Segment(begin, begin + heard / FRAMES_PER_SECOND, written)
                seek += heard
                continue
            segments, moved = self.times.segments(written, heard)
            segments = [one for one in segments if one.tokens]
            said = [token for one in segments for token in one.tokens]
            times: list[float] = []
            if token_times and said:
                # What is heard next begins there.
                most = moved // FRAMES_PER_STEP
                steps = self._aligned(said, start, heard)
                times = [round(begin + min(step, most) * STEP, 2) for step in steps]
            at = 0
            for one in segments:
                last = at + len(one.tokens)
                inside = times[at : last + 1]
                yield Segment(begin + one.start, begin + one.end, one.tokens, inside)
                at = last
            seek += moved

    def _aligned(self, tokens: Sequence[int], start: Sequence[int], frames: int) -> list[int]:
        """At which steps of what was heard last the tokens of its text are said, as of `align`."""
        assert self.times is not None
        begin = [*(list(start) or self.start_ids), self.times.none]
        given = [*begin, *tokens, min(self.eos_ids)][: self.max_context_len]
        count = min(len(tokens), len(given) - len(begin))
        parts = []
        for first in range(0, len(given), self._chunk):
            part = np.array([given[first : first + self._chunk]], dtype=np.int64)
            parts.append(self._align.execute([part, np.array([first], dtype=np.int64)])[0])
        scores = np.concatenate(parts, 1)[:, :, : max(1, frames // FRAMES_PER_STEP)]
        steps = align(scores, len(begin) - 1, count, int(self._median_width[0]))
        return steps + steps[-1:] * (len(tokens) - count)


def _likeliest(logits: Any) -> int:
    return int(logits.argmax())


def _log_probability(logits: Any, token: int) -> float:
    largest = logits.max()
    return float(logits[token] - largest) - math.log(np.exp(logits - largest).sum(dtype=np.float64))


def _times(program: Program, end: int) -> Timestamps | None:
    found = constants(program, "get_no_timestamps_id")
    if not found:
        return None
    most = constants(program, "get_max_initial_timestamp")
    return Timestamps(int(found[0]), end, int(most[0]) if most else None)


def beginning(
    tokenizer: Tokenizer,
    start_ids: Sequence[int],
    language: str | None,
    translate: bool,
    times: bool = False,
) -> list[int]:
    """What a text begins with: the model's own, a language and a task where its tokenizer has
    them, and that there are no times in it, unless there are. ValueError for a language that it
    does not have."""
    names = []
    if tokenizer.token_to_id("<|transcribe|>") is not None:
        names = [f"<|{language or 'en'}|>", "<|translate|>" if translate else "<|transcribe|>"]
    elif language not in (None, "en") or translate:
        raise _one_language(language)
    found = {name: tokenizer.token_to_id(name) for name in names}
    for name, number in found.items():
        if number is None:
            raise ValueError(f"[transcribe] must be one of the model's languages; got {name}")
    without = None if times else tokenizer.token_to_id("<|notimestamps|>")
    return [*start_ids, *(n for n in (*found.values(), without) if n is not None)]


def _one_language(language: str | None) -> ValueError:
    told = language or "translate"
    return ValueError(f"[transcribe] the model has one language and task; got {told}")


def read_speech(source: str | Path | BinaryIO, *, most_seconds: float | None = None) -> Any:
    """The mean of the channels of a file's sound, float32 [samples] at 16 kHz, -1 to 1.

    Errors are those of `read_sound`.
    """
    return read_sound(source, RATE, most_seconds=most_seconds)
