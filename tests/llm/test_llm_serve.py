"""Chats, grammars and the server, with a small model and a tokenizer of bytes."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.cli import main
from edgewise.llm import Generator, Sampling
from edgewise.llm.chat import Chat
from edgewise.llm.conversation import Conversation
from edgewise.llm.text import load_tokenizer

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2", reason="the extra llm is not installed")

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content | trim }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def write_tokenizer(folder: Path) -> None:
    """Bytes, and special tokens behind them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    begin = {"__type": "AddedToken", "content": "<|begin|>", "special": True}
    config = {"bos_token": begin, "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `save_pretrained` writes it."""
    from edgewise.llm.config import read_config
    from edgewise.llm.export import random_model

    folder = tmp_path_factory.mktemp("checkpoint")
    ends = {"bos_token_id": 256, "eos_token_id": 257, "vocab_size": 256 + len(SPECIAL)}
    model = random_model({**read_config("tiny"), "model_type": "qwen2", **ends})
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "small.pte"
    options = ["--all-logits", "--prefix", "--max-context-len", "400", "--quantize", "none"]
    given = ["--checkpoint", str(checkpoint), "--output", str(path), "--quiet", "--json"]
    assert main(["llm", "export", *given, *options]) == 0
    return path


def test_a_template_makes_the_prompt(model: Path) -> None:
    folder = model.with_suffix(".tokenizer")
    chat = Chat(load_tokenizer(folder), folder)
    said = [{"role": "user", "content": " Hi! "}, {"role": "assistant", "content": "Yo"}]
    text = "<|begin|><|user|>Hi!<|end|><|assistant|>Yo<|end|><|assistant|>"
    assert chat.text(said) == text
    prompt = chat.prompt(said)
    assert (prompt[:2], prompt[-1]) == ([256, 259], 260)
    want = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert chat.text(said) == want.apply_chat_template(
        said, tokenize=False, add_generation_prompt=True
    )
    with pytest.raises(ValueError, match="no tools here"):
        chat.text([{"role": "tool", "content": ""}])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "more than 4194304 characters"),
        ("{% if %}", "TemplateSyntaxError"),
    ],
)
def test_templates_are_programs_of_others(template: str, message: str, model: Path) -> None:
    tokenizer = load_tokenizer(model.with_suffix(".tokenizer"))
    with pytest.raises(ValueError, match=message):
        tokenizer.render(template, {"messages": []})
    assert tokenizer.render("{{ 1 + 1 }}", {}) == "2", "it goes on"


def test_a_conversation_goes_on_in_the_cache(model: Path) -> None:
    folder = model.with_suffix(".tokenizer")
    talk = Conversation(model, folder, system="Be brief.", max_new_tokens=6)
    first = "".join(talk.say("Hello"))
    assert talk.messages[-1] == {"role": "assistant", "content": first}
    "".join(talk.say("And now?"))
    assert len(talk.messages) == 5
    assert "of them before" in talk.summary()
    assert talk._generator.statistics.reused_tokens > 20


def test_chat_on_the_command_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["llm", "chat", str(model), "--message", "Hi", "--message", "Ho", "--json"]
    assert main([*given, "--max-new-tokens", "5", "--seed", "1", "--top-p", "0.5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [m["role"] for m in told["messages"]] == ["user", "assistant"] * 2


def test_run_on_the_command_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llguidance", reason="the extra llm is not installed")

    def told(*options: str) -> Any:
        given = ["llm", "run", str(model), "--prompt", "Once upon a time", "--json"]
        assert main([*given, "--max-new-tokens", "20", *options]) == 0
        return json.loads(capsys.readouterr().out)

    plain = told()
    for options in (("--prompt-lookup",), ("--draft", str(model)), ("--context-shift", "4")):
        assert told(*options)["tokens"] == plain["tokens"], options
    prefix = tmp_path / "prefix.npz"
    first, second = told("--prefix", str(prefix)), told("--prefix", str(prefix))
    assert first["tokens"] == second["tokens"] == plain["tokens"]
    assert second["reused_tokens"] == plain["prompt_tokens"] - 1
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"enum": [7, 12]}))
    assert told("--json-schema", str(schema))["text"].strip() in ("7", "12")
    sampled = ("--temperature", "0.9", "--min-p", "0.1", "--repetition-penalty", "1.3")
    assert told(*sampled, "--seed", "1")["tokens"] == told(*sampled, "--seed", "1")["tokens"]


