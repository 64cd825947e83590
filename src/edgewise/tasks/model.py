"""A program with what goes before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.runtime._model import Model, load
from edgewise.runtime.errors import InvalidArgumentError, InvalidProgramError
from edgewise.tasks import sounds, texts
from edgewise.tasks.description import Description, read_description

if TYPE_CHECKING:
    from edgewise.llm.text import Encoded
    from edgewise.runtime import Program

FILTERS = "mel_filters.npy"
_MOST = 5
"""Classes, or fillings, of an answer."""


class Preparing:
    """What makes a program's inputs of texts, pictures or sounds.

    folder: where the processor's files lie.
    """

    def __init__(self, description: Description, folder: Path) -> None:
        self.description = description
        self.tokenizer: Any = None
        self._filters: Any = None
        if description.kind == "text":
            from edgewise.llm.text import load_tokenizer

            self.tokenizer = load_tokenizer(folder)
        elif description.kind == "spectrogram":
            self._filters = np.load(folder / FILTERS, allow_pickle=False)

    def __call__(self, value: Any) -> dict[str, Any]:
        """The program's arguments by name."""
        return self.prepared(value)[0]

    def prepared(self, value: Any) -> tuple[dict[str, Any], Any]:
        """The program's arguments, and what the answer is made with: a text's tokens, the number
        of a sound's samples."""
        about = self.description
        if about.kind == "text":
            text = texts.encoded(self.tokenizer, value)
            return texts.arrays(about, text), text
        if about.kind == "picture":
            from edgewise.pictures import array

            return {about.inputs[0]: array(value, about.picture)}, None
        sound = sounds.cut(sounds.samples(value, about.rate), about.length)
        if about.kind == "sound":
            made = sounds.waveform(sound, about.length, about.sound)
        else:
            made = sounds.log_mel(sound, about.length, about.sound, self._filters)
        return {about.inputs[0]: made}, len(sound)


class TaskModel(Model):
    """A model that takes texts, pictures or sounds. `run("forward", ...)` takes arrays."""

    def __init__(self, program: Program, default: str, preparing: Preparing) -> None:
        super().__init__(program, default)
        self.description = preparing.description
        self._preparing = preparing

    @property
    def task(self) -> str:
        """The task's name."""
        return self.description.task

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.description.labels

    def prepare(self, value: Any) -> dict[str, Any]:
        """The arrays that the program takes for a text, a picture or a sound."""
        return self._preparing(value)

    def new_session(self) -> TaskModel:
        """The same program with state of its own, at its first values."""
        return TaskModel(self._program, self._default, self._preparing)

    def __call__(self, value: Any) -> Any:
        """The answer, or a list of answers for a list.

        value: a text (or a tuple of two), a picture (a path, a `PIL.Image`, an array of uint8) or a
        sound (a .wav file, samples). Classifications are lists of dicts of "label" and "score", the
        best first; features an array; speech a dict with its "text".
        """
        if isinstance(value, list):
            return [self(one) for one in value]
        inputs, rest = self._preparing.prepared(value)
        try:
            output = super().__call__(**inputs)
        except InvalidArgumentError as error:
            raise InvalidProgramError(
                f"[call] the program must take what its folder says; {error}; try to compile "
                f"the folder again"
            ) from error
        return self._answer(np.asarray(output)[0].astype(np.float32), rest)

    def _answer(self, output: Any, rest: Any) -> Any:
        task = self.task
        if task in ("text-classification", "image-classification", "audio-classification"):
            return self._classes(output)
        if task == "token-classification":
            return self._words(output, rest)
        if task == "fill-mask":
            return self._fillings(output, rest)
        if task == "automatic-speech-recognition" and self.labels:
            return {"text": self._speech(output, rest)}
        return self._features(output, rest)

    def _classes(self, logits: Any) -> list[dict[str, Any]]:
        scores = _scores(logits, self.description.scores)
        best = np.argsort(-scores, kind="stable")[:_MOST]
        return [{"label": self._label(i), "score": float(scores[i])} for i in best]

    def _label(self, number: int) -> str:
        return self.labels[number] if number < len(self.labels) else f"LABEL_{number}"

    def _words(self, logits: Any, text: Encoded) -> list[dict[str, Any]]:
        first = texts.first_token(self.description, text)
        found = []
        for index, (start, end) in enumerate(text.offsets):
            if text.special_tokens_mask[index]:
                continue
            scores = _scores(logits[first + index], "softmax")
            best = int(scores.argmax())
            if self._label(best) != "O":
                found.append(
                    {
                        "entity": self._label(best),
                        "score": float(scores[best]),
                        "index": index,
                        "word": text.pieces[index],
                        "start": start,
                        "end": end,
                    }
                )
        return found

    def _fillings(self, logits: Any, text: Encoded) -> list[dict[str, Any]]:
        tokenizer, mask = self._preparing.tokenizer, self.description.mask
        masked = [i for i, token in enumerate(text.tokens) if token == mask]
        if len(masked) != 1:
            word = tokenizer.decode([mask]) or "the mask token"
            raise InvalidArgumentError(
                f"[call] a text must have one mask to fill in; got {len(masked)}; try {word}"
            )
        scores = _scores(logits[texts.first_token(self.description, text) + masked[0]], "softmax")
        found = []
        for token in np.argsort(-scores, kind="stable")[:_MOST]:
            filled = [int(token) if i == masked[0] else one for i, one in enumerate(text.tokens)]
            found.append(
                {
                    "score": float(scores[token]),
                    "token": int(token),
                    "token_str": tokenizer.decode([int(token)]),
                    "sequence": tokenizer.decode(filled),
                }
            )
        return found

    def _speech(self, logits: Any, count: int) -> str:
        """The likeliest character of each frame, repetitions and the blank left out."""
        frames = sounds.frames_of(count, self.description.steps) or len(logits)
        best = logits[:frames].argmax(axis=1)
        kept = best[np.insert(best[1:] != best[:-1], 0, True)] if len(best) else best
        told = "".join(self._label(int(i)) for i in kept if i != self.description.pad)
        return told.replace("|", " ").strip()

    def _features(self, values: Any, rest: Any) -> Any:
        if self.description.kind != "text":
            return values
        first = texts.first_token(self.description, rest)
        values = values[first : first + len(rest.tokens)]
        pooling = self.description.pooling
        if pooling:
            values = {
                "mean": lambda: values.mean(axis=0),
                "cls": lambda: values[0],
                "max": lambda: values.max(axis=0),
            }[pooling]()
        if self.description.normalized:
            values = values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-12)
        return values

    def __repr__(self) -> str:
        return f"<edgewise TaskModel, {self.task}>"


def _scores(logits: Any, how: str) -> Any:
    if how == "sigmoid":
        return 1 / (1 + np.exp(-logits.astype(np.float64)))
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def open_task(folder: Path, **options: Any) -> TaskModel:
    """The folder's program and what goes with it. options: of `edgewise.load`.

    Raises FileNotFoundError, InvalidProgramError, and as `edgewise.load`.
    """
    description = read_description(folder)
    programs = sorted(folder.glob("*.pte"))
    if len(programs) != 1:
        named = [path for path in programs if path.name == "model.pte"]
        if len(named) != 1:
            raise FileNotFoundError(
                f"[load] a folder must hold one program, or model.pte; got "
                f"{', '.join(p.name for p in programs) or 'none'} in {folder}"
            )
        programs = named
    model = load(programs[0], **options)
    return TaskModel(model._program, model._default, Preparing(description, folder))
