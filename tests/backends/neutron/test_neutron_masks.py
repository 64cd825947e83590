"""Masks of attention: what Neutron's quantizer says, and the range of masked scores."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgewise.backends.neutron import NeutronQuantizer
from edgewise.quantize.masks import LEFT_OUT, ScoresObserver

pytest.importorskip("ai_edge_litert")


class Attention(nn.Module):
    """Over eight words, some of which are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        mask = words[:, None, :].expand(1, 8, 8)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_the_quantizer_says_nothing_of_what_prepares_masks() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    inputs = (torch.randn(1, 8, 16), torch.arange(8)[None] < 6)
    quantizer = NeutronQuantizer()
    prepare_pt2e(torch.export.export(Attention().eval(), inputs).module(), quantizer)
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