def test_weights_are_rounded_by_a_text(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, path = tmp_path / "text.txt", tmp_path / "small.pte"
    given = ["llm", "export", "--checkpoint", str(checkpoint), "--output", str(path), "--json"]
    text.write_text("too short")
    options = ["--method", "gptq", "--calibration", str(text)]
    assert main([*given, *options]) != 0
    assert "128 tokens or more; got 9" in capsys.readouterr().err
    text.write_text("A text of some length, such as the model will see. " * 8)
    assert main([*given, *options]) == 0
    assert json.loads(capsys.readouterr().out)["methods"] == ["gptq"]
    assert len(list(Generator(path).generate([1, 2, 3], max_new_tokens=4, ignore_eos=True))) == 4


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bo"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("drafts", [False, True])
def test_text_of_a_json_schema(model: Path, drafts: bool) -> None:
    pytest.importorskip("llguidance", reason="the extra llm is not installed")
    from edgewise.llm import PromptLookup
    from edgewise.llm.constraint import GrammarTokens

    folder, generator = model.with_suffix(".tokenizer"), Generator(model)
    known = GrammarTokens(folder, generator.vocab_size, generator.eos_ids)
    tokenizer = load_tokenizer(folder)
    for seed in range(3):
        tokens = generator.generate(
            tokenizer.encode("Who?"),
            max_new_tokens=120,
            sampling=Sampling(1.0, seed=seed),
            constraint=known.json_schema(SCHEMA),
            draft=PromptLookup(shortest=1) if drafts else None,
        )
        found = json.loads(tokenizer.decode(list(tokens)))
        assert found["name"] in ("Ada", "Bo")
        assert found["age"] <= 99
    with pytest.raises(ValueError, match=r"\[grammar\]"):
        known.json_schema({"type": "nothing"})
    digits = list(generator.generate([5], constraint=known.regex("[0-9]{3}"), max_new_tokens=9))
    assert len(tokenizer.decode(digits)) == 3
    assert tokenizer.decode(digits).isdigit()


class Served:
    """A server of its own on this machine."""

    def __init__(self, application: Any) -> None:
        import uvicorn

        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        config = uvicorn.Config(application, port=port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture(scope="module")
def client(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for name in ("starlette", "uvicorn", "openai"):
        pytest.importorskip(name, reason="the extras serve and dev are not installed")
    import openai
    import torch

    import edgewise
    from edgewise.llm.server import make_application

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(256 + len(SPECIAL), 8)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            rows = self.table(tokens) * mask.unsqueeze(-1)
            return rows.sum(1) / mask.sum(1, keepdim=True)

    path = tmp_path_factory.mktemp("embedder") / "embedder.pte"
    ones = torch.ones(1, 32, dtype=torch.int64)
    edgewise.compile(Embedder(), (ones, ones), verbose=False).save(path)
    write_tokenizer(path.with_suffix(".tokenizer"))
    served = Served(
        make_application(
            model,
            model.with_suffix(".tokenizer"),
            name="small",
            parallel=2,
            body_bytes=20_000,
            api_key="secret",
            embedder=path,
        )
    )
    made = openai.OpenAI(base_url=served.url, api_key="secret", max_retries=0)
    yield made
    made.close()
    served.stop()


MESSAGES: Any = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


def test_openai_models(client: Any) -> None:
    assert [one.id for one in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "edgewise"


def test_openai_chat(client: Any) -> None:
    options = {"model": "small", "messages": MESSAGES, "max_tokens": 12, "seed": 4}
    whole = client.chat.completions.create(**options)
    text = whole.choices[0].message.content
    assert (whole.object, whole.choices[0].finish_reason) == ("chat.completion", "length")
    assert whole.usage.completion_tokens == 12
    parts = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    said = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    assert said == text, "the same seed"
    assert parts[-2].choices[0].finish_reason == "length"
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens
    two = client.chat.completions.create(**options, n=2)
    assert [c.index for c in two.choices] == [0, 1]
    assert two.choices[0].message.content == text != two.choices[1].message.content


def test_openai_completions_and_stop(client: Any) -> None:
    options = {"model": "small", "prompt": "Once", "max_tokens": 20, "temperature": 0}
    text = client.completions.create(**options).choices[0].text
    stop = text[3:5]
    cut = client.completions.create(**options, stop=[stop]).choices[0]
    assert (cut.text, cut.finish_reason) == (text[: text.find(stop)], "stop")
    streamed = client.completions.create(**options, stream=True)
    assert "".join(part.choices[0].text for part in streamed) == text
    several = client.completions.create(**{**options, "prompt": ["Once", "Twice"]})
    assert several.choices[0].text == text
    assert len(several.choices) == 2


def test_openai_logprobs(client: Any, model: Path) -> None:
    """Those of the model's own logits, whatever the temperature."""
    import torch

    generator, tokenizer = Generator(model), load_tokenizer(model.with_suffix(".tokenizer"))
    prompt = [256, *tokenizer.encode("Once")]
    options = {"model": "small", "prompt": "Once", "max_tokens": 6, "seed": 3, "logprobs": 4}
    (found,) = client.completions.create(**options).choices
    told = found.logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == 6
    assert told.text_offset == [sum(map(len, told.tokens[:n])) for n in range(6)]
    tokens = list(
        generator.generate(prompt, max_new_tokens=6, sampling=Sampling(temperature=1.0, seed=3))
    )
    assert told.tokens == [tokenizer.decode([token], special=True) for token in tokens]
    for n, token in enumerate(tokens):
        wanted = torch.log_softmax(torch.from_numpy(generator.logits([*prompt, *tokens[:n]])), 0)
        assert told.token_logprobs[n] == pytest.approx(float(wanted[token]), abs=1e-4)
        best = sorted(told.top_logprobs[n].values(), reverse=True)
        assert best[0] == pytest.approx(float(wanted.max()), abs=1e-4)
        assert 1 <= len(best) <= 5
    streamed = list(client.completions.create(**options, stream=True))
    parts = [part.choices[0].logprobs for part in streamed]
    assert [text for part in parts for text in part.tokens] == told.tokens
    assert [at for part in parts for at in part.text_offset] == told.text_offset
    asked = {"model": "small", "messages": MESSAGES, "max_tokens": 5, "temperature": 0}
    asked |= {"logprobs": True, "top_logprobs": 2}
    (chat,) = client.chat.completions.create(**asked).choices
    assert len(chat.logprobs.content) == 5
    for one in chat.logprobs.content:
        assert one.top_logprobs[0].logprob == one.logprob
        assert bytes(one.bytes).decode() == one.token
        assert len(one.top_logprobs) == 2
    streamed = [
        part.choices[0].logprobs for part in client.chat.completions.create(**asked, stream=True)
    ]
    content = [one for part in streamed if part is not None for one in part.content]
    assert [one.logprob for one in content] == [one.logprob for one in chat.logprobs.content]
    without = client.chat.completions.create(**{**asked, "top_logprobs": 0}).choices[0]
    assert [one.top_logprobs for one in without.logprobs.content] == [[]] * 5


def test_openai_logit_bias(client: Any) -> None:
    options = {"model": "small", "prompt": "Once", "max_tokens": 4, "temperature": 0}
    text = client.completions.create(**options).choices[0].text
    letters = "".join(set("abcdefgh") - set(text))
    only = client.completions.create(**options, logit_bias={str(_byte(letters[0])): 100})
    assert only.choices[0].text == 4 * letters[0]
    without = {str(token): -100 for token in range(257) if token != _byte(letters[1])}
    last = client.completions.create(**{**options, "temperature": 1}, logit_bias=without)
    assert set(last.choices[0].text) <= {letters[1], ""}


def _byte(letter: str) -> int:
    """The number of its token."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet()).index(letter)


@pytest.mark.parametrize("new", [0, 3])
def test_openai_echo(client: Any, model: Path, new: int) -> None:
    """As programs that measure models ask: how likely each token of a prompt is."""
    import torch

    generator, tokenizer = Generator(model), load_tokenizer(model.with_suffix(".tokenizer"))
    text = "Once upon a time there was a text that takes more than one call. " * 3
    prompt = [256, *tokenizer.encode(text)]
    assert len(prompt) > 128
    asked = {"model": "small", "max_tokens": new, "temperature": 0, "echo": True, "logprobs": 1}
    for given in (text, prompt, prompt[1:]):
        tokens = given if isinstance(given, list) else prompt
        (found,) = client.completions.create(prompt=given, **asked).choices
        assert found.text.startswith(text)
        assert found.finish_reason == "length"
        told = found.logprobs
        assert told.token_logprobs[0] is told.top_logprobs[0] is None
        assert len(told.token_logprobs) == len(tokens) + new
        logits = torch.from_numpy(np.stack(list(generator.prompt_logits(tokens))))
        wanted = torch.log_softmax(logits[:-1], 1)[range(len(tokens) - 1), tokens[1:]]
        assert told.token_logprobs[1 : len(tokens)] == pytest.approx(wanted.tolist(), abs=1e-4)
        last = generator.logits(tokens)
        assert np.abs(last - logits[-1].numpy()).max() < 1e-4
        (plain,) = client.completions.create(prompt=given, **{**asked, "logprobs": None}).choices
        assert plain.text == found.text
        streamed = client.completions.create(prompt=given, **asked, stream=True)
        assert "".join(part.choices[0].text for part in streamed) == found.text


def test_openai_json(client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra llm is not installed")
    shape = {"type": "json_schema", "json_schema": {"name": "who", "schema": SCHEMA}}
    found = client.chat.completions.create(
        model="small", messages=MESSAGES, max_tokens=150, seed=2, response_format=shape
    )
    assert set(json.loads(found.choices[0].message.content)) == {"name", "age"}


@pytest.mark.parametrize("form", ["float", "base64"])
def test_openai_embeddings(client: Any, form: Any) -> None:
    found = client.embeddings.create(model="small", input=["ab", "ba", "zz"], encoding_format=form)
    vectors = [one.embedding for one in found.data]
    if form == "base64":
        assert all(isinstance(vector, str) for vector in vectors)
        return
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6), "the mean knows no order"
    assert sum(x * x for x in vectors[2]) == pytest.approx(1, abs=1e-6)
    assert found.usage.prompt_tokens == 6


def test_several_clients_at_once(client: Any) -> None:
    def ask(number: int) -> str:
        made = client.completions.create(
            model="small", prompt=f"Number {number % 4}", max_tokens=15, temperature=0
        )
        return str(made.choices[0].text)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(12)))
    assert found[:4] == found[4:8] == found[8:]
    assert len(set(found)) > 1


def test_clients_that_leave_free_the_generator(client: Any) -> None:
    for _ in range(4):  # more than there are generators
        stream = client.completions.create(model="small", prompt="x", max_tokens=300, stream=True)
        next(iter(stream))
        stream.close()
    told = client.completions.create(model="small", prompt="Once", max_tokens=2, temperature=0)
    assert told.usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("chat/completions", {"model": "other", "messages": MESSAGES}, 404, "try 'small'"),
        ("chat/completions", {"model": "small"}, 400, "messages must be a list"),
        ("chat/completions", {"model": "small", "messages": [{"role": 3}]}, 400, "a role"),
        (
            "chat/completions",
            {"model": "small", "messages": [{"role": "tool", "content": "x"}]},
            400,
            "no tools here",
        ),
        ("completions", {"model": "small", "prompt": "x" * 500}, 400, "context of 400 tokens"),
        ("completions", {"model": "small", "prompt": [999]}, 400, "from 0 to 260; got 999"),
        ("completions", {"model": "small", "prompt": "x", "temperature": -1}, 400, "temperature"),
        ("completions", {"model": "small", "prompt": "x", "suffix": "y"}, 400, "not supported"),
        ("completions", {"model": "small", "prompt": "x", "max_tokens": 0}, 400, "1 or more"),
        ("completions", {"model": "small", "prompt": "x", "logprobs": 21}, 400, "from 0 to 20"),
        ("completions", {"model": "small", "prompt": "x", "n": 99}, 400, "at most 16"),
        (
            "completions",
            {"model": "small", "prompt": "x", "stream": True, "logit_bias": {"999": 1}},
            400,
            "tokens from 0 to 260; got 999",
        ),
        (
            "completions",
            {"model": "small", "prompt": "x", "logit_bias": {"a": 1}},
            400,
            "of tokens; got 1.0 of 'a'",
        ),
        ("completions", {"model": "small", "prompt": "x", "n": float("inf")}, 400, "a number"),
        ("completions", {"model": "small", "prompt": "x", "seed": 10**30}, 400, "a number"),
        ("completions", {"model": "small", "prompt": "x", "top_p": float("nan")}, 400, "a number"),
        ("completions", {"model": "small", "prompt": "x" * 30_000}, 413, "at most 20000 bytes"),
        ("completions", [], 400, "a JSON object"),
        ("embeddings", {"model": "small", "input": "x" * 99}, 400, "1 to 32 tokens"),
        ("audio/transcriptions", {"model": "small"}, 400, "try edgewise llm serve --transcriber"),
        ("nothing", {}, 404, "no such endpoint"),
    ],
)
def test_requests_that_are_refused(
    path: str, body: Any, status: int, message: str, client: Any
) -> None:
    found, told = post(f"{client.base_url}{path}", json.dumps(body).encode())
    assert (found, message in told["error"]["message"]) == (status, True), told


def post(url: str, body: bytes) -> tuple[int, Any]:
    """The status, and the answer's JSON."""
    headers = {"authorization": "Bearer secret"}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as failure:
        return failure.code, json.load(failure)


def test_a_wrong_key_and_no_json(client: Any) -> None:
    import openai

    with pytest.raises(openai.AuthenticationError, match="API key"):
        client.with_options(api_key="other").models.list()
    assert post(f"{client.base_url}completions", b"{")[0] == 400


def test_an_address_that_others_reach_needs_a_key(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["llm", "serve", str(model), "--host", "0.0.0.0"]) != 0
    assert "--api-key-file" in capsys.readouterr().err
