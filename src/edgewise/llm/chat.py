"""Conversations as prompts, by the chat template that comes with a model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewise.files import read_json
from edgewise.llm.images import ImageEncoder, ImagePrompt
from edgewise.llm.text import Tokenizer

__all__ = ["Chat", "tokenizer_folder"]

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
_MOST_BYTES = 1 << 20
"""Of a template."""

Message = Mapping[str, Any]
"""`role` ("system", "user", "assistant", "tool") and `content`: a text, or a list of parts, each
{"type": "text", "text": ...} or {"type": "image", "image": ...}."""


class Chat:
    """Makes prompts of messages.

    folder: that of the tokenizer, with `chat_template.jinja`, or with `tokenizer_config.json` that
    has a `chat_template`. images: the generator's, for a model that sees. FileNotFoundError if
    there is no template; ValueError if a file is not as it should be.
    """

    def __init__(
        self, tokenizer: Tokenizer, folder: str | Path, images: ImageEncoder | None = None
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
        self._images = images
        self._image_prompt = None if images is None else ImagePrompt.load(folder)
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

        ValueError as of `text`, or if an image cannot be read, or the model sees none.
        """
        images = [part["image"] for message in messages for part in _images_in(message)]
        how = self._image_prompt
        if images and (how is None or self._images is None):
            raise ValueError(
                "[chat] images need a model that sees; got one of texts alone; "
                "try edgewise llm export --images"
            )
        if how is None or self._images is None:
            return self._tokenizer.encode(self.text(messages, **variables), special=False)
        text = self.text([_in_parts(message) for message in messages], **variables)
        if text.count(how.placeholder) != len(images):
            raise ValueError(
                f"[chat] a prompt must have {how.placeholder!r} once for each image; got "
                f"{text.count(how.placeholder)} for {len(images)} images; try messages without it"
            )
        before, *behind = text.split(how.placeholder)
        prepared = [self._images.prepared(image, how) for image in images]
        parts = [word + more for (word, _), more in zip(prepared, behind, strict=True)]
        tokens = self._tokenizer.encode("".join([before, *parts]), special=False)
        at = [index for index, token in enumerate(tokens) if token == how.token]
        seen = [token for _, of_image in prepared for token in of_image]
        if len(at) != len(seen):
            raise ValueError(
                f"[chat] a prompt must have {len(seen)} tokens {how.token} for {len(images)} "
                f"images; got {len(at)}; try messages without what stands for them"
            )
        for index, token in zip(at, seen, strict=True):
            tokens[index] = token
        return tokens


def _images_in(message: Message) -> list[Mapping[str, Any]]:
    """Parts {"type": "image", "image": a path, a file's bytes, Pillow's image or an array}."""
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, Mapping) and part.get("type") == "image"]


def _in_parts(message: Message) -> Message:
    """With its content as a list, as templates of models that see have it, without pixels."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content}]}
    if not isinstance(content, list):
        return message
    return {**message, "content": [{k: v for k, v in p.items() if k != "image"} for p in content]}


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
