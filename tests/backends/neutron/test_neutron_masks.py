"""Attention that leaves scores out, in every way that models say so: one program for the NPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from edgewise.backends.neutron import NeutronQuantizer
from edgewise.quantize.finite_masks import LEFT_OUT, ScoresObserver, add_finite_masks

pytest.importorskip("ai_edge_litert")

KEYS = 8
Weigh = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of scores [1, 2, 8, 8], and of booleans [1, 1, 1, 8] that are true for words."""


class Attention(nn.Module):
    """Two heads of 8 channels."""

    def __init__(self, weigh: Weigh | None, causal: bool = False) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.weigh, self.causal = weigh, causal

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, KEYS, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = words[:, None, None, :]
        if self.weigh is not None:
            y = self.weigh(q @ k.transpose(-1, -2) / 8**0.5, mask) @ v
        elif self.causal:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = mask.expand(1, 1, KEYS, KEYS)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(1, KEYS, 16))


LOWEST = torch.finfo(torch.float32).min
LATER = torch.ones(KEYS, KEYS).triu(1).bool()


def _biased(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """A position's own number and its mask, summed before."""
    return (x + (torch.arange(KEYS) * 0.1 + torch.where(words, 0.0, -1e9))).softmax(-1)


def _moved(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    masked = x.reshape(2, KEYS, KEYS) + torch.zeros(()).masked_fill(~words[0], -math.inf)
    return masked.view(1, 2, KEYS, KEYS).softmax(3)


FORMS: dict[str, Weigh | None] = {
    "operator": None,
    "filled": lambda x, words: x.masked_fill(~words, -1e9).softmax(-1),
    "filled in place": lambda x, words: x.masked_fill_(words == 0, -math.inf).softmax(-1),
    "chosen": lambda x, words: torch.where(words, x, torch.tensor(-1e4)).softmax(-1),
    "added": lambda x, words: (x + (1.0 - words.float()) * -10000.0).softmax(-1),
    "lowest": lambda x, words: (x + (1.0 - words.float()) * LOWEST).softmax(-1),
    "constant": lambda x, words: x.masked_fill(LATER, -math.inf).softmax(-1),
    "made": lambda x, words: (x + torch.full((KEYS, KEYS), -math.inf).triu(1)).softmax(-1),
    "biased": _biased,
    "moved": _moved,
}


@pytest.mark.parametrize("name", [*FORMS, "causal"])
def test_a_mask_is_added_in_integers(name: str) -> None:
    torch.manual_seed(1)
    model = Attention(FORMS.get(name), name == "causal").eval()
    model.project.weight.data *= 3  # scores far apart
    x, words = torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6
    program = edgewise.compile(
        model,
        (x, words),
        backend="neutron-imxrt700-reference",
        quantize="int8",
        calibration=[(x, words), (torch.randn(1, KEYS, 16), words)],
        verbose=False,
    )
    report = program.delegation_report()
    assert (len(report.delegates), report.share("macs")) == (1, 1)
    found = np.asarray(edgewise.load(program.buffer)(x.numpy(), words.numpy()))
    with torch.no_grad():
        expected = model(x, words).numpy()
    noise = np.square(found - expected).sum() / np.square(expected).sum()
    assert 10 * math.log10(noise) < -24


KEPT: dict[str, Weigh] = {
    "other dimension": lambda x, words: x.masked_fill(~words, -1e9).softmax(2),
    "small number": lambda x, words: x.masked_fill(~words, -5.0).softmax(-1),
    "no softmax": lambda x, words: x.masked_fill(~words, -1e9).sigmoid(),
    "read twice": lambda x, words: (y := x.masked_fill(~words, -1e9)).softmax(-1) + y,
    "scores that are large": lambda x, words: (x * -2000.0 + x).softmax(-1),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_mask_stays(name: str) -> None:
    inputs = (torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6)
    program = torch.export.export(Attention(KEPT[name]).eval(), inputs).module()
    before = program.code
    assert not add_finite_masks(program)
    assert program.code == before


def test_the_quantizer_says_nothing_of_what_prepares_masks() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    inputs = (torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6)
    quantizer = NeutronQuantizer()
    prepare_pt2e(torch.export.export(Attention(None).eval(), inputs).module(), quantizer)
    assert quantizer.left == []


@pytest.mark.parametrize(
    ("scores", "low", "high"),
    [
        ([[0.0, 1.0, -LEFT_OUT, -LEFT_OUT]], 1 - math.log(512 * 4), 1),
        ([[3.0, -20.0], [-2.0, -30.0]], -2 - math.log(512 * 2), 3),
        ([[1.0, 0.0], [-LEFT_OUT, 1 - LEFT_OUT]], 1 - math.log(512 * 2), 1),  # a row left out
    ],
)
def test_the_range_of_masked_scores(scores: list[list[float]], low: float, high: float) -> None:
    observer = ScoresObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
    given = torch.tensor(scores)
    assert observer(given) is given
    assert observer.min_val.item() == pytest.approx(low)
    assert observer.max_val.item() == pytest.approx(high)
