"""The file beside a program that says what goes in and what comes out: `edgewise.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from edgewise.files import read_json
from edgewise.runtime.errors import InvalidProgramError

NAME = "edgewise.json"
_FORMAT, _VERSION = "edgewise-task", 1

TASKS = (
    "audio-classification",
    "automatic-speech-recognition",
    "feature-extraction",
    "fill-mask",
    "image-classification",
    "text-classification",
    "token-classification",
)
KINDS = ("text", "picture", "sound", "spectrogram")


@dataclass(frozen=True)
class Description:
    """What a task model needs to know besides its program and its processor's files."""

    task: str
    kind: str
    """What goes in: one of KINDS."""
    inputs: tuple[str, ...]
    """Names of the program's arguments: `input_ids`, `pixel_values`, ..."""
    length: int = 0
    """Tokens of a text, samples of a sound."""
    labels: tuple[str, ...] = ()
    """By class; of speech the characters, by number."""
    scores: str = "softmax"
    """How classes get their scores: "softmax", or "sigmoid" where several may hold."""
    pad: int = 0
    """The token that fills a text up; of speech the one between characters."""
    pads_left: bool = False
    mask: int = -1
    """The token to be filled in."""
    pooling: str = ""
    """How tokens' features become a text's: "mean", "cls" or "max"; "" leaves them apart."""
    normalized: bool = False
    """Whether a text's features are made one long."""
    rate: int = 0
    """Samples of a sound in a second."""
    steps: tuple[tuple[int, int], ...] = ()
    """Kernels and strides of the convolutions that make frames of a sound."""
    picture: Mapping[str, Any] = field(default_factory=dict)
    """As in preprocessor_config.json."""
    sound: Mapping[str, Any] = field(default_factory=dict)
    """As in preprocessor_config.json."""

    def to_bytes(self) -> bytes:
        """The file's contents."""
        found = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        return json.dumps(found, indent=1).encode() + b"\n"


def read_description(folder: Path) -> Description:
    """What the folder's file says. FileNotFoundError without one; InvalidProgramError if it is
    something else."""
    path = folder / NAME
    try:
        found = read_json(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"[load] a folder must hold {NAME}, as program.save(folder) writes it for a task; got "
            f"{folder}; try the .pte file in it"
        ) from None
    except ValueError as error:
        raise _invalid(path, "JSON", str(error)) from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise _invalid(path, f"of the format {_FORMAT!r}", repr(found)[:60])
    if found.get("version") != _VERSION:
        raise _invalid(path, f"of version {_VERSION}", repr(found.get("version")))
    values = {}
    for one in fields(Description):
        value = found.get(one.name, _DEFAULTS.get(one.name))
        if not _fits(one.name, value):
            raise _invalid(path, f"a description with a {one.name} that fits", repr(value)[:60])
        values[one.name] = _frozen(value)
    made = Description(**values)
    if made.task not in TASKS or made.kind not in KINDS or not made.inputs:
        raise _invalid(path, f"of a task of {', '.join(TASKS)}", f"{made.task!r}, {made.kind!r}")
    return made


_DEFAULTS: dict[str, Any] = {
    "inputs": [],
    "length": 0,
    "labels": [],
    "scores": "softmax",
    "pad": 0,
    "pads_left": False,
    "mask": -1,
    "pooling": "",
    "normalized": False,
    "rate": 0,
    "steps": [],
    "picture": {},
    "sound": {},
}


def _fits(name: str, value: Any) -> bool:
    if name in ("inputs", "labels"):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if name == "steps":
        return isinstance(value, list) and all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(type(one) is int and one > 0 for one in pair)
            for pair in value
        )
    if name in ("task", "kind"):
        return isinstance(value, str)
    return type(value) is type(_DEFAULTS[name])


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(one) for one in value)
    return value


def _invalid(path: Path, rule: str, got: str) -> InvalidProgramError:
    return InvalidProgramError(
        f"[load] {path} must be {rule}; got {got}; try program.save(folder) again"
    )
