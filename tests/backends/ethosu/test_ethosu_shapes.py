"""Operators of shapes that Vela 5.1 compiles wrongly, or with which it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ethosu_reference import SPECS, quantized

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from support import Fn

Tensor = torch.Tensor


def scores(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.transpose(-1, -2)


def cut(dim: int) -> Callable[[Tensor, Tensor], Any]:
    """Scores of both halves, as attention takes keys and values from one layer."""

    def function(a: Tensor, b: Tensor) -> Any:
        return tuple(scores(x, y) for x, y in zip(a.unbind(dim), b.unbind(dim), strict=True))

    return function


def square(a: Tensor) -> Tensor:
    return a * a


def filters(*sizes: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


TWO_EACH, HIGH, WIDE = filters(6, 1, 3, 1), filters(4, 6, 3, 3), filters(4, 2, 1, 5)
BIAS = filters(4)

# Function | sizes of its inputs.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "cut in the middle": (cut(2), [(1, 4, 2, 37, 32)] * 2),
    "cut behind tokens": (cut(2), [(1, 37, 2, 4, 32)] * 2),
    "cut before channels": (cut(3), [(1, 4, 37, 2, 32)] * 2),
    "cut in front": (cut(0), [(2, 1, 4, 37, 32)] * 2),
    "cut in six dimensions": (cut(3), [(2, 2, 4, 2, 9, 8)] * 2),
    "one half": (lambda a, b: scores(a[:, :, 1], b[:, :, 0]), [(1, 3, 2, 5, 8)] * 2),
    "computed, then cut": (lambda a, b: scores((a + 1)[0], b[0]), [(2, 1, 4, 9, 16)] * 2),
    "joined products": (
        lambda a, b: torch.cat([scores(a, b), scores(a + 1, b)]),
        [(1, 4, 36, 32)] * 2,
    ),
    "joined products of volumes": (
        lambda a, b: torch.cat([scores(a[0], b[0]), scores(a[1], b[1])]),
        [(2, 1, 4, 37, 32)] * 2,
    ),
    "flip of nothing": (lambda a: square((a * 1.5).flip(3)), [(4, 2, 2, 1)]),
    "flip before a table": (lambda a: square((a * 1.5).flip(2)), [(4, 2, 2, 1)]),
    "flip in five dimensions": (lambda a: square((a * 1.5).flip(2)), [(4, 2, 2, 1, 1)]),
    "flip before a clamp": (lambda a: scores(a.flip(0).relu(), a.flip(0).relu()), [(2, 8, 8, 8)]),
    "flip, clamp and choice": (lambda a: a.flip(1).relu()[0], [(5, 2, 8, 5, 8)]),
    "only transposed": (lambda a: a.permute(0, 2, 1, 3).contiguous(), [(2, 2, 4, 8)]),
    "only transposed, with ones": (lambda a: a.permute(1, 3, 2, 0).contiguous(), [(3, 2, 2, 1)]),
    "pixel shuffle and a table": (lambda a: F.pixel_shuffle(a, 2).tanh(), [(2, 4, 8, 8)]),
    "pixel shuffle and a clamp": (lambda a: F.pixel_shuffle(a, 2).relu(), [(2, 4, 8, 8)]),
    "table, heads joined, table": (
        lambda a: -a.tanh().permute(0, 2, 1, 3).reshape(1, 4, 8, 4),
        [(1, 4, 4, 8)],
    ),
    "norm of rows and a table": (lambda a: F.gelu(F.layer_norm(a, (8,))), [(2, 8, 4, 8)]),
    "norm of groups and a table": (lambda a: F.group_norm(a, 8).abs() + 0.3, [(2, 8, 4, 8)]),
    "softmax and a table": (lambda a: a.softmax(-1).tanh(), [(1, 2, 3, 4, 8)]),
    "number before five dimensions": (lambda a, b: b.mean() - a, [(1, 4, 4, 4, 2), (3, 6, 8)]),
    "truth of no dimensions": (
        lambda a: torch.addcmul((a > -9.0).all().float(), a, a, value=0.1),
        [(2, 3)],
    ),
    "two filters each, a border, rows left over": (
        lambda a: F.conv2d(a, TWO_EACH, None, (2, 1), (0, 1), groups=3),
        [(1, 3, 4, 9)],
    ),
    "transposed to a single row": (
        lambda a: F.conv_transpose2d(a, HIGH, None, (2, 1), (2, 1)),
        [(2, 4, 2, 9)],
    ),
    "transposed to a single pixel": (
        lambda a: F.conv_transpose2d(a, HIGH, None, 2, 2),
        [(1, 4, 2, 2)],
    ),
    "transposed in groups, rows that nothing reaches": (
        lambda a: F.conv_transpose2d(a, WIDE, BIAS, 2, (0, 2), (1, 1), groups=2),
        [(1, 4, 4, 8)],
    ),
}


@pytest.mark.parametrize("target", ["U55", "U85"])
@pytest.mark.parametrize("name", CASES)
def test_the_quantized_programs_numbers(name: str, target: str) -> None:
    function, sizes = CASES[name]
    torch.manual_seed(0)
    inputs = tuple(torch.randn(size) for size in sizes)
    quantizer = EthosUQuantizer(EthosUCompileSpec(SPECS[target])).set_global(
        get_symmetric_quantization_config()
    )
    program = quantized(Fn(function), inputs, quantizer=quantizer)
    made = edgewise.compile(program, backend=SPECS[target], verbose=False)
    report = made.delegation_report()
    assert (len(report.delegates), report.share("macs")) == (1, 1)
    got = edgewise.load(made.buffer)(*(x.numpy() for x in inputs))
    want = program.module()(*inputs)
    pairs = zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (got, want)), strict=True)
    for found, expected in pairs:
        off = np.abs(found - expected.numpy()).max()
        assert off < 0.03 * expected.abs().max()  # a few steps of 128
