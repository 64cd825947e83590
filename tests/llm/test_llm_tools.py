"""Calls of functions: how models write them, and what OpenAI's client gets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from edgewise.cli import main
from edgewise.llm.tools import Call, CallStream, Tool, grammar_of, read_calls

WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
TOOLS = (WEATHER, Tool("now"))
BERN = Call("get_weather", '{"city": "Bern"}')
NOW = Call("now", "{}")

# What a model writes | what is said before its calls, and they.
TEXTS: dict[str, tuple[str, str, list[Call]]] = {
    "Qwen's": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>',
        "",
        [BERN],
    ),
    "Qwen's behind thoughts, two": (
        "<think>\nWell\n</think>\n\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "<think>\nWell\n</think>",
        [BERN, NOW],
    ),
    "one that is not closed": ('So:\n<tool_call>{"name": "now"}', "So:", [NOW]),
    "Qwen3-Coder's": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "",
        [Call("get_weather", '{"city": "Bern", "days": 3}')],
    ),
    "Llama 3's": ('{"name": "get_weather", "parameters": {"city": "Bern"}}', "", [BERN]),
    "Llama 3's, two": (
        '<|python_tag|>{"name": "now", "parameters": {}}; '
        '{"name": "get_weather", "parameters": {"city": "Bern"}}',
        "",
        [NOW, BERN],
    ),
    "Mistral's": (
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Bern"}}]',
        "",
        [BERN],
    ),
    "Mistral's without its mark": ('[{"name": "now", "arguments": {}}]', "", [NOW]),
    "Mistral's newer": ('[TOOL_CALLS]get_weather[ARGS]{"city": "Bern"}', "", [BERN]),
    "Mistral's newer, two, without marks": ('now{}get_weather{"city": "Bern"}', "", [NOW, BERN]),
    "Phi-4's": ('<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>', "", [NOW]),
    "Phi-4-mini's": ('functools[{"name": "now", "arguments": {}}]', "", [NOW]),
    "arguments as a text": (
        '{"name": "get_weather", "arguments": "{\\"city\\": \\"Bern\\"}"}',
        "",
        [BERN],
    ),
}
PLAIN = {
    "text": "It is sunny.",
    "text with braces": 'Write {"name": "now"} to call it.',
    "JSON of something else": '{"city": "Bern"}',
    "a function that is not there": '<tool_call>{"name": "delete", "arguments": {}}</tool_call>',
    "a list of something else": '[{"name": "now"}, 3]',
    "arguments that are no object": '{"name": "now", "arguments": [1]}',
    "JSON that is cut off": '{"name": "get_weather", "arguments": {"city"',
    "a name in a sentence": "now is the time",
    "marks alone": "<|python_tag|>print(1)",
    "nothing": "",
}


@pytest.mark.parametrize("case", [*TEXTS, *PLAIN])
def test_calls_in_a_text(case: str) -> None:
    text, before, calls = TEXTS[case] if case in TEXTS else (PLAIN[case], PLAIN[case], [])
    assert read_calls(text, TOOLS) == (before, calls)
    # In pieces of any size nothing of a call is shown, and nothing of a text is lost.
    for size in (1, 2, 7, 1000):
        stream = CallStream(TOOLS)
        pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        rest, found = stream.rest()
        assert found == calls
        assert ("".join(pieces) + rest).strip() == before.strip()


def test_text_is_shown_while_it_is_written() -> None:
    stream = CallStream(TOOLS)
    assert stream.feed("It is") + stream.feed(" <b>sunny</b>") == "It is <b>sunny</b>"
    assert stream.feed(" <tool") == " "
    assert stream.feed("s>") == "<tools>"


HERMES = (
    "{{ bos_token }}{% if tools %}<|system|>{% for t in tools %}{{ t | tojson }}{% endfor %}"
    "<tool_call> </tool_call><|end|>{% endif %}{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}"
    "</tool_call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LLAMA = HERMES.replace("<tool_call> </tool_call>", '{"name": .., "parameters": ..}').replace(
    "<tool_call>", ""
)
GIVEN: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"$ref": "#/$defs/City"}},
                "required": ["city"],
                "additionalProperties": False,
                "$defs": {"City": {"enum": ["Bern", "Basel"]}},
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


@pytest.fixture(scope="module", params=[HERMES, LLAMA], ids=["Hermes", "Llama"])
def client(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """OpenAI's, of a server whose model has random weights."""
    openai = pytest.importorskip("openai")
    testclient = pytest.importorskip("starlette.testclient")
    pytest.importorskip("llguidance", reason="the extra llm is not installed")
    pytest.importorskip("transformers")
    pytest.importorskip("tokenizers")
    from test_llm_serve import SPECIAL, write_tokenizer

    from edgewise.llm.config import read_config
    from edgewise.llm.export import random_model
    from edgewise.llm.server import make_application

    folder = tmp_path_factory.mktemp("tools")
    ends = {"bos_token_id": 256, "eos_token_id": 257, "vocab_size": 256 + len(SPECIAL)}
    model = random_model({**read_config("tiny"), "model_type": "qwen2", **ends})
    model.save_pretrained(folder / "checkpoint")
    write_tokenizer(folder / "checkpoint")
    config = folder / "checkpoint" / "tokenizer_config.json"
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "chat_template": request.param})
    )
    path = folder / "model.pte"
    given = ["--checkpoint", str(folder / "checkpoint"), "--output", str(path), "--quiet", "--json"]
    assert main(["llm", "export", *given, "--max-context-len", "900", "--quantize", "none"]) == 0
    application = make_application(path, path.with_suffix(".tokenizer"), name="small")
    with testclient.TestClient(application) as http:
        where = {"base_url": "http://testserver/v1", "api_key": "none", "max_retries": 0}
        yield openai.OpenAI(http_client=http, **where)


