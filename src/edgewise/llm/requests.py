"""Requests of OpenAI's interface, read and checked. What is not supported is refused by name."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgewise.llm.sampling import Sampling
from edgewise.llm.tools import Tool

__all__ = ["GenerationRequest", "RequestError", "read_chat", "read_completion", "read_embeddings"]

_MOST_TEXTS, _MOST_CHOICES, _MOST_STOPS, _MOST_TOOLS = 256, 16, 16, 128
_MOST_LOGPROBS, _MOST_BIASES = 20, 1024
_LARGEST = 2.0**63
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RequestError(Exception):
    """A request that is not answered. status: of HTTP. parameter: what is wrong in it."""

    def __init__(self, message: str, status: int = 400, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status, self.parameter = status, parameter


@dataclass(frozen=True)
class GenerationRequest:
    """prompts: texts or tokens. count: texts for each. schema: of JSON that a text must be; {} for
    any. variables: for the chat template. tools: that it may call; must_call: those of which it
    must call one. logprobs: likeliest tokens that are told with each, beside how likely it was;
    None for neither. echo: a text begins with its prompt."""

    values: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[Any] = field(default_factory=list)
    max_tokens: int | None = None
    stop: list[str] = field(default_factory=list)
    count: int = 1
    stream: bool = False
    include_usage: bool = False
    schema: dict[str, Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    must_call: tuple[Tool, ...] = ()
    logprobs: int | None = None
    echo: bool = False

    def sampling(self, number: int = 0) -> Sampling:
        """Of the choice of that number: with a seed, each has one of its own."""
        values = self.values
        seed = _number(values, "seed", int, None)
        return Sampling(
            temperature=_number(values, "temperature", float, 1.0),
            top_k=_number(values, "top_k", int, None),
            top_p=_number(values, "top_p", float, None),
            min_p=_number(values, "min_p", float, None),
            seed=None if seed is None else abs(seed) + number,
            repetition_penalty=_number(values, "repetition_penalty", float, 1.0),
            presence_penalty=_number(values, "presence_penalty", float, 0.0),
            frequency_penalty=_number(values, "frequency_penalty", float, 0.0),
            logit_bias=_biases(values),
        )


def read_chat(values: dict[str, Any]) -> GenerationRequest:
    """Of `/v1/chat/completions`. Raises RequestError."""
    _refuse(values, ("audio", "functions"))
    messages = values.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("[serve] messages must be a list, at least one", parameter="messages")
    most = "max_completion_tokens" if values.get("max_completion_tokens") else "max_tokens"
    variables = dict(values.get("chat_template_kwargs") or {})
    tools, must_call = _tools(values)
    if tools:
        variables["tools"] = values["tools"]
    if must_call and values.get("response_format"):
        raise RequestError(
            "[serve] a text is a call or of response_format; got both", parameter="tool_choice"
        )
    return _checked(
        GenerationRequest(
            values,
            messages=[_message(one, number) for number, one in enumerate(messages)],
            max_tokens=_number(values, most, int, None),
            schema=_schema(values.get("response_format")),
            variables=variables,
            tools=tools,
            must_call=must_call,
            logprobs=_logprobs(values),
            **_common(values),
        )
    )


def read_completion(values: dict[str, Any]) -> GenerationRequest:
    """Of `/v1/completions`. Raises RequestError."""
    _refuse(values, ("suffix",))
    if values.get("best_of") not in (None, 1):
        raise RequestError("[serve] best_of must be 1", parameter="best_of")
    prompt = values.get("prompt")
    prompts = _texts(prompt, "prompt")
    asked = GenerationRequest(
        values,
        prompts=prompts,
        max_tokens=_number(values, "max_tokens", int, 16),
        logprobs=_most_logprobs(values, "logprobs"),
        echo=bool(values.get("echo")),
        schema=_schema(values.get("response_format")),
        **_common(values),
    )
    if asked.stream and len(prompts) > 1:
        raise RequestError("[serve] a stream must be of one prompt", parameter="prompt")
    return _checked(asked)


def read_embeddings(values: dict[str, Any]) -> tuple[list[str], Callable[[list[float]], Any]]:
    """Of `/v1/embeddings`: the texts, and how a vector is written. Raises RequestError."""
    texts = _texts(values.get("input"), "input")
    if not all(isinstance(one, str) for one in texts):
        raise RequestError("[serve] input must be text, not tokens", parameter="input")
    form = values.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise RequestError(
            f"[serve] encoding_format must be float or base64; got {form!r}",
            parameter="encoding_format",
        )
    if values.get("dimensions") is not None:
        raise RequestError("[serve] dimensions are the model's", parameter="dimensions")
    return texts, _base64 if form == "base64" else list


def _base64(vector: list[float]) -> str:
    """float32, the lowest byte first."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def _checked(asked: GenerationRequest) -> GenerationRequest:
    least = 0 if asked.echo else 1
    if asked.max_tokens is not None and asked.max_tokens < least:
        raise RequestError(
            f"[serve] max_tokens must be {least} or more; got {asked.max_tokens}",
            parameter="max_tokens",
        )
    if asked.stream and asked.count > 1:
        raise RequestError("[serve] a stream must be of one choice", parameter="n")
    try:
        asked.sampling()
    except ValueError as failure:
        raise RequestError(str(failure)) from None
    return asked


