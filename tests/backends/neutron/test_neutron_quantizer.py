"""What the quantizer makes of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from neutron_cases import IMAGE, Fn, Product, act, conv
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from edgewise.backends.neutron import NeutronQuantizer
from edgewise.quantize.config import get_symmetric_quantization_config

X = torch.randn(IMAGE, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))


def converted(
    model: nn.Module, *inputs: torch.Tensor, quantizer: NeutronQuantizer | None = None
) -> torch.fx.GraphModule:
    """Without a setting, unless a quantizer is given."""
    exported = torch.export.export(model.eval(), inputs).module()
    prepared = prepare_pt2e(exported, quantizer or NeutronQuantizer())
    prepared(*inputs)
    return convert_pt2e(prepared)


def calls(module: torch.fx.GraphModule, name: str) -> list[torch.fx.Node]:
    return [n for n in module.graph.nodes if n.op == "call_function" and name in str(n.target)]


@pytest.mark.parametrize(
    ("quantizer", "per_channel"),
    [
        (NeutronQuantizer, 1),
        (lambda: NeutronQuantizer(None, False), 1),
        (lambda: NeutronQuantizer("imxrt700"), 1),
        (lambda: NeutronQuantizer(per_channel_linear=True), 2),
        (
            lambda: NeutronQuantizer().set_global(get_symmetric_quantization_config(True)),
            1,
        ),
        (lambda: NeutronQuantizer().set_global(get_symmetric_quantization_config(False)), 0),
    ],
)
def test_scales_of_weights(quantizer: Callable[[], NeutronQuantizer], per_channel: int) -> None:
    """Convolutions: one a channel. Linear layers: one, unless it is asked for."""
    model = act(conv(8, 8, 3), nn.Flatten(), nn.Linear(280, 4))
    made = converted(model, X, quantizer=quantizer())
    assert len(calls(made, "dequantize_per_channel")) == per_channel
    for node in calls(made, "linear"):
        assert ("per_channel" in str(node.args[1].target)) == (per_channel == 2)


@pytest.mark.parametrize(
    ("make", "quantizations"),
    [
        (lambda: conv(8, 8, 3), 2),
        (lambda: act(conv(8, 8, 3), nn.ReLU()), 2),
        (lambda: act(conv(8, 8, 3), nn.ReLU6()), 2),
        (lambda: act(conv(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), 2),
        (lambda: act(conv(8, 8, 3), nn.Hardtanh()), 2),
        (lambda: act(conv(8, 8, 3), nn.Sigmoid()), 3),
        (lambda: Fn(lambda x: torch.relu(x + x)), 2),
    ],
)
def test_clamps_are_part_of_what_they_follow(
    make: Callable[[], nn.Module], quantizations: int
) -> None:
    assert len(calls(converted(make(), X), "quantize_per_tensor.default")) >= quantizations
    found = [
        n for n in calls(converted(make(), X), "quantize_per_tensor") if "de" not in n.name[:2]
    ]
    assert len(found) == quantizations


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Fn(torch.bmm), (ROWS, ROWS.transpose(1, 2).contiguous())),
        (Fn(lambda a, b: a @ b.transpose(1, 2)), (ROWS, ROWS + 1)),
        (Product(), (ROWS,)),
    ],
)
def test_operands_of_products_lie_around_zero(
    model: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    made = converted(model, *inputs)
    (product,) = calls(made, "matmul") or calls(made, "bmm")
    for operand in product.args:
        assert operand.args[2] == 0
        assert operand.args[3:5] == (-128, 127)
    again = [n for n in calls(made, "quantize_per_tensor") if "dequantize" in str(n.args[0])]
    assert [n for n in again if n.name.startswith("quantize")] == []


def test_qat() -> None:
    model = act(conv(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(280, 4))
    exported = torch.export.export(model.train(), (X,)).module()
    prepared = prepare_qat_pt2e(exported, NeutronQuantizer(is_qat=True))
    prepared(X).sum().backward()
    made = convert_pt2e(prepared)
    assert len(calls(made, "dequantize_per_channel")) == 1


def test_factors_are_not_cut() -> None:
    """Beyond the +-0.5 of a scale fixed to 1/256."""
    x = 10 * X
    made = converted(Fn(lambda a, b: a * b), x, x)
    product: Any = made(x, x)
    # Half a step of each operand, times the other; of the result one, as its range may be wider.
    operand, result = float(x.max() - x.min()) / 255, float((x * x).max()) / 255
    assert bool(((product - x * x).abs() <= operand * (x.abs() + operand) + result).all())
