"""The nets of the matrix, plain PyTorch: lowered here and, in their environments, by releases of
ExecuTorch. Imports torch only."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

FLOAT = 2e-3
HALF = 3e-2
INTEGERS = 0.2
"""Allowed differences from eager PyTorch in floating point, of the largest output. Wide: freed
memory, a wrong layout or a wrong kernel gives something else altogether."""


@dataclass(frozen=True)
class Net:
    """make: the module, or several by method. inputs: of one call; calls: of several in turn, where
    state makes them differ. half: also lowered in float16; quantize: schemes of
    `edgewise.compile` in which it is lowered besides."""

    make: Callable[[], Any]
    inputs: tuple[Any, ...] = ()
    calls: tuple[tuple[Any, ...], ...] = ()
    half: bool = False
    quantize: tuple[str, ...] = ()
    dynamic: Any = None
    config: str = ""
    """"external": weights beside the file. "packed": the peer packs its embeddings. "bfloat16": in
    that type, in the peer's delegate where it is asked for."""
    peer: bool = True
    """Whether the peer lowers it, too."""


@dataclass(frozen=True)
class Variant:
    """A net in one data type or scheme: one file."""

    name: str
    net: Net
    dtype: torch.dtype = torch.float32
    quantize: str | None = None

    def model(self) -> Any:
        torch.manual_seed(0)
        made = self.net.make()
        if isinstance(made, dict):
            return {k: m.eval().to(self.dtype) for k, m in made.items()}
        return made.eval().to(self.dtype)

    def calls(self) -> list[tuple[Any, ...]]:
        return [tuple(map(self._cast, c)) for c in (self.net.calls or (self.net.inputs,))]

    def _cast(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            return x.to(self.dtype)
        return x

    @property
    def tolerance(self) -> float:
        if self.quantize is not None:
            return INTEGERS
        return FLOAT if self.dtype == torch.float32 else HALF

    def expected(self) -> list[dict[str, Any]]:
        """Method, inputs and outputs of each call: eager PyTorch in float32."""
        model, rows = self.model(), []
        methods = model if isinstance(model, dict) else {"forward": model}
        for method, module in methods.items():
            module = copy.deepcopy(module).float()
            for inputs in self.calls():
                wide = [x.float() if is_half(x) else x for x in copy.deepcopy(inputs)]
                with torch.no_grad():
                    outputs = torch.utils._pytree.tree_leaves(module(*wide))
                outputs = [y.to(self.dtype) if is_float(y) else y for y in outputs]
                rows.append(
                    {"method": method, "inputs": list(inputs), "outputs": copy.deepcopy(outputs)}
                )
        return rows


def is_half(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16)


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float32


class Fn(nn.Module):
    """A function as a module; what is given by name is a buffer."""

    def __init__(self, function: Any, **constants: torch.Tensor) -> None:
        super().__init__()
        self.function, self.names = function, list(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, **{name: getattr(self, name) for name in self.names})


def _random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


M = _random(3, 8)
ROWS = _random(2, 5, 16)
IMAGE = _random(1, 4, 12, 12)
SERIES = _random(1, 4, 20)
IDS = torch.tensor([[1, 5, 2], [0, 3, 3]])


class Attention(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(16, 48), nn.Linear(16, 16), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, s, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, s, 16))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.attention = nn.LayerNorm(16), nn.LayerNorm(16), Attention()
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.a(x))
        return x + self.mlp(self.b(x))


