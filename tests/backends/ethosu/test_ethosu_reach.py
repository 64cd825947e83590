"""What the quantizer and the rows together bring onto the NPU: whole functions, in one delegate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ethosu_reference import SPECS, assert_simulated, compare, partitioned, parts, quantized
from torch import nn

from edgewise.backends.ethosu import EthosUQuantizer
from edgewise.quantize._torchao import prepare_pt2e
from support import Fn

Shape = tuple[int, ...]
ROWS: tuple[Shape, ...] = ((4, 6),)
PAIR: tuple[Shape, ...] = ((4, 6), (4, 6))
IMAGE: tuple[Shape, ...] = ((1, 4, 6, 5),)
VOLUME: tuple[Shape, ...] = ((1, 4, 5, 6, 4),)
SEQUENCE: tuple[Shape, ...] = ((2, 2, 6),)
PLACES = torch.tensor([2, 0, 1, 3])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
BORDERS = ("what goes to the NPU is quantized elsewhere", "what leaves the NPU is dequantized")


@dataclass(frozen=True)
class Reach:
    """A module that is quantized for inputs of the shapes, of numbers from `low` to `high`."""

    module: nn.Module | Callable[..., Any]
    shapes: tuple[Shape, ...]
    low: float = -2.0
    high: float = 2.0
    families: tuple[str, ...] = ("U55", "U85")
    steps: int = 1


class Addmm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Times(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Recurrent(nn.Module):
    """All steps of the last layer."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer = kind(6, 8, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)[0]
        return result


def trained(layer: Any) -> nn.Module:
    """With statistics, weights and biases that are not those of a new one."""
    size = layer.num_features
    layer.running_mean.copy_(torch.linspace(-1, 1, size))
    layer.running_var.copy_(torch.linspace(0.2, 3, size))
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-0.5, 2, size))
        layer.bias.copy_(torch.linspace(0.3, -0.3, size))
    return layer  # type: ignore[no-any-return]


def divided(mode: str | None) -> Callable[..., torch.Tensor]:
    return lambda x, y: torch.div(x, y + 3, rounding_mode=mode)


