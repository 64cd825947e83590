"""A BERT of `transformers` that stops halfway where it is sure (DeeBERT, Xin et al. 2020)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support import RUNTIMES, assert_close, eager, lower, operators

transformers = pytest.importorskip("transformers")


class EarlyExit(nn.Module):
    """A classifier behind each half of the encoder; the second half runs inside `torch.cond`."""

    def __init__(self, sure: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=4, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=16,
        )  # fmt: skip
        bert = transformers.BertModel(config, add_pooling_layer=False).eval()
        self.embeddings, self.layers = bert.embeddings, bert.encoder.layer
        self.exits = nn.ModuleList(nn.Linear(32, 3) for _ in range(2))
        self.sure = sure

    def _half(self, hidden: Tensor, number: int) -> tuple[Tensor, Tensor]:
        for layer in self.layers[2 * number : 2 * number + 2]:
            out = layer(hidden)
            hidden = out[0] if isinstance(out, tuple) else out
        return hidden, self.exits[number](hidden[:, 0])

    def forward(self, ids: Tensor) -> Tensor:
        hidden, logits = self._half(self.embeddings(ids), 0)
        confidence = logits.softmax(-1).max()
        return torch.cond(
            confidence > self.sure,
            lambda hidden, logits: logits.clone(),
            lambda hidden, logits: self._half(hidden, 1)[1],
            (hidden, logits),
        )


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
def test_both_ways_are_those_of_eager(runtime: str, partitioner: Any) -> None:
    calls = [(torch.randint(0, 99, (1, 7), generator=torch.Generator().manual_seed(i)),)
             for i in range(6)]  # fmt: skip
    probe = EarlyExit(0.0).eval()
    with torch.no_grad():
        sures = [float(probe(*c).softmax(-1).max()) for c in calls]
    threshold = sum(sorted(sures)[2:4]) / 2
    module = EarlyExit(threshold).eval()
    assert 0 < sum(s > threshold for s in sures) < len(sures)
    pte = lower(module, calls[0], partitioner=partitioner).buffer
    if partitioner is not None:
        # The first half, and each branch that computes something.
        assert operators(pte).count("delegate") >= 2
    for inputs, outputs in zip(calls, RUNTIMES[runtime](pte, *calls), strict=True):
        assert_close(outputs, eager(module, inputs))