class SmallCnn(nn.Module):
    """A stem, a block of depthwise convolutions with squeeze and excitation, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.depthwise(x)
        return self.head((x * self.gate(x)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.mid = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        return self.out(torch.cat([x, self.up(self.mid(x))], 1))


class Rms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b, self.c = Rms(), *(nn.Linear(16, 16, bias=False) for _ in "abc")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.c(F.silu(self.a(y)) * self.b(y))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(8, 16), nn.Parameter(_random(3, 16, seed=3))
        self.block, self.head = Block(), nn.Linear(16, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.table(ids) + self.place)).softmax(-1)


class KvCache(nn.Module):
    """Attention over what came before, in the model's own memory."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("keys", torch.zeros(1, 8, 16))
        self.register_buffer("values", torch.zeros(1, 8, 16))
        self.register_buffer("mask", torch.full((8, 8), -1e4).triu(1))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, at, self.k(x))
        self.values.index_copy_(1, at, self.v(x))
        scores = self.q(x) @ self.keys.transpose(1, 2) / 4 + self.mask[at]
        return self.out(scores.softmax(-1) @ self.values)


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.mean.mul_(0.5).add_(y.mean(0) * 0.5)
        return y - self.mean


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: self.a(x) + 1, lambda x: torch.sigmoid(self.b(x)) * 2, (x,)
        )


class While(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5 + 1), (start, x))[
            1
        ]