ASKED: Any = {
    "model": "small",
    "messages": [{"role": "user", "content": "Weather in Bern?"}],
    "tools": GIVEN,
    "max_tokens": 120,
    "seed": 1,
}


def test_a_call_that_must_be(client: Any) -> None:
    chosen = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", chosen):
        (found,) = client.chat.completions.create(**ASKED, tool_choice=choice).choices
        assert (found.finish_reason, found.message.content) == ("tool_calls", None)
        (call,) = found.message.tool_calls
        assert call.type == "function"
        if choice is chosen:
            assert call.function.name == "get_weather"
            assert json.loads(call.function.arguments)["city"] in ("Bern", "Basel")
        *parts, last = client.chat.completions.create(**ASKED, tool_choice=choice, stream=True)
        (streamed,) = [c for p in parts for c in p.choices[0].delta.tool_calls or []]
        assert streamed.function.name == call.function.name
        assert streamed.function.arguments == call.function.arguments
        assert not any(part.choices[0].delta.content for part in parts)
        assert last.choices[0].finish_reason == "tool_calls"


def test_a_call_that_need_not_be(client: Any) -> None:
    """Random weights write no call; a text comes as it would without tools."""
    (found,) = client.chat.completions.create(**ASKED).choices
    assert found.message.content
    assert found.message.tool_calls is None
    parts = client.chat.completions.create(**ASKED, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts) == found.message.content
    without = {name: value for name, value in ASKED.items() if name != "tools"}
    (plain,) = client.chat.completions.create(**without).choices
    (none,) = client.chat.completions.create(**ASKED, tool_choice="none").choices
    assert none.message.content == plain.message.content


def test_answers_of_functions_go_back(client: Any) -> None:
    """The template reads arguments as an object."""
    called = {"name": "get_weather", "arguments": '{"city": "Bern"}'}
    call = {"id": "call_1", "type": "function", "function": called}
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    told = client.chat.completions.create(**{**ASKED, "messages": messages, "max_tokens": 2})
    other = {**called, "arguments": '{"city": "Schaffhausen"}'}
    messages[1] = {"role": "assistant", "tool_calls": [{**call, "function": other}]}
    longer = client.chat.completions.create(**{**ASKED, "messages": messages, "max_tokens": 2})
    more = len("Schaffhausen") - len("Bern")
    assert longer.usage.prompt_tokens == told.usage.prompt_tokens + more


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a tool of another kind": ({"tools": [{"type": "web_search"}]}, "tool 0 must be a function"),
    "a name with spaces": (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tool 0 must be a function with a name",
    ),
    "a choice without tools": ({"tools": [], "tool_choice": "required"}, "tool_choice needs tools"),
    "a choice that is not there": (
        {"tool_choice": {"type": "function", "function": {"name": "later"}}},
        "or a function of tools; got .*later",
    ),
    "a call and a form": (
        {"tool_choice": "required", "response_format": {"type": "json_object"}},
        "a call or of response_format; got both",
    ),
    "calls that are none": (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]},
        "tool_calls of message 0 must be functions with arguments in JSON",
    ),
    "a schema that is none": (
        {
            "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": 3}}}],
            "tool_choice": "required",
        },
        "cannot",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_are_refused(case: str, client: Any) -> None:
    openai = sys.modules["openai"]
    changed, told = REFUSED[case]
    with pytest.raises(openai.BadRequestError, match=told):
        client.chat.completions.create(**{**ASKED, **changed})


