"""Infinities in quantized programs: what computes with them stays in floating point, but for masks
and for what maximum pools do not see."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from support import needs

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


SEEN = torch.tensor([0, 1, 2]).expand(1, 5, 3)
"""By each row of scores."""


def _put(x: torch.Tensor) -> torch.Tensor:
    written = x.clone()
    written[:, :, torch.tensor([3, 4])] = -math.inf
    return written


MODELS: dict[str, Callable[[], nn.Module]] = {
    "added": lambda: Attention(lambda x: torch.softmax(_made(x), -1)),
    "filled": lambda: Attention(lambda x: x.masked_fill(CAUSAL, -math.inf).softmax(-1)),
    "chosen": lambda: Attention(
        lambda x: torch.where(CAUSAL, torch.tensor(-math.inf), x).softmax(-1)
    ),
    "moved": lambda: Attention(lambda x: _made(x).unsqueeze(1).reshape(1, 5, 5).softmax(-1)),
    "scattered": lambda: Attention(
        lambda x: torch.full_like(x, -math.inf).scatter(-1, SEEN, x.gather(-1, SEEN)).softmax(-1)
    ),
    "scattered numbers": lambda: Attention(
        lambda x: x.scatter(-1, SEEN + 2, -math.inf).neg().neg().softmax(-1)
    ),
    "filled at indices": lambda: Attention(
        lambda x: x.index_fill(-1, torch.tensor([3, 4]), -math.inf).softmax(-1)
    ),
    "put": lambda: Attention(lambda x: _put(x).softmax(-1)),
    "written": lambda: Attention(
        lambda x: x.slice_scatter(x.new_full((1, 5, 2), -math.inf), -1, 3, 5).softmax(-1)
    ),
    "causal": lambda: Whole(is_causal=True),
    "booleans": lambda: Whole(attn_mask=~CAUSAL),
}


FLOATS = {"scattered", "scattered numbers", "filled at indices", "put", "written"}
"""No masks to Ethos-U: the softmax stays in floating point, as the infinities do."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_masks_of_infinities(name: str, backend: str) -> None:
    needs(backend)
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
    if backend.startswith("ethos"):
        assert ("aten._softmax.default" in _left(program)) == (name in FLOATS)


def _left(program: edgewise.ExecutorchProgramManager) -> set[str]:
    """The operators that no delegate computes."""
    return {n.operator for n in program.delegation_report().nodes if not n.partition}


class Padded(nn.Module):
    """Two layers of attention over positions that an input says are words."""

    def __init__(self, mask: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.mask = mask

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        mask = self.mask(words[:, None, :])
        y = self.first(x)
        y = y + F.scaled_dot_product_attention(y, y, y, attn_mask=mask)
        y = self.second(y)
        return F.scaled_dot_product_attention(y, y, y, attn_mask=mask)


WORDS = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
PADDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "booleans": lambda words: words.bool(),
    "compared": lambda words: words != 0,
    "largest numbers": lambda words: (1.0 - words) * torch.finfo(torch.float32).min,
    "filled": lambda words: torch.zeros(()).masked_fill(words == 0, -math.inf),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PADDED)
def test_masks_that_are_computed(name: str, backend: str) -> None:
    needs(backend)
    torch.manual_seed(0)
    model, inputs = Padded(PADDED[name]).eval(), (torch.randn(2, 5, 8), WORDS)
    program = edgewise.compile(
        model, inputs, backend=backend, quantize="int8", calibration=[inputs], verbose=False
    )
    run = edgewise.load(program.buffer)
    with torch.no_grad():
        expected = model(*inputs)
    found = torch.as_tensor(run(*inputs))
    noise = (found - expected).double().square().sum() / expected.double().square().sum()
    assert noise < 2e-3, f"{10 * math.log10(noise):.1f} dB"
    # What is no word changes nothing for words.
    other = inputs[0].clone()
    other[0, 3:] += 1
    changed = torch.as_tensor(run(other, WORDS))
    torch.testing.assert_close(changed[0, :3], found[0, :3], rtol=0, atol=0.1)
    if backend.startswith("ethos") and name != "largest numbers":
        assert program.delegation_report().share("macs") == 1
        assert "aten._softmax.default" not in _left(program)


class Pool(nn.Module):
    """Of an image with minus infinity around it. amounts: as those of `pad`."""

    def __init__(self, amounts: tuple[int, ...], kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.amounts, self.kernel, self.stride = amounts, kernel, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(self.conv(x), self.amounts, value=-math.inf)
        return F.max_pool2d(padded, self.kernel, self.stride)


# Amounts, kernel, stride, size | whether the pool's own padding can do it.
POOLS = {
    "uneven": (Pool((0, 1, 0, 1), 3, 2), 16, True),
    "even": (Pool((1, 1, 1, 1), 3, 2), 17, True),
    "one at least": (Pool((1, 2, 1, 2), 4, 2), 16, True),
    "rows alone": (Pool((0, 0, 1, 1), 3, 1), 16, True),
    "wide": (Pool((2, 2, 2, 2), 3, 1), 16, False),
    "two ways of rounding": (Pool((0, 1, 0, 0), 3, 2), 16, False),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", POOLS)
def test_minus_infinity_around_what_is_pooled(name: str, backend: str) -> None:
    needs(backend)
    torch.manual_seed(0)
    model, size, is_joined = POOLS[name]
    x = torch.randn(1, 3, size, size)
    program = edgewise.compile(
        model.eval(), (x,), backend=backend, quantize="int8", calibration=[(x,)], verbose=False
    )
    left = _left(program)
    assert ("aten.constant_pad_nd.default" in left) == (not is_joined and backend != "xnnpack")
    expected = model(x).detach().numpy()
    off = edgewise.load(program.buffer)(x.numpy()) - expected
    assert abs(off).max() < 0.02 * abs(expected).max()
