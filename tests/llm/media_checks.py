"""What is asked of models that see and of models that hear alike."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgewise.cli import main
from edgewise.llm import Generator
from edgewise.llm.chat import Chat
from edgewise.llm.conversation import Conversation
from edgewise.llm.text import load_tokenizer


def made_once(make: Callable[[str, Path], Any], factory: pytest.TempPathFactory) -> Any:
    """A function from a kind to what `make(kind, folder)` gives, which is kept."""
    known: dict[str, Any] = {}

    def made(kind: str) -> Any:
        if kind not in known:
            known[kind] = make(kind, factory.mktemp("models"))
        return known[kind]

    return made


def export_with(option: str, checkpoint: Path, output: Path, *options: str) -> int:
    """option: "--images" or "--audio"."""
    given = ["--checkpoint", str(checkpoint), "--output", str(output), "--max-seq-len", "16"]
    return main(["llm", "export", *given, option, "--quiet", *options])


def check_refused(status: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status != 0
    assert told in " ".join(capsys.readouterr().err.split())


def chat_of(path: Path, generator: Generator) -> Chat:
    folder = path.with_suffix(".tokenizer")
    return Chat(load_tokenizer(folder), folder, generator.media)


def check_conversation(
    path: Path,
    part: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commands and `Conversation` say the same of a part {"type": kind, kind: a file}."""
    kind, file = part["type"], part[part["type"]]
    given = ["llm", "chat", str(path), "--temperature", "0", "--max-new-tokens", "5"]
    capsys.readouterr()
    assert main([*given, f"--{kind}", str(file), "--message", "What?", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["messages"]
    assert told[0]["content"][0] == {"type": kind, kind: str(file)}
    conversation = Conversation(path, path.with_suffix(".tokenizer"), max_new_tokens=5)
    options: Any = {{"image": "images"}.get(kind, kind): [file]}
    assert "".join(conversation.say("What?", **options)) == told[1]["content"]
    lines = f"/{kind} {file}.missing\n/{kind} {file}\nWhat?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main([*given, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["messages"] == told
    assert "no such file" in " ".join(said.err.split())


@contextmanager
def openai_client(path: Path) -> Iterator[Any]:
    """OpenAI's, on a server with two generators of one program."""
    openai = pytest.importorskip("openai")
    testclient = pytest.importorskip("starlette.testclient")
    from edgewise.llm.server import make_application

    application = make_application(path, path.with_suffix(".tokenizer"), name="model", parallel=2)
    with testclient.TestClient(application) as http:
        yield openai.OpenAI(
            base_url="http://testserver/v1", api_key="none", http_client=http, max_retries=0
        )


def answer(client: Any, *parts: Any) -> str:
    """Of six tokens, about the parts."""
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What?"}]}]
    done = client.chat.completions.create(
        model="model", messages=messages, temperature=0, max_tokens=6
    )
    return str(done.choices[0].message.content)
