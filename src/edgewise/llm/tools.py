"""Functions that a model may call: how calls stand in its text, and in OpenAI's interface.

A model writes calls as its chat template taught it. Known are JSON between `<tool_call>` and
`</tool_call>` (Qwen, Hermes, SmolLM3, Granite 4), the same with `<function=name>` and
`<parameter=name>` (Qwen3-Coder, Qwen3.5), and a text that is JSON as a whole, one call or a list
of them, behind a mark or none (Llama 3, Mistral, Phi-4, Granite 3).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Call", "CallStream", "Tool", "grammar_of", "new_id", "read_calls", "told"]

_BEGIN, _END = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(rf"{_BEGIN}(.*?)(?:{_END}|\Z)", re.S)
_FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.S)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.S)
_NAMED = re.compile(r"([\w-]+)\s*(?:\[ARGS\])?\s*(?=\{)")
"""Mistral's: a name, then its arguments."""
_MARKS = re.compile(
    r"<\|python_tag\|>|\[TOOL_CALLS\]|<\|/?tool_calls?\|>|<\|tool_call_(?:start|end)\|>|"
    r"functools(?=\[)"
)
"""Around JSON."""


@dataclass(frozen=True)
class Tool:
    """parameters: the JSON schema of its arguments, an object; None for any."""

    name: str
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True)
class Call:
    """arguments: JSON."""

    name: str
    arguments: str


def read_calls(text: str, tools: Sequence[Tool]) -> tuple[str, list[Call]]:
    """What a model has said before its calls of these tools, and they; of a text that is none,
    the text."""
    if not tools:
        return text, []
    names = {tool.name: tool for tool in tools}
    if (at := text.find(_BEGIN)) >= 0:
        found = [call for body in _BLOCK.findall(text) for call in _in_block(body, names)]
        return (text[:at].strip(), found) if found else (text, [])
    found = list(_in_json(_MARKS.sub(" ", text).strip(), names))
    return ("", found) if found else (text, [])


def _in_block(body: str, names: dict[str, Tool]) -> Iterator[Call]:
    functions = _FUNCTION.findall(body)
    for name, inside in functions:
        if name in names:
            given = {key: _value(names[name], key, v) for key, v in _PARAMETER.findall(inside)}
            yield Call(name, json.dumps(given, ensure_ascii=False))
    if not functions:
        yield from _in_json(body.strip(), names)


def _value(tool: Tool, key: str, text: str) -> Any:
    """A text, unless the schema has another type."""
    about = ((tool.parameters or {}).get("properties") or {}).get(key)
    if isinstance(about, dict) and about.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _in_json(text: str, names: dict[str, Tool]) -> list[Call]:
    """Of one call, a list of them, or some one after the other; nothing if anything else is
    there."""
    decoder, found = json.JSONDecoder(), []
    while text:
        named = _NAMED.match(text)
        name = named[1] if named and named[1] in names else None
        try:
            given, end = decoder.raw_decode(text, named.end() if named and name else 0)
        except (ValueError, RecursionError):
            return []
        text = text[end:].lstrip(" \n;,")
        if name:
            given = {"name": name, "arguments": given}
        for one in given if isinstance(given, list) else [given]:
            call = _call(one, names)
            if call is None:
                return []
            found.append(call)
    return found


def _call(given: Any, names: dict[str, Tool]) -> Call | None:
    if not isinstance(given, dict) or given.get("name") not in names:
        return None
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    if not isinstance(arguments, dict):
        return None
    return Call(given["name"], json.dumps(arguments, ensure_ascii=False))


class CallStream:
    """Keeps what may be a call back from a text that comes in pieces."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools
        self._kept = ""
        self._is_text = False  # not JSON as a whole

    def feed(self, piece: str) -> str:
        """What is certainly text."""
        if not self._tools:
            return piece
        self._kept += piece
        self._is_text = self._is_text or not self._may_be_json(self._kept.lstrip())
        if not self._is_text:
            return ""
        at = self._kept.find(_BEGIN)
        if at < 0:  # the end may be its beginning
            partial = max(n for n in range(len(_BEGIN)) if self._kept.endswith(_BEGIN[:n]))
            at = len(self._kept) - partial
        said, self._kept = self._kept[:at], self._kept[at:]
        return said

    def _may_be_json(self, start: str) -> bool:
        """Whether a text that begins so can be of calls as a whole, or it is too short to tell."""
        if not start or start[0] in "[{" or start == "<" or _MARKS.match(start):
            return True
        if start.startswith("<|") and "|>" not in start:
            return True
        named = (*(tool.name for tool in self._tools), "functools[")
        return any(start.startswith(name) or name.startswith(start) for name in named)

    def rest(self) -> tuple[str, list[Call]]:
        """As `read_calls`, of what was kept back."""
        return read_calls(self._kept, self._tools)


def grammar_of(template: str, tools: Sequence[Tool]) -> str:
    """Of a text that is a call of one of the tools, in llguidance's variant of Lark's notation, as
    a chat template's model writes it."""
    has_marks = _BEGIN in template
    key = "arguments" if has_marks or '"parameters"' not in template else "parameters"
    begin, end = (f"{_BEGIN}\n", f"\n{_END}") if has_marks else ("", "")
    lines = ["start: " + " | ".join(f"call_{number}" for number in range(len(tools)))]
    for number, tool in enumerate(tools):
        head = begin + f'{{"name": {json.dumps(tool.name)}, "{key}": '
        schema = {"type": "object"} if tool.parameters is None else tool.parameters
        lines.append(f"call_{number}: {json.dumps(head)} args_{number} {json.dumps('}' + end)}")
        lines.append(f"args_{number}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def new_id(kind: str) -> str:
    """As OpenAI's interface has them."""
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def told(call: Call) -> dict[str, Any]:
    """As a chat of OpenAI's interface has it."""
    return {
        "id": new_id("call"),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