class Map(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.linspace(0, 1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as mapped

        return mapped(lambda row, step: row * 2 + step, x, self.step)


def _shared() -> dict[str, nn.Module]:
    linear, norm = nn.Linear(16, 16), nn.LayerNorm(16)
    return {
        "forward": nn.Sequential(norm, linear, nn.ReLU()),
        "other": nn.Sequential(norm, linear, nn.Tanh()),
    }


def _dim(name: str, low: int, high: int) -> Any:
    return torch.export.Dim(name, min=low, max=high)


C = _random(8, seed=5)

NETS: dict[str, Net] = {
    # Constants that are read in place, each operator with one.
    "add_one": Net(lambda: Fn(lambda x: x + 1), (M,), half=True),
    "times_half": Net(lambda: Fn(lambda x: x * 0.5), (M,), half=True),
    "minus_constant": Net(lambda: Fn(lambda x, c: x - c, c=C), (M,), half=True),
    "constant_minus": Net(lambda: Fn(lambda x, c: c - x, c=C), (M,)),
    "divided": Net(lambda: Fn(lambda x, c: x / (c + 3), c=C), (M,)),
    "constant_divided": Net(lambda: Fn(lambda x: 2 / (x + 3)), (M,)),
    "maximum": Net(lambda: Fn(lambda x, c: torch.maximum(x, c), c=C), (M,)),
    "minimum": Net(lambda: Fn(lambda x, c: torch.minimum(x, c), c=C), (M,)),
    "prelu": Net(lambda: nn.PReLU(4, 0.3), (IMAGE,)),
    "constant_large": Net(
        lambda: Fn(lambda x, c: x * c, c=_random(64, 64, seed=6)), (_random(64, 64),)
    ),
    "matmul_constant": Net(
        lambda: Fn(lambda x, c: x @ c, c=_random(2, 16, 4, seed=7)), (ROWS,), half=True
    ),
    "joined_constant": Net(
        lambda: Fn(lambda x, c: torch.cat([x, c], 1) * 2, c=_random(3, 4, seed=8)), (M,)
    ),
    "masked": Net(
        lambda: Fn(lambda x, c: (x @ x.transpose(1, 2) + c).softmax(-1), c=_random(5, 5, seed=9)),
        (ROWS,),
    ),
    "constant_returned": Net(lambda: Fn(lambda x, c: (x * c, c + 0), c=C), (M,)),
    # Normalizations and activations.
    "layer_norm": Net(lambda: nn.LayerNorm(8), (M,), half=True),
    "rms_norm": Net(lambda: Rms(), (ROWS,), half=True),
    "group_norm": Net(lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "batch_norm": Net(lambda: nn.BatchNorm2d(4), (IMAGE,)),
    "instance_norm": Net(lambda: nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "gelu": Net(lambda: nn.GELU(), (M,)),
    "gelu_tanh": Net(lambda: nn.GELU(approximate="tanh"), (M,)),
    "silu": Net(lambda: nn.SiLU(), (M,)),
    "hardsigmoid": Net(lambda: nn.Hardsigmoid(), (M,)),
    "hardswish": Net(lambda: nn.Hardswish(), (M,)),
    "hardtanh": Net(lambda: nn.Hardtanh(-0.3, 0.4), (M,)),
    "elu": Net(lambda: nn.ELU(0.7), (M,)),
    "leaky_relu": Net(lambda: nn.LeakyReLU(0.2), (M,)),
    "softplus": Net(lambda: nn.Softplus(), (M,)),
    "mish": Net(lambda: nn.Mish(), (M,)),
    "trigonometry": Net(lambda: Fn(lambda x: x.sin() + x.cos() * x.tanh()), (M,)),
    "exponentials": Net(lambda: Fn(lambda x: (x.exp(), (x + 3).log(), (x + 3).rsqrt())), (M,)),
    "rounding": Net(lambda: Fn(lambda x: ((x * 9).floor(), (x * 9).ceil(), (-x).abs())), (M,)),
    "softmax": Net(lambda: nn.Softmax(-1), (M,), half=True),
    "log_softmax": Net(lambda: nn.LogSoftmax(-1), (M,)),
    # Packed weights.
    "linear": Net(
        lambda: nn.Linear(8, 8), (M,), half=True, quantize=("int8", "int8-dynamic", "int8-weight")
    ),
    "linear_no_bias": Net(lambda: nn.Linear(8, 8, bias=False), (M,), half=True, quantize=("int8",)),
    "mlp": Net(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)),
        (_random(2, 64),),
        half=True,
        quantize=("int8", "int8-dynamic", "int4-dynamic", "int4-weight"),
    ),
    "mlp_external": Net(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 8)),
        (_random(2, 64),),
        config="external",
    ),
    "conv": Net(
        lambda: nn.Conv2d(4, 6, 3, padding=1),
        (IMAGE,),
        half=True,
        quantize=("int8", "int8-dynamic"),
    ),
    "conv_no_bias": Net(
        lambda: nn.Conv2d(4, 6, 3, bias=False), (IMAGE,), half=True, quantize=("int8-dynamic",)
    ),
    "conv_grouped": Net(lambda: nn.Conv2d(4, 8, 3, groups=2), (IMAGE,), half=True),
    "conv_depthwise": Net(
        lambda: nn.Conv2d(4, 8, 3, groups=4), (IMAGE,), half=True, quantize=("int8",)
    ),
    "conv_transposed": Net(lambda: nn.ConvTranspose2d(4, 4, 3, stride=2), (IMAGE,), half=True),
    "conv_1d": Net(lambda: nn.Conv1d(4, 6, 3, padding=1), (SERIES,), half=True),
    "conv_relu": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        (IMAGE,),
        half=True,
        quantize=("int8",),
    ),
    "cnn": Net(SmallCnn, (IMAGE,), half=True, quantize=("int8",)),
    "unet": Net(UNet, (IMAGE,), half=True, quantize=("int8",)),
    # Shapes and pooling.
    "pooling": Net(lambda: nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), (IMAGE,)),
    "adaptive_pooling": Net(lambda: nn.AdaptiveAvgPool2d((5, 3)), (IMAGE,)),
    "resize": Net(lambda: nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,)),
    "resize_nearest": Net(lambda: nn.UpsamplingNearest2d(scale_factor=2), (IMAGE,)),
    "padding": Net(lambda: Fn(lambda x: F.pad(x, (1, 2, 0, 1), value=0.5)), (IMAGE,)),
    "slices": Net(lambda: Fn(lambda x: torch.cat([x[:, 4:], x[:, :4] * 2], 1)), (M,)),
    "transposes": Net(lambda: Fn(lambda x: x.permute(2, 0, 1).reshape(16, 10) + 1), (ROWS,)),
    "variance": Net(lambda: Fn(lambda x: torch.var_mean(x, -1)), (M,)),
    "reductions": Net(lambda: Fn(lambda x: (x.sum(-1), x.mean(0), x.amax(1))), (M,)),
    "sorting": Net(lambda: Fn(lambda x: (x.topk(2)[0], x.argmax(-1))), (M,)),
    "sort": Net(lambda: Fn(lambda x: x.sort(-1)[0] * 2), (M,)),
    "grid_sample": Net(
        lambda: Fn(lambda x, g: F.grid_sample(x, g, align_corners=False)),
        (IMAGE, _random(1, 5, 5, 2, seed=4)),
    ),
    # Whole blocks.
    "attention": Net(Attention, (ROWS,), half=True, quantize=("int8", "int8-dynamic")),
    "attention_causal": Net(lambda: Attention(True), (ROWS,)),
    "block": Net(Block, (ROWS,), half=True, quantize=("int8", "int8-dynamic")),
    "gated": Net(Gated, (ROWS,), half=True, quantize=("int8-dynamic",)),
    "text": Net(Text, (IDS,), half=True),
    "embedding": Net(lambda: nn.Embedding(8, 16), (IDS,)),
    "gru": Net(lambda: nn.GRU(16, 8, batch_first=True), (ROWS,)),
    "lstm": Net(lambda: nn.LSTM(16, 8, batch_first=True), (ROWS,)),
    # State, control flow, methods, sizes.
    "average": Net(Average, calls=((M,), (M * 2,), (M - 1,)), half=True),
    "kv_cache": Net(
        KvCache,
        calls=tuple((_random(1, 1, 16, seed=i), torch.tensor([i])) for i in range(4)),
        half=True,
    ),
    "cond": Net(Cond, calls=((M + 2,), (M - 2,))),
    "while": Net(While, (M,), peer=False),
    "map": Net(Map, (M,)),
    "methods": Net(_shared, (ROWS,), half=True),
    "dynamic_linear": Net(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)),
        calls=((M,), (_random(7, 8),), (_random(2, 8),)),
        dynamic=({0: _dim("n", 2, 16)},),
        quantize=("int8-dynamic",),
    ),
    "dynamic_attention": Net(
        Block,
        calls=((ROWS,), (_random(2, 9, 16),), (_random(2, 3, 16),)),
        dynamic=({1: _dim("s", 2, 16)},),
    ),
    "dynamic_image": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        calls=((_random(2, 4, 12, 12),), (_random(3, 4, 12, 12),)),
        dynamic=({0: _dim("n", 2, 8)},),
    ),
    "unbounded": Net(
        lambda: nn.Linear(8, 8),
        calls=((M,), (_random(9, 8),)),
        dynamic=({0: torch.export.Dim("n", min=2)},),
        peer=False,
    ),
    "undelegated_between": Net(
        lambda: nn.Sequential(
            nn.Linear(8, 8), Fn(torch.atan), nn.Linear(8, 8), Fn(lambda x: x + 1)
        ),
        (M,),
    ),
}


def variants() -> dict[str, Variant]:
    """Every file of the matrix, by name."""
    from model_nets import MODELS
    from more_nets import MORE
    from operator_nets import OPERATORS

    nets = {**NETS, **MORE, **MODELS, **OPERATORS}
    found = [
        Variant(name, net, torch.bfloat16 if net.config == "bfloat16" else torch.float32)
        for name, net in nets.items()
    ]
    for name, net in nets.items():
        if net.half:
            found.append(Variant(f"{name}.fp16", net, torch.float16))
        for scheme in net.quantize:
            found.append(Variant(f"{name}.{scheme}", net, quantize=scheme))
            if net.half and scheme.endswith("dynamic"):
                found.append(Variant(f"{name}.fp16.{scheme}", net, torch.float16, scheme))
    return {one.name: one for one in found}