RESPONSE: Any = {
    "model": "small",
    "instructions": "Be short.",
    "input": "Weather in Bern?",
    "max_output_tokens": 120,
    "temperature": 0,
    "tools": [{"type": "function", **one["function"]} for one in GIVEN],
}


def kinds_of(events: list[Any]) -> list[str]:
    """Without repetitions; numbered one after the other."""
    assert [one.sequence_number for one in events] == list(range(len(events)))
    kinds = [one.type.removeprefix("response.") for one in events]
    return [kind for n, kind in enumerate(kinds) if not n or kinds[n - 1] != kind]


def test_responses(client: Any) -> None:
    """A text is that of a chat with the same messages."""
    messages = [{"role": "system", "content": "Be short."}, *ASKED["messages"]]
    wanted = client.chat.completions.create(**{**ASKED, "messages": messages, "temperature": 0})
    found = client.responses.create(**RESPONSE)
    assert (found.object, found.status) == ("response", "incomplete")
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.output_text == wanted.choices[0].message.content
    assert found.usage.output_tokens == wanted.usage.completion_tokens == 120
    assert found.usage.input_tokens == wanted.usage.prompt_tokens
    events = list(client.responses.create(**RESPONSE, stream=True))
    begun = ["created", "in_progress", "output_item.added", "content_part.added"]
    ended = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert kinds_of(events) == [*begun, "output_text.delta", *ended]
    said = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    assert said == events[-1].response.output_text == found.output_text
    assert events[-1].response.usage == found.usage
    form = {"format": {"type": "json_schema", "name": "a", "schema": {"enum": ["Bern", "Basel"]}}}
    told = client.responses.create(**{**RESPONSE, "tools": []}, text=form)
    assert told.status == "completed"
    assert json.loads(told.output_text) in ("Bern", "Basel")


def test_responses_with_calls(client: Any) -> None:
    chosen = {"type": "function", "name": "get_weather"}
    found = client.responses.create(**RESPONSE, tool_choice=chosen)
    (call,) = found.output
    assert (found.status, call.type, call.name) == ("completed", "function_call", "get_weather")
    assert json.loads(call.arguments)["city"] in ("Bern", "Basel")
    events = list(client.responses.create(**RESPONSE, tool_choice=chosen, stream=True))
    parts = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]
    assert kinds_of(events) == [
        *("created", "in_progress"),
        *parts,
        *("output_item.done", "completed"),
    ]
    (streamed,) = events[-1].response.output
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    # The conversation goes on with items, as with messages of a chat.
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": "Well"},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    function = {"name": call.name, "arguments": call.arguments}
    called = {"id": call.call_id, "type": "function", "function": function}
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Well", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call.call_id, "content": "sunny"},
    ]
    told = client.responses.create(**{**RESPONSE, "input": items})
    wanted = client.chat.completions.create(**{**ASKED, "messages": messages, "temperature": 0})
    assert told.output_text == wanted.choices[0].message.content
    assert told.usage.input_tokens == wanted.usage.prompt_tokens


REFUSED_RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "one that goes on": ({"previous_response_id": "resp_1"}, "previous_response_id is not"),
    "no input": ({"input": []}, "a text or a list of items"),
    "another item": ({"input": [{"type": "computer_call"}]}, "item 0 must be a message"),
    "another part": (
        {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
        "of input_text, input_image and input_audio; got input_file",
    ),
    "a part that is none": (
        {"input": [{"role": "user", "content": [{"type": []}]}]},
        "of input_text, input_image and input_audio; got",
    ),
    "another tool": ({"tools": [{"type": "web_search"}]}, "tool 0 must be a function"),
}


@pytest.mark.parametrize("case", REFUSED_RESPONSES)
def test_responses_that_are_refused(case: str, client: Any) -> None:
    openai = sys.modules["openai"]
    changed, told = REFUSED_RESPONSES[case]
    with pytest.raises(openai.BadRequestError, match=told):
        client.responses.create(**{**RESPONSE, **changed})


def test_a_file_of_last_logits_alone(client: Any) -> None:
    openai = sys.modules["openai"]
    asked = {"model": "small", "prompt": "x", "echo": True, "max_tokens": 2}
    assert client.completions.create(**asked).choices[0].text[0] == "x"
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="llm export --all-logits"):
            client.completions.create(**asked, logprobs=1, stream=stream)


def test_grammars_follow_the_template() -> None:
    for template, begin in ((HERMES, '"<tool_call>\\n{'), (LLAMA, '"{')):
        lines = grammar_of(template, TOOLS).splitlines()
        assert lines[0] == "start: call_0 | call_1"
        assert lines[1].startswith(f"call_0: {begin}")
        assert ("parameters" in lines[1]) == (template is LLAMA)