def _common(values: dict[str, Any]) -> dict[str, Any]:
    stop = values.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise RequestError("[serve] stop must be a text or a list of texts", parameter="stop")
    count = _number(values, "n", int, 1)
    for name, found, most in (("stop", len(stops), _MOST_STOPS), ("n", count, _MOST_CHOICES)):
        if found > most:
            raise RequestError(
                f"[serve] {name} must be at most {most}; got {found}", parameter=name
            )
    if count < 1:
        raise RequestError(f"[serve] n must be 1 or more; got {count}", parameter="n")
    options = values.get("stream_options") or {}
    return {
        "stop": stops,
        "count": count,
        "stream": bool(values.get("stream")),
        "include_usage": isinstance(options, dict) and bool(options.get("include_usage")),
    }


def _logprobs(values: dict[str, Any]) -> int | None:
    """Of a chat: whether, and how many others."""
    most = _most_logprobs(values, "top_logprobs")
    wanted = values.get("logprobs")
    if wanted not in (None, True, False) or (most and not wanted):
        raise RequestError(
            "[serve] logprobs must be true or false, and true with top_logprobs",
            parameter="logprobs",
        )
    return (most or 0) if wanted else None


def _most_logprobs(values: dict[str, Any], name: str) -> int | None:
    found: int | None = _number(values, name, int, None)
    if found is not None and not 0 <= found <= _MOST_LOGPROBS:
        raise RequestError(
            f"[serve] {name} must be from 0 to {_MOST_LOGPROBS}; got {found}", parameter=name
        )
    return found


def _tools(values: dict[str, Any]) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """Those that a model may call, and those of which it must call one."""
    given, choice = values.get("tools") or [], values.get("tool_choice") or "auto"
    if not isinstance(given, list) or len(given) > _MOST_TOOLS:
        raise RequestError(
            f"[serve] tools must be a list, at most {_MOST_TOOLS}", parameter="tools"
        )
    found = tuple(_tool(one, number) for number, one in enumerate(given))
    if choice == "none" or not found:
        if choice in ("none", "auto"):
            return (), ()
        raise RequestError("[serve] tool_choice needs tools", parameter="tool_choice")
    if choice in ("auto", "required"):
        return found, found if choice == "required" else ()
    about = choice.get("function") if isinstance(choice, dict) else None
    name = about.get("name") if isinstance(about, dict) else None
    chosen = tuple(tool for tool in found if tool.name == name)
    if not chosen:
        raise RequestError(
            f"[serve] tool_choice must be none, auto, required, or a function of tools; got "
            f"{json.dumps(choice)[:100]}",
            parameter="tool_choice",
        )
    return found, chosen


def _tool(given: Any, number: int) -> Tool:
    about = given.get("function") if isinstance(given, dict) else None
    name = about.get("name") if isinstance(about, dict) else None
    parameters = about.get("parameters") if isinstance(about, dict) else None
    if (
        not (isinstance(given, dict) and given.get("type") == "function")
        or not (isinstance(name, str) and _TOOL_NAME.fullmatch(name))
        or not (parameters is None or isinstance(parameters, dict))
    ):
        raise RequestError(
            f"[serve] tool {number} must be a function with a name of 1 to 64 letters, digits, _ "
            f"and -, and a JSON schema of its parameters; got {json.dumps(given)[:100]}",
            parameter="tools",
        )
    return Tool(name, parameters)


def _with_arguments(calls: Any, number: int) -> list[Any]:
    """Calls of a message, with arguments as objects, which templates write as JSON."""
    try:
        found = [{**one, "function": dict(one["function"])} for one in calls]
        for one in found:
            if isinstance(arguments := one["function"].get("arguments"), str):
                one["function"]["arguments"] = json.loads(arguments or "{}")
        return found
    except (KeyError, TypeError, ValueError):
        raise RequestError(
            f"[serve] tool_calls of message {number} must be functions with arguments in JSON",
            parameter="messages",
        ) from None


