"""Masks of infinities in quantized programs: what computes with them stays in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise

BACKENDS = ("xnnpack", "ethos-u55-128", "ethos-u85-256", "neutron-imxrt700-reference")
CAUSAL = torch.ones(5, 5).tril() == 0


class Attention(nn.Module):
    """Scores of 5 positions, masked by a function, and what they choose."""

    def __init__(self, weigh: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.weigh = weigh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return self.weigh(scores / 8**0.5) @ self.value(x)


class Whole(nn.Module):
    """The same as one operator."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            self.query(x), self.key(x), self.value(x), **self.options
        )


def _made(x: torch.Tensor) -> torch.Tensor:
    """A mask that the program itself makes."""
    return x + torch.full((5, 5), -math.inf).triu(1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "added": lambda: Attention(lambda x: torch.softmax(_made(x), -1)),
    "filled": lambda: Attention(lambda x: x.masked_fill(CAUSAL, -math.inf).softmax(-1)),
    "chosen": lambda: Attention(
        lambda x: torch.where(CAUSAL, torch.tensor(-math.inf), x).softmax(-1)
    ),
    "moved": lambda: Attention(lambda x: _made(x).unsqueeze(1).reshape(1, 5, 5).softmax(-1)),
    "causal": lambda: Whole(is_causal=True),
    "booleans": lambda: Whole(attn_mask=~CAUSAL),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_masks_of_infinities(name: str, backend: str) -> None:
    if backend.startswith("neutron"):
        pytest.importorskip("ai_edge_litert")
    if backend.startswith("ethos"):
        pytest.importorskip("ethosu")
    torch.manual_seed(0)
    model, x = MODELS[name]().eval(), torch.randn(1, 5, 8)
    program = edgewise.compile(
        model, (x,), backend=backend, quantize="int8", calibration=[(x,)], verbose=False
    )
    found = torch.as_tensor(edgewise.load(program.buffer)(x))
    with torch.no_grad():
        expected = model(x)
    noise = (found - expected).double().square().sum() / expected.double().square().sum()
    assert noise < 2e-3, f"{10 * math.log10(noise):.1f} dB"
    assert program.delegation_report().share("macs") == 1
