"""Conversations as prompts, by the chat template that comes with a model's tokenizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgewise.files import read_json
from edgewise.llm.audio import AudioPrompt
from edgewise.llm.images import ImagePrompt
from edgewise.llm.media import Media
from edgewise.llm.text import Tokenizer

__all__ = ["Chat", "tokenizer_folder"]

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
_MOST_BYTES = 1 << 20
"""Of a template."""

Message = Mapping[str, Any]
"""`role` ("system", "user", "assistant", "tool") and `content`: a text, or a list of parts, each
{"type": "text", "text": ...}, {"type": "image", "image": ...} or {"type": "audio", "audio":
...}."""


class Chat:
    """Makes prompts of messages.

    folder: that of the tokenizer, with `chat_template.jinja`, or with `tokenizer_config.json` that
    has a `chat_template`. media: the generator's, for a model that sees or hears.
    FileNotFoundError if there is no template; ValueError if a file is not as it should be.
    """

    def __init__(
        self, tokenizer: Tokenizer, folder: str | Path, media: Media | None = None
    ) -> None:
        self._tokenizer = tokenizer
        folder = Path(folder)
        folder = folder if folder.is_dir() else folder.parent
        config = _config(folder / "tokenizer_config.json")
        self.template = _template(folder, config)
        """That makes prompts, in Jinja."""
        self._special = {name: _text(config[name]) for name in _SPECIAL if config.get(name)}
        ends = self._special.get("eos_token")
        end = tokenizer.token_to_id(ends) if ends else None
        self._kinds = [] if media is None else _kinds_of(media, folder)
        self.eos_ids = frozenset([] if end is None else [end])
        """Tokens that end what the model says, beside those of the model's file."""

    def text(self, messages: Sequence[Message], **variables: Any) -> str:
        """What the model reads. variables: more for the template (`tools`, `enable_thinking`).

        ValueError if a message is none, or the template refuses them.
        """
        for number, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ValueError(f"[chat] a message must have a role; got {message!r} at {number}")
        if not messages:
            raise ValueError("[chat] there must be a message; got none")
        return self._tokenizer.render(
            self.template,
            {
                "tools": None,
                "documents": None,
                **self._special,
                **variables,
                "messages": [dict(message) for message in messages],
                "add_generation_prompt": True,
            },
        )

    def prompt(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """Its tokens. The template writes what begins a text.

        ValueError as of `text`, or if an image or a sound cannot be read, or the model takes none.
        """
        kinds = {kind.name: kind for kind in self._kinds}
        given = [part for message in messages for part in _others_in(message)]
        for part in given:
            if part["type"] not in part:
                raise ValueError(
                    f"[chat] a part of {part['type']} must have {part['type']!r}; got {list(part)}"
                )
            if part["type"] not in kinds:
                what, verb, option = _ASKED[part["type"]]
                raise ValueError(
                    f"[chat] {what} need a model that {verb}; got one that does not; try edgewise "
                    f"llm export {option}"
                )
        if not kinds:
            return self._tokenizer.encode(self.text(messages, **variables), special=False)
        audio = _audio_type(self.template)
        text = self.text([_in_parts(message, audio) for message in messages], **variables)
        for kind in self._kinds:
            count = sum(part["type"] == kind.name for part in given)
            if text.count(kind.placeholder) != count:
                raise ValueError(
                    f"[chat] a prompt must have {kind.placeholder!r} once for each {kind.name}; "
                    f"got {text.count(kind.placeholder)} for {count}; try messages without it"
                )
        return self._filled(text, given)

    def _filled(self, text: str, given: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens of a text that has a placeholder for each of the parts."""
        queues = {
            kind.name: iter([kind.prepare(p[kind.name]) for p in given if p["type"] == kind.name])
            for kind in self._kinds
        }
        by_placeholder = {kind.placeholder: kind for kind in self._kinds}
        numbers: dict[str, list[int]] = {name: [] for name in queues}

        def fill(found: re.Match[str]) -> str:
            name = by_placeholder[found.group()].name
            words, tokens = next(queues[name])
            numbers[name] += tokens
            return words

        anything = "|".join(re.escape(placeholder) for placeholder in by_placeholder)
        tokens = self._tokenizer.encode(re.sub(anything, fill, text), special=False)
        for kind in self._kinds:
            at = [index for index, token in enumerate(tokens) if token == kind.token]
            wanted = numbers[kind.name]
            if len(at) != len(wanted):
                raise ValueError(
                    f"[chat] a prompt must have {len(wanted)} tokens {kind.token} for its "
                    f"parts of {kind.name}; got {len(at)}; try messages without what stands for "
                    f"them"
                )
            for index, number in zip(at, wanted, strict=True):
                tokens[index] = number
        return tokens


_ASKED = {
    "image": ("images", "sees", "--images"),
    "audio": ("sounds", "hears", "--audio"),
}


@dataclass(frozen=True)
class _Kind:
    """Of parts beside texts: what a template writes for one, the token that stands for a vector,
    and what makes words and tokens of it."""

    name: str
    placeholder: str
    token: int
    prepare: Callable[[Any], tuple[str, list[int]]]


def _kinds_of(media: Media, folder: Path) -> list[_Kind]:
    found = []
    images, audio = media.images, media.audio
    if images is not None and (how := ImagePrompt.load(folder)) is not None:
        see = partial(images.prepared, how=how)
        found.append(_Kind("image", how.placeholder, how.token, see))
    if audio is not None and (heard := AudioPrompt.load(folder)) is not None:
        hear = partial(audio.prepared, how=heard)
        found.append(_Kind("audio", heard.placeholder, heard.token, hear))
    return found


def _others_in(message: Message) -> list[Mapping[str, Any]]:
    """Parts {"type": "image", "image": a path, a file's bytes, Pillow's image or an array} and
    {"type": "audio", "audio": a path, a file's bytes or samples}."""
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, Mapping) and part.get("type") in _ASKED]


def _audio_type(template: str) -> str:
    """What a template calls a part with a sound: Mistral's have OpenAI's name."""
    is_openai = "input_audio" in template and not re.search(r"""['"]audio['"]""", template)
    return "input_audio" if is_openai else "audio"


def _in_parts(message: Message, audio: str) -> Message:
    """With its content as a list, as templates of models that see have it, without pixels and
    samples. audio: the type of a part with a sound."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content}]}
    if not isinstance(content, list):
        return message
    parts = [{k: v for k, v in part.items() if k not in _ASKED} for part in content]
    parts = [{**p, "type": audio} if p.get("type") == "audio" else p for p in parts]
    return {**message, "content": parts}


def tokenizer_folder(model: str | Path) -> Path | None:
    """Where `edgewise llm export` puts what the model's tokenizer needs: beside the file; None if
    there is none."""
    folder = Path(model).with_suffix(".tokenizer")
    return folder if folder.is_dir() else None


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = read_json(path.read_bytes())
    except ValueError as failure:
        raise ValueError(f"[chat] must be JSON; got {path}: {failure}") from None
    if not isinstance(values, dict):
        raise ValueError(f"[chat] must be values by name; got {type(values).__name__} in {path}")
    return dict(values)


def _template(folder: Path, config: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    found = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise FileNotFoundError(
            f"[chat] a tokenizer must come with a chat template (chat_template.jinja, or "
            f"chat_template in tokenizer_config.json); got none in {folder}; try edgewise llm run "
            f"for models that only continue a text"
        )
    if len(found.encode()) > _MOST_BYTES:
        raise ValueError(f"[chat] a template must have at most {_MOST_BYTES} bytes; got more")
    return found


def _text(token: Any) -> str:
    """Of a special token, which may be written as an object."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)