U85 = ("U85",)
CASES = {
    "addmm": Reach(Addmm(), ROWS),
    "erfinv": Reach(torch.erfinv, ROWS, -0.6, 0.6),
    "exp2": Reach(torch.exp2, ROWS),
    "glu": Reach(lambda x: F.glu(x, 1), ROWS),
    "glu of images": Reach(nn.GLU(1), IMAGE),
    "rsub of a number": Reach(lambda x: 1 - x, ROWS),
    "rsub": Reach(torch.rsub, PAIR),
    "means by a divisor": Reach(lambda x: F.avg_pool2d(x, 3, 2, divisor_override=2), IMAGE),
    "means by a divisor, padded": Reach(
        lambda x: F.avg_pool2d(x, 3, 2, 1, False, False, 2), IMAGE
    ),
    "means by a divisor, past the padding": Reach(
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, False, 2), IMAGE
    ),
    "means by a divisor, past counted padding": Reach(
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, True, 2), IMAGE
    ),
    "means past the border": Reach(lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
    "copy of one index": Reach(lambda x: torch.select_copy(x, 1, 2) * 2, ROWS),
    "copy transposed": Reach(lambda x: torch.t_copy(x) * 2, ROWS),
    "copy of another shape": Reach(lambda x: torch.view_copy(x, (3, 8)) * 2, ROWS),
    "copy of windows": Reach(lambda x: torch.unfold_copy(x, 1, 3, 2) * 2, ROWS),
    "copies of pieces": Reach(lambda x: [a * 2 for a in torch.split_copy(x, 2, 1)], ROWS),
    "copies of single rows": Reach(lambda x: [a * 2 for a in torch.unbind_copy(x)], ROWS),
    "stack": Reach(lambda x, y: torch.stack([x, y], 1), PAIR),
    "stack, last": Reach(lambda x, y: torch.stack([x, y], -1), PAIR),
    "split": Reach(lambda x: [a + 1 for a in x.split(2, 1)], ROWS),
    "split of uneven sizes": Reach(lambda x: [a + 1 for a in x.split([1, 5], 1)], ROWS),
    "chunk": Reach(lambda x: torch.cat([a * 2 for a in x.chunk(3, 1)]), ROWS),
    "unbind": Reach(lambda x: x.unbind(1)[0] + x.unbind(1)[2], ROWS),
    "moveaxis": Reach(lambda x: torch.moveaxis(x, 0, 2) + 1, ((4, 6, 3),)),
    "division by a tensor": Reach(divided(None), PAIR),
    "division, floor": Reach(divided("floor"), PAIR),
    "division, trunc": Reach(divided("trunc"), PAIR),
    "division by a number, trunc": Reach(
        lambda x: torch.div(x, 0.3, rounding_mode="trunc"), ROWS
    ),
    "floor_divide": Reach(lambda x, y: x // (y + 3), PAIR),
    "remainder of a tensor": Reach(lambda x, y: torch.remainder(x, y + 3), PAIR),
    "remainder of a number": Reach(lambda x: torch.remainder(x, 0.7), ROWS),
    "clamp by tensors": Reach(lambda x, y, z: x.clamp(y, z), (*PAIR, (6,))),
    "clamp by one tensor": Reach(lambda x, y: x.clamp(min=y), PAIR),
    "var": Reach(lambda x: x.var(1), ROWS),
    "std": Reach(lambda x: x.std(1), ROWS),
    "std of all": Reach(lambda x: x.std(), ROWS),
    "reflection": Reach(nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "replication": Reach(nn.ReplicationPad2d((1, 2, 3, 0)), IMAGE),
    "circular": Reach(lambda x: F.pad(x, (1, 2, 3, 0), mode="circular"), IMAGE),
    "reflection of sequences": Reach(nn.ReflectionPad1d(2), ((1, 4, 6),)),
    "slice_scatter": Reach(lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), ((4, 6), (4, 2))),
    "select_scatter of one": Reach(
        lambda x, y: torch.select_scatter(x, y, -3, 0), ((1, 4, 6), (4, 6))
    ),
    "slice_scatter of all": Reach(
        lambda x, y: torch.slice_scatter(x, y, 1).sigmoid(), ((4, 6), (4, 6))
    ),
    "select_scatter": Reach(lambda x, y: torch.select_scatter(x, y, 1, 1), ((4, 6), (4,))),
    "roll": Reach(lambda x: x.roll(1, 1), ROWS),
    "unfold": Reach(lambda x: x.unfold(1, 3, 1), ROWS),
    "gate": Reach(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardsigmoid()), IMAGE),
    # A function that is steeper than one enlarges the step of the convolution before it.
    "in place": Reach(
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardswish(inplace=True)), IMAGE, steps=2
    ),
    "masked_fill": Reach(lambda x: x.masked_fill(x > 0.1, 0.0), ROWS, families=U85),
    "threshold": Reach(nn.Threshold(0.1, 0.2), ROWS, families=U85),
    "flip": Reach(lambda x: x.flip(1, 0), ROWS),
    "index_select": Reach(lambda x: x.index_select(1, PLACES), ROWS),
    "index": Reach(lambda x: x[:, PLACES.reshape(2, 2)], ROWS),
    "index of negative numbers": Reach(lambda x: x[PLACES - 3], ROWS),
    "index_put": Reach(lambda x, y: x.index_put((PLACES[:3],), y), ((4, 6), (3, 6))),
    "index_put of one row": Reach(lambda x, y: x.index_put((PLACES[:3],), y), ((4, 6), (6,))),
    "gather": Reach(lambda x: x.gather(1, PLACES.repeat(3, 1)), ROWS, families=U85),
    "gather along the first": Reach(lambda x: x.gather(0, PLACES.repeat(2, 1)), ROWS, families=U85),
    "nearest": Reach(lambda x: F.interpolate(x, (9, 7)), IMAGE),
    "nearest, smaller": Reach(lambda x: F.interpolate(x, (4, 3)), IMAGE),
    "lstm": Reach(Recurrent(nn.LSTM), SEQUENCE),
    "lstm, both ways": Reach(Recurrent(nn.LSTM, bidirectional=True), SEQUENCE, steps=2),
    "lstm of two layers": Reach(Recurrent(nn.LSTM, num_layers=2), SEQUENCE),
    "gru": Reach(Recurrent(nn.GRU), SEQUENCE),
    "gru without bias": Reach(Recurrent(nn.GRU, bias=False), SEQUENCE),
    "rnn": Reach(Recurrent(nn.RNN), SEQUENCE),
    "rnn of relu": Reach(Recurrent(nn.RNN, nonlinearity="relu"), SEQUENCE),
    "lstm cell": Reach(nn.LSTMCell(6, 8), ((2, 6),)),
    "gru cell": Reach(nn.GRUCell(6, 8), ((2, 6),)),
    "rnn cell": Reach(nn.RNNCell(6, 8), ((2, 6),)),
    "conv3d": Reach(nn.Conv3d(4, 6, 3, padding=1), VOLUME),
    "conv3d of steps": Reach(nn.Conv3d(4, 6, (2, 3, 1), (2, 1, 2), (1, 0, 1)), VOLUME),
    "conv3d of groups": Reach(nn.Conv3d(4, 8, 2, groups=2, dilation=(2, 1, 1)), VOLUME),
    "conv3d, transposed": Reach(nn.ConvTranspose3d(4, 6, 2, 2), VOLUME),
    "conv3d, transposed, with padding": Reach(
        nn.ConvTranspose3d(4, 6, 3, (2, 1, 2), 1, output_padding=(1, 0, 1)), VOLUME
    ),
    "conv3d, same": Reach(nn.Conv3d(4, 6, (2, 3, 2), padding="same"), VOLUME),
    "max_pool3d": Reach(nn.MaxPool3d(3, 2, 1), VOLUME),
    "avg_pool3d": Reach(nn.AvgPool3d(2), VOLUME),
    "grouped transposed": Reach(nn.ConvTranspose2d(4, 6, 3, 2, groups=2), IMAGE),
    "batch norm of images": Reach(trained(nn.BatchNorm2d(4)), IMAGE),
    "batch norm of sequences": Reach(trained(nn.BatchNorm1d(4)), ((2, 4, 6),)),
    "batch norm of rows": Reach(trained(nn.BatchNorm1d(6)), ROWS),
    "max_pool2d without a batch": Reach(nn.MaxPool2d(3, 2, 1), ((4, 6, 5),)),
    "avg_pool2d without a batch": Reach(nn.AvgPool2d(2), ((4, 6, 5),)),
    "adaptive pool without a batch": Reach(nn.AdaptiveAvgPool2d((3, 5)), ((4, 6, 5),)),
    "adaptive pool": Reach(nn.AdaptiveAvgPool2d((4, 2)), IMAGE),
    "adaptive pool of sequences": Reach(nn.AdaptiveAvgPool1d(4), ((2, 4, 6),)),
    "im2col": Reach(lambda x: F.unfold(x, (2, 3), 1, 1, (2, 1)), IMAGE),
    "largest of a dimension": Reach(lambda x: x.max(1)[0], ROWS),
    "least of a dimension": Reach(lambda x: x.min(0, keepdim=True)[0], ROWS),
    "prod": Reach(lambda x: x.prod(1), ROWS),
    "prod of all": Reach(lambda x: x.prod(), ((5,),)),
    "logsumexp": Reach(lambda x: x.logsumexp(1), ROWS),
    "norm": Reach(lambda x: x.norm(dim=1), ROWS),
    "normalize": Reach(F.normalize, ROWS),
    "cosine similarity": Reach(F.cosine_similarity, PAIR),
    "lerp": Reach(lambda x, y: torch.lerp(x, y, 0.3), PAIR),
    "fmod": Reach(lambda x: torch.fmod(x, 0.7), ROWS),
    "power of a number": Reach(lambda x: 2.5**x, ROWS),
    "tril": Reach(lambda x: x.tril(1), ROWS),
    "triu": Reach(lambda x: x.triu(-1), ROWS),
    "matrix and vector": Reach(lambda x, y: x @ y, ((4, 6), (6,))),
    "matrices and vector": Reach(lambda x, y: x @ y, ((2, 4, 6), (6,))),
    "dot": Reach(torch.dot, ((6,), (6,))),
    "einsum": Reach(lambda x, y: torch.einsum("bij,bkj->bik", x, y), ((2, 4, 6), (2, 3, 6))),
    "baddbmm": Reach(torch.baddbmm, ((2, 4, 5), (2, 4, 6), (2, 6, 5))),
    "addcmul": Reach(lambda x, y: torch.addcmul(x, y, y, value=0.5), PAIR),
    "repeat_interleave": Reach(lambda x: x.repeat_interleave(2, 1), ROWS),
    "meshgrid": Reach(lambda x, y: torch.meshgrid(x, y, indexing="ij"), ((4,), (3,))),
    "constant matrix": Reach(Times(), ROWS),
    "constant matrix, three dimensions": Reach(Times(), ((2, 4, 6),)),
    "attention, causal mask of booleans": Reach(
        lambda x: F.scaled_dot_product_attention(x, x, x, CAUSAL), ((1, 2, 5, 8),)
    ),
    "corners": Reach(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        IMAGE, families=U85,
    ),
    "to a twentieth": Reach(
        lambda x: F.interpolate(x, (2, 3), mode="bilinear"), ((1, 2, 40, 60),), families=U85
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_all_of_it_is_one_delegate(name: str) -> None:
    """And within steps of the PT2E program in the TOSA reference model, which the compiled
    program equals."""
    case = CASES[name]
    torch.manual_seed(0)
    module = case.module if isinstance(case.module, nn.Module) else Fn(case.module)
    inputs = tuple(torch.empty(s).uniform_(case.low, case.high) for s in case.shapes)
    program = quantized(module.eval(), inputs)
    for family in case.families:
        result = partitioned(program, family)
        against = [str(r) for found in result.refusals.values() for r in found]
        assert not [text for text in against if not text.startswith(BORDERS)]
        (part,) = parts(result)
        found = compare(part, seeds=1, family=family)
        assert found.steps <= case.steps, found
        assert_simulated(found, SPECS[family])


def test_what_stays_in_floating_point_stays_whole() -> None:
    quantizer = EthosUQuantizer().set_module_name("layer", None)
    model, x = Recurrent(nn.LSTM).eval(), torch.randn(2, 2, 6)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    assert torch.ops.aten.lstm.input in {n.target for n in prepared.graph.nodes}
