"""Text of speech, by a Parakeet in a file: of each frame (CTC), or by a transducer (RNN-T, TDT).

Source: "Sequence Transduction with Recurrent Neural Networks", "Efficient Sequence Transduction by
Jointly Predicting Tokens and Durations", and `generate` of `transformers`, which tests compare
with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.alignment import Word, spaced_words
from edgewise.llm.calls import constants
from edgewise.llm.mel import FRAMES_PER_SECOND, RATE, log_mel_normalized
from edgewise.llm.text import TextStream, Tokenizer
from edgewise.llm.timestamps import Segment
from edgewise.llm.transcriber import Fallback
from edgewise.runtime import Runtime

__all__ = ["Recognizer", "Spoken"]

_CONTEXT_SECONDS = 2.0
"""Of a long sound, that are heard again before and behind each piece."""
_PAUSE_SECONDS = 1.0
"""Without a word, that end a segment."""
_ENDS = (".", "?", "!")
"""Of sentences, if a space follows."""
_ENDS_WITHOUT_SPACE = ("。", "？", "！")  # noqa: RUF001  (those of full width are meant)


@dataclass(frozen=True)
class Spoken:
    """A token, and from and to which step of the encoder it is said."""

    token: int
    start: int
    end: int


class Recognizer:
    """A program of `lower_parakeet`, with `encode`, and `predict` and `joint` of a transducer.

    tokenizer: the model's, by which segments end with sentences; without it with pauses alone.
    Raises ValueError if the program is another one, and as `Runtime.load_program`.
    """

    tells_times = True
    tells_words = True

    def __init__(
        self, path: str | Path, tokenizer: Tokenizer | None = None, *, threads: int | None = None
    ) -> None:
        program = Runtime.get().load_program(path, threads=threads)
        if not {"encode", "get_blank_id", "get_frames_per_step"} <= program.method_names:
            raise ValueError(
                f"[transcribe] must have the method encode, and tell which token is blank; got "
                f"{path}; try a file that edgewise llm export makes of a Parakeet"
            )
        _, self.frames, self.bands = (
            int(n) for n in program.metadata("encode").input_tensor_meta(0).sizes()
        )
        """Of the features that one call of the encoder takes, at most."""
        self.vocab_size = int(constants(program, "get_vocab_size")[0])
        self.blank_id = int(constants(program, "get_blank_id")[0])
        self.frames_per_step = int(constants(program, "get_frames_per_step")[0])
        self.tokenizer = tokenizer
        session = program.new_session()
        self._encode = session.load_method("encode")
        self._transducer = None
        if "joint" in program.method_names:
            self._transducer = _Transducer(program, session, self.vocab_size, self.blank_id)

    def begin(
        self, sound: Any, language: str | None, translate: bool
    ) -> tuple[list[int], str | None]:
        """What a text begins with, which is nothing, and its language, which is not told.
        ValueError for what the model cannot be told."""
        if language is not None or translate:
            told = "--translate" if translate else f"--language {language}"
            raise ValueError(
                f"[transcribe] the model writes in the language that it hears; got {told}"
            )
        return [], None

    def prompt_ids(self, text: str | None) -> list[int]:
        """None. ValueError if there is a text."""
        if text and text.strip():
            raise ValueError("[transcribe] the model takes no prompt; try without")
        return []

    def words(self, segment: Segment, language: str | None) -> list[Word]:
        """What is between spaces. ValueError without a tokenizer."""
        if self.tokenizer is None:
            raise ValueError("[transcribe] words need a tokenizer; try --tokenizer")
        return spaced_words(segment.tokens, segment.token_times, self.tokenizer)

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
        """What is said in a sound of any length, by sentences and pauses, with times of tokens.

        A sound that is longer than one call of the encoder takes is heard in pieces, with two
        seconds around each that are heard again; the decoder goes on from piece to piece.

        sound: float [samples] at 16 kHz, -1 to 1. max_new_tokens: of all of it. start, prompt: as
        of `begin` and `prompt_ids`. fallback: texts are the likeliest, and believed; ValueError if
        it begins with another temperature than 0. token_times: there always are.
        """
        if fallback is not None and fallback.temperatures[0] != 0:
            raise ValueError(
                f"[transcribe] the model writes the likeliest text; got temperature "
                f"{fallback.temperatures[0]:g}; try 0"
            )
        length = np.size(sound) / RATE
        spoken = islice(self.spoken(sound), max_new_tokens)
        pause = int(_PAUSE_SECONDS * FRAMES_PER_SECOND) // self.frames_per_step
        stream = None if self.tokenizer is None else TextStream(self.tokenizer)
        said: list[Spoken] = []
        text = ""
        for one in spoken:
            new = "" if stream is None else stream.add(one.token)
            ends = text.endswith(_ENDS_WITHOUT_SPACE)
            ends = ends or (text.endswith(_ENDS) and new.startswith(" "))
            if said and (ends or one.start - said[-1].end >= pause):
                yield self._segment(said, length)
                said = []
            said.append(one)
            text = new or text
        if said:
            yield self._segment(said, length)

    def spoken(self, sound: Any) -> Iterator[Spoken]:
        """Tokens one by one, without blank ones."""
        pieces = self._pieces(log_mel_normalized(sound, self.bands))
        if self._transducer is not None:
            yield from self._transducer.spoken(pieces)
        else:
            yield from _grouped(pieces, self.blank_id)

    def _segment(self, said: Sequence[Spoken], length: float) -> Segment:
        """length: of the sound, in seconds. The last token may take more steps than there are."""
        seconds = self.frames_per_step / FRAMES_PER_SECOND
        steps = [*(one.start for one in said), said[-1].end]
        times = [round(min(step * seconds, length), 3) for step in steps]
        return Segment(times[0], times[-1], [one.token for one in said], times)

    def _pieces(self, levels: Any) -> Iterator[tuple[int, Any]]:
        """What the encoder makes of features [frames, bands]: numbers of steps, and their results
        [T, width], one behind the other."""
        step, count = self.frames_per_step, len(levels)
        steps = -(-count // step)
        inside = self.frames // step
        beside = min(int(_CONTEXT_SECONDS * FRAMES_PER_SECOND) // step, inside // 4)
        first = 0
        while first < steps:
            begin = max(first - beside, 0)
            is_last = begin + inside >= steps
            end = steps if is_last else begin + inside - beside
            yield (
                first,
                self._encoded(levels[begin * step : (begin + inside) * step])[
                    first - begin : end - begin
                ],
            )
            first = end

    def _encoded(self, levels: Any) -> Any:
        """float32 [T, width]. Fewer frames than the encoder takes at least are followed by zeros,
        whose results are left out."""
        step = self.frames_per_step
        given = np.zeros((1, max(len(levels), step + 1), self.bands), dtype=np.float32)
        given[0, : len(levels)] = levels
        return self._encode.execute([given])[0][0, : -(-len(levels) // step)]


def _grouped(pieces: Iterator[tuple[int, Any]], blank: int) -> Iterator[Spoken]:
    """The likeliest tokens of logits [T, vocabulary]; equal ones side by side are one."""
    before, start, end = blank, 0, 0
    for first, logits in pieces:
        for at, token in enumerate(logits.argmax(-1).tolist(), first):
            if token != before:
                if before != blank:
                    yield Spoken(before, start, at)
                before, start = token, at
            end = at + 1
    if before != blank:
        yield Spoken(before, start, end)


class _Transducer:
    """Of the methods `predict` and `joint`."""

    def __init__(self, program: Any, session: Any, vocab_size: int, blank: int) -> None:
        self._vocab_size, self._blank = vocab_size, blank
        self._start = int(constants(program, "get_start_id")[0])
        self._most_symbols = int(constants(program, "get_max_symbols_per_step")[0])
        durations = constants(program, "get_durations")
        self._durations = None if not durations else np.array([int(n) for n in durations])
        self._predict = session.load_method("predict")
        self._joint = session.load_method("joint")
        self._at_once = int(program.metadata("joint").input_tensor_meta(0).sizes()[1])
        shape = program.metadata("predict").input_tensor_meta(1).sizes()
        self._silent = np.zeros([int(n) for n in shape], dtype=np.float32)

    def spoken(self, pieces: Iterator[tuple[int, Any]]) -> Iterator[Spoken]:
        """The likeliest tokens: each is that of a step behind all tokens before it."""
        prediction, *states = self._predicted(self._start, [self._silent, self._silent])
        at = symbols = 0
        for first, frames in pieces:
            end = first + len(frames)
            while at < end:
                # As long as they are blank, steps have the prediction in common.
                given = frames[None, at - first : at - first + self._at_once]
                tokens, durations = self._likeliest(self._joint.execute([given, prediction])[0][0])
                begin = at
                while at - begin < len(tokens):
                    token, duration = tokens[at - begin], durations[at - begin]
                    if token == self._blank:
                        symbols, at = 0, at + max(duration, 1)
                        continue
                    yield Spoken(token, at, at + max(duration, 1))
                    symbols += 1
                    if duration == 0 and symbols >= self._most_symbols:
                        duration = 1
                    if duration > 0:
                        symbols, at = 0, at + duration
                    prediction, *states = self._predicted(token, states)
                    break

    def _predicted(self, token: int, states: Sequence[Any]) -> Any:
        return self._predict.execute([np.array([[token]], dtype=np.int64), *states])

    def _likeliest(self, logits: Any) -> tuple[list[int], list[int]]:
        """Tokens of logits [N, vocabulary and durations], and how many steps each takes."""
        tokens = logits[:, : self._vocab_size].argmax(-1)
        if self._durations is None:
            return tokens.tolist(), [0] * len(tokens)
        durations = self._durations[logits[:, self._vocab_size :].argmax(-1)]
        return tokens.tolist(), durations.tolist()
