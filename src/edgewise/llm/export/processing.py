"""A checkpoint's own processor, which puts images and sounds into prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from edgewise.files import read_json

__all__ = [
    "BEFORE",
    "BEHIND",
    "TEXTS",
    "RecordingTokenizer",
    "first_line",
    "media_token",
    "prepared",
    "processor_name",
    "recording_processor",
    "text_between",
]

BEFORE, BEHIND = "See ", " here"
"""Of a prompt with an image or a sound between them."""

TEXTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""What a processor makes of a prompt's text."""


def recording_processor(folder: Path, kind: str) -> Any:
    """The checkpoint's, whose tokenizer tells its last text (`text_between`). kind: "images" or
    "audio"; without the parts for others, which want packages of their own. ValueError if there is
    none, or packages are missing."""
    import transformers
    from transformers.models.auto import processing_auto

    about = _about(folder)
    by_type: Any = processing_auto.PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]
    named = about.get("processor_class") or by_type.get(about["model_type"])
    known = getattr(transformers, str(named), None)
    if known is None:
        raise ValueError(
            f"[{kind}] a checkpoint must come with its processor; got none in {folder}; "
            f"try without --{kind}"
        )
    part = {"images": "image_processor", "audio": "feature_extractor"}[kind]
    names = known.get_attributes()
    wanted = [name for name in names if name in (part, "tokenizer")]

    class Part(known):  # type: ignore[misc, valid-type]
        @classmethod
        def get_attributes(cls) -> list[str]:
            return wanted

    class Whole(known):  # type: ignore[misc, valid-type]
        @classmethod
        def _get_arguments_from_pretrained(cls, *args: Any, **kwargs: Any) -> list[Any]:
            found = Part._get_arguments_from_pretrained(*args, **kwargs)
            loaded = dict(zip(wanted, found, strict=True))
            return [loaded.get(name) for name in names]

        def check_argument_for_proper_class(self, name: str, value: Any) -> Any:
            return None if value is None else super().check_argument_for_proper_class(name, value)

    try:
        made = Whole.from_pretrained(folder, local_files_only=True)
    except (ImportError, KeyError, OSError, TypeError, ValueError) as failure:
        raise ValueError(
            f"[{kind}] a checkpoint must come with its processor, and packages that it needs; got "
            f"{known.__name__} of {folder}: {first_line(failure).rstrip('.')}; try installing "
            f"what is missing, or without --{kind}"
        ) from failure
    made.tokenizer = RecordingTokenizer(made.tokenizer)
    return made


def prepared(processor: Any, kind: str, placeholder: str, **given: Any) -> dict[str, torch.Tensor]:
    """What it makes of a prompt with a placeholder, and of what else is given. ValueError if it
    does not take them."""
    text = BEFORE + placeholder + BEHIND
    try:
        made = processor(text=[text], return_tensors="pt", **given)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as failure:
        thing = {"images": "picture", "audio": "sound"}[kind]
        raise ValueError(
            f"[{kind}] the model's processor must take a text with {placeholder!r} and a {thing}; "
            f"got {processor_name(processor)}: {first_line(failure)}; try without --{kind}"
        ) from failure
    return {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}


def text_between(processor: Any, kind: str) -> str:
    """What the processor's last prompt has between BEFORE and BEHIND. ValueError if it changed
    more."""
    whole: str = processor.tokenizer.text
    text = whole.removeprefix(BEFORE).removesuffix(BEHIND)
    if BEFORE + text + BEHIND != whole:
        what = {"images": "an image", "audio": "a sound"}[kind]
        raise ValueError(
            f"[{kind}] a processor must put {what} into a text, and no more; got "
            f"{whole[:80]!r} of {processor_name(processor)}"
        )
    return text


def media_token(folder: Path, medium: str) -> int:
    """The token that vectors take the place of. medium: "image" or "audio". ValueError if the
    model's configuration does not tell."""
    import transformers

    auto: Any = transformers.AutoConfig
    config = auto.from_pretrained(folder, local_files_only=True)
    for name in (f"{medium}_token_id", f"{medium}_token_index"):
        if isinstance(token := getattr(config, name, None), int):
            return token
    raise ValueError(
        f"[{medium}] a model's configuration must tell {medium}_token_id; got "
        f"{type(config).__name__}"
    )


def processor_name(processor: Any) -> str:
    """Of its class in the library."""
    return type(processor).__mro__[1].__name__


def first_line(failure: Exception) -> str:
    """Of its message."""
    return next((line for line in str(failure).splitlines() if line.strip()), repr(failure))


def _about(folder: Path) -> dict[str, Any]:
    """What the folder's files say of the model and its processor."""
    found: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "processor_config.json", "config.json"):
        if (folder / name).is_file():
            values = read_json((folder / name).read_bytes())
            found |= values if isinstance(values, dict) else {}
    return found


class RecordingTokenizer:
    """A tokenizer that remembers its last text: a prompt with what stands for an image or sound."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.text = ""

    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        """As the tokenizer."""
        self.text = text[0] if isinstance(text, list) else text
        return self._tokenizer(text, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)
