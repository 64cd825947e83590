"""Responses of OpenAI's interface."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from edgewise.llm.logprobs import Logprob, of_chat, of_completion
from edgewise.llm.tools import Call, CallStream, Tool, read_calls, told

__all__ = ["ChatResponse", "CompletionResponse", "ResponseFormat", "error", "event", "usage_of"]


class ResponseFormat:
    """Of one answer, whole or in parts. model: its name."""

    kind, prefix = "", ""

    def __init__(self, model: str) -> None:
        self._model = model
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def head(self, is_part: bool) -> dict[str, Any]:
        """What every part begins with."""
        kind = f"{self.kind}.chunk" if is_part and self.prefix == "chatcmpl" else self.kind
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def first(self) -> dict[str, Any] | None:
        """The choice of a stream's first part, before any text."""
        return None

    def parts(
        self, text: str, ended: str | None, logprobs: Sequence[Logprob] | None = None
    ) -> list[dict[str, Any]]:
        """The choices of a stream's next parts. ended: why the text ends; None while it goes on.
        logprobs: of its tokens; None if nobody has asked."""
        raise NotImplementedError

    def choice(
        self, number: int, text: str, ended: str, logprobs: Sequence[Logprob] | None = None
    ) -> dict[str, Any]:
        """A choice of an answer that comes whole."""
        raise NotImplementedError


class ChatResponse(ResponseFormat):
    """Of `/v1/chat/completions`. tools: that the text may have calls of."""

    kind, prefix = "chat.completion", "chatcmpl"

    def __init__(self, model: str, tools: Sequence[Tool] = ()) -> None:
        super().__init__(model)
        self._tools = tools
        self._stream = CallStream(tools)
        self._untold: list[Logprob] = []

    def first(self) -> dict[str, Any]:
        """See `ResponseFormat`."""
        delta = {"role": "assistant", "content": ""}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}

    def parts(
        self, text: str, ended: str | None, logprobs: Sequence[Logprob] | None = None
    ) -> list[dict[str, Any]]:
        """See `ResponseFormat`."""
        calls: list[Call] = []
        self._untold += logprobs or []
        text = self._stream.feed(text)
        if ended is not None:
            rest, calls = self._stream.rest()
            text += rest
        deltas: list[dict[str, Any]] = [{"content": text}] if text else []
        if calls:
            indexed = [{"index": i, **told(call)} for i, call in enumerate(calls)]
            deltas.append({"tool_calls": indexed})
        found = [_part(delta, None) for delta in deltas]
        if ended is not None:
            found.append(_part({}, "tool_calls" if calls else ended))
        if found and self._untold:
            found[0]["logprobs"] = of_chat(self._untold)
            self._untold = []
        return found

    def choice(
        self, number: int, text: str, ended: str, logprobs: Sequence[Logprob] | None = None
    ) -> dict[str, Any]:
        """See `ResponseFormat`."""
        text, calls = read_calls(text, self._tools)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": [told(call) for call in calls]}
            ended = "tool_calls"
        about = None if logprobs is None else of_chat(logprobs)
        return {"index": number, "message": message, "logprobs": about, "finish_reason": ended}


def _part(delta: dict[str, Any], ended: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ended}


class CompletionResponse(ResponseFormat):
    """Of `/v1/completions`."""

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._offset = 0

    def parts(
        self, text: str, ended: str | None, logprobs: Sequence[Logprob] | None = None
    ) -> list[dict[str, Any]]:
        """See `ResponseFormat`."""
        about = None if logprobs is None else of_completion(logprobs, self._offset)
        self._offset += sum(len(one.text) for one in logprobs or ())
        return [{"index": 0, "text": text, "logprobs": about, "finish_reason": ended}]

    def choice(
        self, number: int, text: str, ended: str, logprobs: Sequence[Logprob] | None = None
    ) -> dict[str, Any]:
        """See `ResponseFormat`."""
        about = None if logprobs is None else of_completion(logprobs, 0)
        return {"index": number, "text": text, "logprobs": about, "finish_reason": ended}


def usage_of(tokens: dict[str, int]) -> dict[str, int]:
    """Tokens, with their sum."""
    return {**tokens, "total_tokens": sum(tokens.values())}


def event(values: dict[str, Any]) -> str:
    """One of a stream of server-sent events."""
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


def error(message: str, status: int, parameter: str | None = None) -> Response:
    """A refusal. status: of HTTP; parameter: what is wrong in the request."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    told = {"message": message, "type": kind, "param": parameter, "code": None}
    return JSONResponse({"error": told}, status_code=status)
