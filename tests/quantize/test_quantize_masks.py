"""Attention that leaves scores out, in every way that models say so: one delegate on every target,
as near to the float model as without a mask."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from edgewise.quantize.masks import LEFT_OUT, add_finite_masks, add_infinite_masks
from support import needs

BACKENDS = ("xnnpack", "ethos-u55-128", "ethos-u85-256", "neutron-imxrt700-reference")
KEYS = 8
Weigh = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of scores [1, 2, 8, 8], and of booleans [1, 1, 1, 8] that are true for words."""


class Attention(nn.Module):
    """Two heads of 8 channels."""

    def __init__(
        self, weigh: Weigh | None, causal: bool = False, known: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.weigh, self.causal, self.known = weigh, causal, known

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, KEYS, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = words[:, None, None, :]
        if self.weigh is not None:
            y = self.weigh(q @ k.transpose(-1, -2) / 8**0.5, mask) @ v
        elif self.causal:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = mask.expand(1, 1, KEYS, KEYS) if self.known is None else self.known
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(1, KEYS, 16))


LOWEST = torch.finfo(torch.float32).min
LATER = torch.ones(KEYS, KEYS).triu(1).bool()
PLACES = torch.arange(KEYS) * 0.1


def _moved(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    masked = x.reshape(2, KEYS, KEYS) + torch.zeros(()).masked_fill(~words[0], -math.inf)
    return masked.view(1, 2, KEYS, KEYS).softmax(3)


def _turned(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    masked = x.transpose(1, 2).masked_fill(~words, -1e9)
    return masked.transpose(1, 2).softmax(-1)


def _row_by_row(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Causal and padded, one mask after the other."""
    return x.masked_fill(LATER, -math.inf).masked_fill(~words, -math.inf).softmax(-1)


def _summed(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Causal and padded, the masks added first; and something behind them."""
    causal = torch.full((KEYS, KEYS), -1e9).triu(1)
    return (x + (causal + (1.0 - words.float()) * -1e9) + PLACES).softmax(-1)


FORMS: dict[str, Weigh | None] = {
    "operator": None,
    "filled": lambda x, words: x.masked_fill(~words, -1e9).softmax(-1),
    "filled in place": lambda x, words: x.masked_fill_(words == 0, -math.inf).softmax(-1),
    "chosen": lambda x, words: torch.where(words, x, torch.tensor(-1e4)).softmax(-1),
    "added": lambda x, words: (x + (1.0 - words.float()) * -10000.0).softmax(-1),
    "added, of integers": lambda x, words: (x + (1 - words.long()) * -1e9).softmax(-1),
    "lowest": lambda x, words: (x + (1.0 - words.float()) * LOWEST).softmax(-1),
    "inverted": lambda x, words: (
        x + (m := 1.0 - words.float()).masked_fill(m.bool(), LOWEST)
    ).softmax(-1),
    "constant": lambda x, words: x.masked_fill(LATER, -math.inf).softmax(-1),
    "made": lambda x, words: (x + torch.full((KEYS, KEYS), -math.inf).triu(1)).softmax(-1),
    "biased": lambda x, words: (x + (PLACES + torch.where(words, 0.0, -1e9))).softmax(-1),
    "biased behind": lambda x, words: (x.masked_fill(~words, -1e9) + PLACES).softmax(-1),
    "moved": _moved,
    "turned": _turned,
    "causal and padded": _row_by_row,
    "causal and padded, summed": _summed,
}


DEAD_ROWS = torch.ones(KEYS, KEYS).tril(-2).bool()
KNOWN = {
    "dead rows": DEAD_ROWS,
    "dead rows, added": torch.zeros(KEYS, KEYS).masked_fill(~DEAD_ROWS, -math.inf),
}
"""Masks that leave nothing of the first two rows, whose result is zero."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*FORMS, *KNOWN, "causal"])
def test_a_mask_is_added(name: str, backend: str) -> None:
    needs(backend)
    torch.manual_seed(1)
    model = Attention(FORMS.get(name), name == "causal", KNOWN.get(name)).eval()
    model.project.weight.data *= 3  # scores far apart
    x, words = torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6
    program = edgewise.compile(
        model,
        (x, words),
        backend=backend,
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


def _shared(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    masked = x.masked_fill(~words, -1e9)
    return masked.softmax(-1) + masked


def _in_parts(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    one, other = x.chunk(2, 1)
    return torch.cat([(one + other).softmax(-1), (one - other).softmax(-1)], 1)


KEPT: dict[str, Weigh] = {
    "sums of several results": _in_parts,
    "small number": lambda x, words: x.masked_fill(~words, -5.0).softmax(-1),
    "no softmax": lambda x, words: x.masked_fill(~words, -1e9).sigmoid(),
    "read twice": _shared,
    "scores that are large": lambda x, words: (x * -2000.0 + x).softmax(-1),
}


@pytest.mark.parametrize("name", [*KEPT, "other dimension"])
def test_what_is_no_mask_stays(name: str) -> None:
    other: Weigh = lambda x, words: x.masked_fill(~words, -1e9).softmax(2)  # noqa: E731
    inputs = (torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6)
    program = torch.export.export(Attention(KEPT.get(name, other)).eval(), inputs).module()
    before = program.code
    assert not add_finite_masks(program)
    if name in KEPT:  # infinities leave out along any dimension
        assert not add_infinite_masks(program)
    assert program.code == before


@pytest.mark.parametrize("add_masks", [add_finite_masks, add_infinite_masks])
@pytest.mark.parametrize("name", FORMS)
def test_the_program_computes_the_same(name: str, add_masks: Callable[..., bool]) -> None:
    """Before anything is quantized: what is left out weighs nothing in float32 either way."""
    torch.manual_seed(2)
    inputs = (torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] % 3 < 2)
    program = torch.export.export(Attention(FORMS[name]).eval(), inputs).module()
    with torch.no_grad():
        expected = program(*inputs)
        changed = add_masks(program)
        assert changed == (name != "operator")
        torch.testing.assert_close(program(*inputs), expected, rtol=1e-5, atol=1e-6)


def test_what_leaves_a_whole_row_out_stays_where_infinities_would_make_nan() -> None:
    nothing = torch.zeros(KEYS, KEYS).masked_fill(LATER.flip(0), -1e9)
    nothing[0] = -1e9
    inputs = (torch.randn(1, KEYS, 16), torch.arange(KEYS)[None] < 6)
    model = Attention(lambda x, words: (x + nothing).softmax(-1)).eval()
    program = torch.export.export(model, inputs).module()
    assert not add_infinite_masks(program)
    assert add_finite_masks(program)
    masks = [b for b in program.buffers() if b.shape == nothing.shape]
    assert any(bool((b == nothing.clamp(min=-LEFT_OUT)).all()) for b in masks)
