"""Mistral's `tekken.json` as a `tokenizer.json`.

Source: the file as `mistral-common` reads it: tokens of bytes in the order of their ranks, behind
as many special ones as it says; pairs are merged by the rank of what they become.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from edgewise.files import read_json

__all__ = ["save_tekken_tokenizer"]

_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
"""Under their names in a tokenizer_config.json, where the file has them."""


def save_tekken_tokenizer(path: Path, folder: Path) -> Path:
    """Writes `tokenizer.json` and what goes with it; if the package mistral-common is there, a chat
    template, too. ValueError if the file is not as it should be, or of the first version, which
    does not list its special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    try:
        special, ranks, pattern = _read(read_json(path.read_bytes()))
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        raise ValueError(
            f"[checkpoint] {path} must be Mistral's tokens with their special ones; got "
            f"{type(failure).__name__}: {failure}; try the model's tokenizer.json"
        ) from failure
    letters = _letters()
    written = {token: "".join(letters[byte] for byte in token) for token in ranks}
    vocabulary = {text: number for number, text in enumerate(special)}
    vocabulary |= {written[token]: len(special) + rank for token, rank in ranks.items()}
    merges = [
        (written[first], written[second])
        for token in ranks
        for first, second in _pairs_of(token, ranks)
    ]
    made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, bytewise])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in special])
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    known = {name: text for name, text in _SPECIAL.items() if text in special}
    (folder / "tokenizer_config.json").write_text(json.dumps(known, indent=1) + "\n")
    if (template := _chat_template(path)) is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def _chat_template(path: Path) -> str | None:
    """Mistral's own for a version of its tokens, by its package; None without that, or for a
    version that it does not know."""
    try:
        from mistral_common.integrations.chat_templates import chat_templates
    except ImportError:
        return None
    try:
        return str(chat_templates.convert_tokenizer_to_chat_template(str(path)))
    except (KeyError, TypeError, ValueError):
        return None


def _read(about: dict[str, Any]) -> tuple[list[str], dict[bytes, int], str]:
    """Special tokens, ranks of the others, and the pattern that splits a text."""
    config = about["config"]
    listed = sorted((one["rank"], str(one["token_str"])) for one in about["special_tokens"])
    if [rank for rank, _ in listed] != list(range(len(listed))):
        raise ValueError("special tokens without a rank")
    count = int(config.get("default_num_special_tokens", len(listed)))
    special = [text for _, text in listed]
    special += [f"<SPECIAL_{number}>" for number in range(len(special), count)]
    most = int(config.get("default_vocab_size", count + len(about["vocab"]))) - count
    tokens = [base64.b64decode(one["token_bytes"]) for one in about["vocab"][:most]]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    if len(ranks) < len(tokens) or any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("tokens twice, or not all bytes")
    return special, ranks, str(config["pattern"])


def _pairs_of(token: bytes, ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Whose merging gives the token, those of the lowest ranks first."""
    pairs = [(token[:at], token[at:]) for at in range(1, len(token))]
    known = [(a, b) for a, b in pairs if a in ranks and b in ranks]
    return sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def _letters() -> list[str]:
    """By byte, what GPT-2's tokenizers write for it: itself if it is printed, else one of the
    letters from U+0100 on."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]