def _message(message: Any, number: int) -> dict[str, Any]:
    """With its content as text, where parts of text are joined, or as parts with others."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"[serve] message {number} must have a role", parameter="messages")
    if message.get("tool_calls"):
        calls = _with_arguments(message["tool_calls"], number)
        message = {**message, "content": message.get("content") or "", "tool_calls": calls}
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part, number) for part in content]
        if all(part["type"] == "text" for part in parts):
            return {**message, "content": "".join(part["text"] for part in parts)}
        return {**message, "content": parts}
    if content is not None and not isinstance(content, str):
        raise RequestError(f"[serve] message {number} must have text", parameter="messages")
    return dict(message)


def _part(part: Any, number: int) -> dict[str, Any]:
    """As `edgewise.llm.chat` takes them. An image comes in its request, as a data: URL, a sound in
    base64."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in (None, "text") and isinstance(part, dict) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "image_url":
        return {"type": "image", "image": _image_in(part.get("image_url"))}
    if kind == "input_audio":
        return {"type": "audio", "audio": _sound_in(part.get("input_audio"))}
    raise RequestError(
        f"[serve] message {number} must be of text, image_url and input_audio; got another kind of "
        f"part",
        parameter="messages",
    )


def _image_in(given: Any) -> bytes:
    url = given.get("url") if isinstance(given, dict) else given
    head, _, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (head.startswith("data:image/") and head.endswith(";base64")):
        raise RequestError(
            f"[serve] an image must be in the request, as data:image/png;base64,...; got "
            f"{str(url)[:60]!r}",
            parameter="messages",
        )
    return _decoded(data, "an image")


def _sound_in(given: Any) -> bytes:
    """Whatever its format is called: its beginning tells."""
    data = given.get("data") if isinstance(given, dict) else None
    if not isinstance(data, str) or not data:
        raise RequestError(
            f"[serve] a sound must be in the request, as data in base64; got {str(data)[:60]!r}",
            parameter="messages",
        )
    return _decoded(data, "a sound")


def _decoded(data: str, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as failure:
        raise RequestError(
            f"[serve] {what} must be base64; got {failure}", parameter="messages"
        ) from None


def _texts(given: Any, name: str) -> list[Any]:
    """A text, tokens, or a list of either, as a list."""

    def are_tokens(one: Any) -> bool:
        return (
            isinstance(one, list)
            and bool(one)
            and all(isinstance(t, int) and not isinstance(t, bool) for t in one)
        )

    found = [given] if isinstance(given, str) or are_tokens(given) else given
    is_list = isinstance(found, list) and 1 <= len(found) <= _MOST_TEXTS
    if not is_list or not all(isinstance(one, str) or are_tokens(one) for one in found):
        raise RequestError(
            f"[serve] {name} must be a text, tokens, or 1 to {_MOST_TEXTS} of either",
            parameter=name,
        )
    return list(found)


def _schema(given: Any) -> dict[str, Any] | None:
    """Of `response_format`."""
    kind = given.get("type") if isinstance(given, dict) else None
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        about = given.get("json_schema")
        schema = about.get("schema") if isinstance(about, dict) else None
        if isinstance(schema, dict):
            return schema
    raise RequestError(
        f"[serve] response_format must be of type text, json_object or json_schema with a schema; "
        f"got {json.dumps(given)[:100]}",
        parameter="response_format",
    )


def _biases(values: dict[str, Any]) -> dict[int, float]:
    """Of `logit_bias`, whose tokens JSON has as texts."""
    given = values.get("logit_bias") or {}
    if not isinstance(given, dict) or len(given) > _MOST_BIASES:
        raise RequestError(
            f"[serve] logit_bias must be an object, of at most {_MOST_BIASES} tokens",
            parameter="logit_bias",
        )
    found = {}
    for token in given:
        bias = _number(given, token, float, 0.0)
        if not (token.isdecimal() and len(token) < 10) or abs(bias) > 100:
            raise RequestError(
                f"[serve] logit_bias must be from -100 to 100, of tokens; got {bias} of {token!r}",
                parameter="logit_bias",
            )
        found[int(token)] = bias
    return found


def _refuse(values: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if values.get(name):
            raise RequestError(f"[serve] {name} is not supported", parameter=name)


def _number(values: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    found = values.get(name)
    if found is None:
        return default
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not is_number or not abs(found) < _LARGEST:  # nor NaN
        raise RequestError(f"[serve] {name} must be a number; got {found!r}", parameter=name)
    if kind is int and found != int(found):
        raise RequestError(f"[serve] {name} must be a whole number; got {found}", parameter=name)
    return kind(found)
