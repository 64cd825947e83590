"""Mistral's tokens as a tokenizer.json: those of tiktoken, of the same file."""

from __future__ import annotations

import base64
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from edgewise.llm.chat import Chat
from edgewise.llm.export import copy_tokenizer
from edgewise.llm.export.tekken import save_tekken_tokenizer
from edgewise.llm.text import load_tokenizer

tiktoken = pytest.importorskip("tiktoken")
pytest.importorskip("tokenizers")

PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| "
    r"?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Of Mistral's files."""
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]


def tekken() -> dict[str, Any]:
    """A file whose tokens are bytes and pairs of earlier tokens, as merging finds them."""
    made, known = random.Random(0), [bytes([byte]) for byte in range(256)]
    while len(known) < 1200:
        parts = [bytes([byte]) for byte in b" aeinst"] + known[256:]
        token = made.choice(parts) + made.choice(parts)
        if token not in known and len(token) < 7:
            known.append(token)
    return {
        "config": {
            "pattern": PATTERN,
            "default_vocab_size": 1100,
            "default_num_special_tokens": 10,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode()}
            for rank, token in enumerate(known)
        ],
        "special_tokens": [{"rank": rank, "token_str": text} for rank, text in enumerate(SPECIAL)],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tekken")
    (folder / "tekken.json").write_text(json.dumps(tekken()))
    return folder


def texts() -> list[str]:
    made = random.Random(1)
    ranges = [(97, 123), (32, 127), (0xA0, 0x600), (0x3040, 0x9FFF), (0x1F300, 0x1F600)]
    found = ["", "Hello world, 12345 it's  here\n\n\tÄÖ", "def f(x):\n    return x**2  # ok\r\n"]
    for _ in range(300):
        parts = [made.choice(ranges) for _ in range(made.randrange(1, 30))]
        found.append("".join(chr(made.randrange(*part)) for part in parts))
        found.append("".join(made.choices(" aeinst", k=40)))
    return found


def test_tokens_are_those_of_tiktoken(folder: Path, tmp_path: Path) -> None:
    about = tekken()
    ranks = {
        base64.b64decode(one["token_bytes"]): one["rank"] + 10 for one in about["vocab"][:1090]
    }
    wanted = tiktoken.Encoding(
        "tekken", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"[INST]": 3, "[/INST]": 4}
    )
    tokenizer = load_tokenizer(save_tekken_tokenizer(folder / "tekken.json", tmp_path / "made"))
    longer = 0
    for text in texts():
        tokens = tokenizer.encode(text, special=False)
        assert tokens == wanted.encode_ordinary(text), text
        assert tokenizer.decode(tokens) == text
        longer += sum(token >= 266 for token in tokens)
    assert longer > 500, "few tokens are more than a byte"
    asked = "[INST]a cat[/INST]"
    assert tokenizer.encode(asked, special=False) == wanted.encode(asked, allowed_special="all")


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no special tokens": ({"special_tokens": None}, "with their special ones"),
    "of the first version": ({"special_tokens": ...}, "KeyError: 'special_tokens'"),
    "a rank twice": ({"special_tokens": [{"rank": 1, "token_str": "a"}]}, "without a rank"),
    "not all bytes": ({"vocab": [{"token_bytes": "AA=="}]}, "not all bytes"),
    "no pattern": ({"config": {}}, "KeyError: 'pattern'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_are_refused(case: str, tmp_path: Path) -> None:
    changed, told = BROKEN[case]
    about = {**tekken(), **changed}
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({k: v for k, v in about.items() if v is not ...}))
    with pytest.raises(ValueError, match=told):
        save_tekken_tokenizer(path, tmp_path / "made")


def test_chat_templates(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The checkpoint's own, else that of Mistral's package, if it is there."""
    monkeypatch.setitem(sys.modules, "mistral_common", None)
    copied = copy_tokenizer(folder, tmp_path / "none.pte")
    assert copied is not None
    assert "try pip install mistral-common" in str(recwarn.pop(UserWarning).message)
    with pytest.raises(FileNotFoundError, match="chat template"):
        Chat(load_tokenizer(copied), copied)

    name = "mistral_common.integrations.chat_templates"
    package: Any = types.ModuleType(name)
    package.chat_templates = types.SimpleNamespace(
        convert_tokenizer_to_chat_template=lambda path: "{{ bos_token }}theirs"
    )
    for part in ("mistral_common", "mistral_common.integrations"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    monkeypatch.setitem(sys.modules, name, package)
    copied = copy_tokenizer(folder, tmp_path / "theirs.pte")
    assert copied is not None
    assert Chat(load_tokenizer(copied), copied).text([{"role": "user"}]) == "<s>theirs"

    (folder / "chat_template.jinja").write_text("own")
    copied = copy_tokenizer(folder, tmp_path / "own.pte")
    assert copied is not None
    assert Chat(load_tokenizer(copied), copied).text([{"role": "user"}]) == "own"
    assert not len(recwarn)
