"""OpenAI's interface `/v1/responses`: a request's items as messages, and an answer as items.

Nothing is kept between requests: a conversation is sent whole. Source of names and events: what
OpenAI's Python client reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from edgewise.llm.requests import GenerationRequest, RequestError, read_chat
from edgewise.llm.tools import Call, CallStream, new_id, read_calls

__all__ = ["ItemResponse", "read_response"]

_REFUSED = (
    "background",
    "conversation",
    "include",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "top_logprobs",
)
_TEXTS = ("input_text", "output_text", "text")


def read_response(values: dict[str, Any]) -> GenerationRequest:
    """Raises RequestError."""
    for name in _REFUSED:
        if values.get(name):
            raise RequestError(f"[serve] {name} is not supported", parameter=name)
    messages = _messages(values.get("input"))
    if values.get("instructions"):
        messages.insert(0, {"role": "system", "content": values["instructions"]})
    names = ("temperature", "top_p", "stream", "model")
    given: dict[str, Any] = {name: values[name] for name in names if name in values}
    given |= {
        "messages": messages,
        "max_tokens": values.get("max_output_tokens"),
        "response_format": _format(values.get("text")),
        "tools": [_tool(one) for one in _list(values, "tools")],
        "tool_choice": _choice(values.get("tool_choice")),
    }
    return read_chat(given)


def _list(values: dict[str, Any], name: str) -> list[Any]:
    found = values.get(name) or []
    if not isinstance(found, list):
        raise RequestError(f"[serve] {name} must be a list", parameter=name)
    return found


def _messages(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise RequestError("[serve] input must be a text or a list of items", parameter="input")
    found: list[Any] = []
    for number, item in enumerate(given):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            found.append({"role": role, "content": _content(item.get("content"), number)})
        elif kind == "function_call":
            about = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": about}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            told = item.get("output")
            text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        elif kind != "reasoning":
            raise RequestError(
                f"[serve] item {number} must be a message, function_call or function_call_output; "
                f"got {str(kind)[:40]}",
                parameter="input",
            )
    return found


def _content(given: Any, number: int) -> Any:
    if not isinstance(given, list):
        return given
    found = []
    for part in given:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXTS:
            found.append({"type": "text", "text": part.get("text")})
        elif kind == "input_image":
            found.append({"type": "image_url", "image_url": part.get("image_url")})
        elif kind == "input_audio":
            found.append({"type": "input_audio", "input_audio": part.get("input_audio")})
        else:
            raise RequestError(
                f"[serve] item {number} must be of input_text, input_image and input_audio; got "
                f"{str(kind)[:40]}",
                parameter="input",
            )
    return found


def _format(given: Any) -> Any:
    """Of `text.format`, as a chat has it."""
    form = given.get("format") if isinstance(given, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {"schema": form.get("schema")}}
    return form


def _tool(given: Any) -> Any:
    if not isinstance(given, dict) or given.get("type") != "function":
        return given
    return {"type": "function", "function": {k: v for k, v in given.items() if k != "type"}}


def _choice(given: Any) -> Any:
    if isinstance(given, dict) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    return given


class ItemResponse:
    """One answer, whole or as events. asked: what it answers, read from `values`."""

    def __init__(self, model: str, values: dict[str, Any], asked: GenerationRequest) -> None:
        self._asked = asked
        self._output: list[dict[str, Any]] = []
        self._text = ""
        self._number = 0
        self._stream = CallStream(asked.tools)
        self._told = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": values.get("instructions"),
            "max_output_tokens": asked.max_tokens,
            "temperature": values.get("temperature", 1.0),
            "top_p": values.get("top_p", 1.0),
            "tools": values.get("tools") or [],
            "tool_choice": values.get("tool_choice") or "auto",
            "text": values.get("text") or {"format": {"type": "text"}},
            "metadata": values.get("metadata") or {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "error": None,
        }

    def whole(self, text: str, ended: str, usage: dict[str, int]) -> dict[str, Any]:
        """With all of its items. ended: "stop" or "length"; usage: tokens of both kinds."""
        said, calls = read_calls(text, self._asked.tools)
        if said or not calls:
            self._output.append(_message(new_id("msg"), said, "completed"))
        self._output += [_called(call, "completed") for call in calls]
        return self._response(ended, usage)

    def begin(self) -> Iterator[dict[str, Any]]:
        """The events before any text."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response(None, None))

    def parts(self, piece: str) -> Iterator[dict[str, Any]]:
        """The events of a piece of text."""
        yield from self._said(self._stream.feed(piece))

    def end(self, ended: str, usage: dict[str, int]) -> Iterator[dict[str, Any]]:
        """The events behind the last piece."""
        rest, calls = self._stream.rest()
        yield from self._said(rest, begins=not calls)
        if self._output:
            yield from self._done()
        for call in calls:
            item = _called(call, "in_progress")
            where = {"output_index": len(self._output), "item_id": item["id"]}
            yield self._event(
                "response.output_item.added",
                output_index=len(self._output),
                item={**item, "arguments": ""},
            )
            arguments = {"arguments": call.arguments, "name": call.name}
            yield self._event(
                "response.function_call_arguments.delta", **where, delta=call.arguments
            )
            yield self._event("response.function_call_arguments.done", **where, **arguments)
            item = {**item, "status": "completed"}
            yield self._event(
                "response.output_item.done", output_index=len(self._output), item=item
            )
            self._output.append(item)
        told = self._response(ended, usage)
        yield self._event(f"response.{told['status']}", response=told)

    def _said(self, text: str, *, begins: bool = False) -> Iterator[dict[str, Any]]:
        """Of text; begins: the message is there without any, too."""
        if not self._output and (text or begins):
            self._output.append(_message(new_id("msg"), None, "in_progress"))
            yield self._event("response.output_item.added", output_index=0, item=self._output[0])
            yield self._event("response.content_part.added", **self._where(), part=_part(""))
        if text:
            self._text += text
            yield self._event(
                "response.output_text.delta", **self._where(), delta=text, logprobs=[]
            )

    def _done(self) -> Iterator[dict[str, Any]]:
        where, text = self._where(), self._text
        yield self._event("response.output_text.done", **where, text=text, logprobs=[])
        yield self._event("response.content_part.done", **where, part=_part(text))
        self._output[0] = _message(self._output[0]["id"], text, "completed")
        yield self._event("response.output_item.done", output_index=0, item=self._output[0])

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._output[0]["id"], "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **values}

    def _response(self, ended: str | None, usage: dict[str, int] | None) -> dict[str, Any]:
        status = "in_progress" if ended is None else "completed"
        why = None
        if ended == "length":
            status, why = "incomplete", {"reason": "max_output_tokens"}
        counts = None
        if usage is not None:
            counts = {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sum(usage.values()),
            }
        told = {"status": status, "incomplete_details": why, "usage": counts}
        return {**self._told, **told, "output": list(self._output)}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(number: str, text: str | None, status: str) -> dict[str, Any]:
    parts: Sequence[dict[str, Any]] = [] if text is None else [_part(text)]
    return {
        "type": "message",
        "id": number,
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def _called(call: Call, status: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": new_id("fc"),
        "call_id": new_id("call"),
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    }
