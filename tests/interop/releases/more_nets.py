"""More nets of the matrix, by what people build models from. Imports torch only; torchao and the
releases' own operators where a net needs them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from nets import IDS, IMAGE, ROWS, SERIES, Fn, M, Net, Rms, _dim, _random
from torch import nn

VOLUME = _random(1, 2, 4, 5, 6, seed=11)
PICK = torch.tensor([2, 0, 1])
COLUMNS = torch.tensor([[0, 3, 1], [7, 2, 2], [5, 5, 0]])
LETTERS = torch.tensor([[1, 5, 2, 7], [0, 3, 3, 6]])


class Recurrent(nn.Module):
    """A recurrent layer of a sequence, its last state into a classifier."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, _ = self.layer(x)
        return y, self.head(y[:, -1])


class Cell(nn.Module):
    """One step: the caller keeps the state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        return self.layer(x, (h, c))


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.inner(x, y, y, need_weights=False)[0]


class RotaryCache(nn.Module):
    """Grouped heads, rotary positions, a cache that is written at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        angle = torch.arange(8)[:, None] / 100 ** (torch.arange(4) / 4)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("k_cache", torch.zeros(1, 1, 8, 8))
        self.register_buffer("v_cache", torch.zeros(1, 1, 8, 8))

    def turned(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[at], self.sin[at]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        q = self.turned(self.q(x).reshape(1, 1, 2, 8).transpose(1, 2), at)
        k, v = self.kv(x).reshape(1, 1, 2, 8).transpose(1, 2).chunk(2, 1)
        self.k_cache[:, :, at] = self.turned(k, at)
        self.v_cache[:, :, at] = v
        mask = torch.arange(8)[None] <= at[:, None]
        y = F.scaled_dot_product_attention(
            q, self.k_cache.expand(1, 2, 8, 8), self.v_cache.expand(1, 2, 8, 8), attn_mask=mask
        )
        return self.out(y.transpose(1, 2).reshape(1, 1, 16))


class LlamaCache(nn.Module):
    """A cache by ExecuTorch's own operators."""

    def __init__(self) -> None:
        super().__init__()
        from release_facts import load_libraries

        load_libraries()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(1, 8, 2, 8))
        self.register_buffer("values", torch.zeros(1, 8, 2, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        start = at[0].item()
        torch._check(start >= 0)
        torch._check(start < 8)
        q, k, v = self.qkv(x).reshape(1, -1, 3, 2, 8).unbind(2)
        torch.ops.llama.update_cache(k, self.keys, start)
        torch.ops.llama.update_cache(v, self.values, start)
        y = torch.ops.llama.custom_sdpa(q, self.keys, self.values, start, None, 0, True, None)
        return self.out(y.reshape(1, -1, 16))


class NestedCond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def up(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x[0, 0] > 0, lambda x: self.norm(x) * 3, lambda x: x - 1, (x,))

        return torch.cond(x.sum() > 0, up, lambda x: self.linear(x).relu() + 0.5, (x,)) * 2


class WhileLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        def body(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, torch.tanh(self.linear(y)) + 0.25

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, y: i < n[0], body, (start, x))[1]


class MapLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as mapped

        return mapped(lambda row: F.softmax(self.linear(row) * 2 + 1, -1), x)


class Scan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            carry = torch.tanh(self.linear(carry) + row)
            return carry, carry * 2

        return scan(step, torch.zeros(8), x, dim=0)


class Bag(nn.Module):
    """Embeddings of 8 or 4 bits, as torchao makes them."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, 32), nn.Linear(32, 4)
        from torchao.quantization import quantize_
        from torchao.quantization.granularity import PerAxis, PerGroup
        from torchao.quantization.quant_api import IntxWeightOnlyConfig

        kind = torch.int8 if bits == 8 else torch.int4
        how = PerAxis(0) if bits == 8 else PerGroup(32)
        config = IntxWeightOnlyConfig(weight_dtype=kind, granularity=how)
        quantize_(self, config, lambda m, _: isinstance(m, nn.Embedding))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids)).relu()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.b(self.a(x)))


class Counter(nn.Module):
    """State of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("sum", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.steps += 1
        self.sum += x
        return self.sum / self.steps, self.steps + 0


def _two_methods() -> dict[str, nn.Module]:
    core = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8))
    return {
        "encode": core,
        "score": nn.Sequential(core, nn.Linear(8, 1), nn.Sigmoid()),
        "scale": Fn(lambda x: x * 0.25 - 1),
    }


def _scatter(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3, 8).scatter(1, COLUMNS, x[:, :3])


MORE: dict[str, Net] = {
    # Recurrent layers.
    "lstm_head": Net(lambda: Recurrent(nn.LSTM(16, 8, batch_first=True), 8), (ROWS,), half=True),
    "lstm_two": Net(lambda: Recurrent(nn.LSTM(16, 8, 2, batch_first=True), 8), (ROWS,)),
    "lstm_both_ways": Net(
        lambda: Recurrent(nn.LSTM(16, 4, batch_first=True, bidirectional=True), 8), (ROWS,)
    ),
    "lstm_cell": Net(
        lambda: Cell(nn.LSTMCell(8, 6)), (M, _random(3, 6, seed=12), _random(3, 6, seed=13))
    ),
    "gru_head": Net(lambda: Recurrent(nn.GRU(16, 8, batch_first=True), 8), (ROWS,), half=True),
    "gru_two": Net(lambda: Recurrent(nn.GRU(16, 8, 2, batch_first=True), 8), (ROWS,)),
    "rnn": Net(lambda: Recurrent(nn.RNN(16, 8, batch_first=True), 8), (ROWS,)),
    # Attention and caches.
    "cross_attention": Net(CrossAttention, (ROWS, _random(2, 7, 16, seed=14)), half=True),
    "encoder": Net(
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (ROWS,),
        half=True, quantize=("int8-dynamic",),
    ),
    "decoder": Net(
        lambda: nn.TransformerDecoderLayer(16, 2, 32, batch_first=True),
        (ROWS, _random(2, 6, 16, seed=15)),
    ),
    "rotary_cache": Net(
        RotaryCache,
        calls=tuple((_random(1, 1, 16, seed=i), torch.tensor([i])) for i in range(5)),
    ),
    "llama_cache": Net(
        LlamaCache,
        calls=tuple((_random(1, 1, 16, seed=i), torch.tensor([i])) for i in range(4)),
    ),
    "attention_bias": Net(
        lambda: Fn(
            lambda x, b: F.scaled_dot_product_attention(x, x, x, attn_mask=b),
            b=_random(5, 5, seed=16),
        ),
        (ROWS,),
        half=True,
    ),
    # Normalizations.
    "layer_norm_two": Net(lambda: nn.LayerNorm((5, 16)), (ROWS,)),
    "layer_norm_plain": Net(lambda: nn.LayerNorm(16, elementwise_affine=False), (ROWS,)),
    "group_norm_one": Net(lambda: nn.GroupNorm(1, 4), (SERIES,), half=True),
    "rms_norm_torch": Net(lambda: nn.RMSNorm(16), (ROWS,), half=True),
    "norms": Net(lambda: nn.Sequential(Rms(), nn.LayerNorm(16), nn.Linear(16, 4)), (ROWS,)),
    "normalized": Net(lambda: Fn(lambda x: F.normalize(x, dim=-1)), (M,)),
    # Embeddings.
    "bag_8": Net(lambda: Bag(8), (LETTERS,), config="packed"),
    "bag_4": Net(lambda: Bag(4), (LETTERS,), config="packed"),
    "bag_padding": Net(lambda: nn.Embedding(8, 16, padding_idx=0), (IDS,), half=True),
    # Control flow.
    "cond_nested": Net(NestedCond, calls=((M + 2,), (M - 2,), (abs(M),))),
    "while_linear": Net(
        WhileLinear, calls=((M, torch.tensor([2])), (M, torch.tensor([5]))), peer=False
    ),
    "map_linear": Net(MapLinear, (ROWS,)),
    "scan": Net(Scan, (M,), peer=False),
    # Convolutions.
    "conv_depthwise_wide": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 5, padding=2, groups=4), nn.Conv2d(4, 8, 1)),
        (IMAGE,), half=True, quantize=("int8", "int8-dynamic"),
    ),
    "conv_dilated": Net(lambda: nn.Conv2d(4, 4, 3, dilation=2, stride=2), (IMAGE,), half=True),
    "conv_transposed_grouped": Net(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        (IMAGE,), half=True, quantize=("int8",),
    ),
    "conv_transposed_1d": Net(lambda: nn.ConvTranspose1d(4, 3, 4, stride=2), (SERIES,), half=True),
    "conv_transposed_no_bias": Net(
        lambda: nn.ConvTranspose2d(4, 4, 2, stride=2, bias=False), (IMAGE,), half=True
    ),
    "conv_grouped_wide": Net(
        lambda: nn.Conv2d(4, 8, 3, groups=2, padding=1), (IMAGE,), quantize=("int8",)
    ),
    "conv_1d_depthwise": Net(
        lambda: nn.Conv1d(4, 4, 5, groups=4), (SERIES,), half=True, quantize=("int8",)
    ),
    "conv_3d": Net(lambda: nn.Conv3d(2, 3, 3, padding=1), (VOLUME,)),
    "conv_weight_int8": Net(lambda: nn.Conv2d(4, 8, 3), (IMAGE,), quantize=("int8-weight",)),
    "residual": Net(Residual, (IMAGE,), half=True, quantize=("int8",)),
    "separable": Net(
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 8, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(8, 3), nn.Softmax(-1),
        ),
        (IMAGE,), half=True, quantize=("int8",),
    ),
    # Shapes, pooling, resizing.
    "pad_reflect": Net(lambda: nn.ReflectionPad2d(2), (IMAGE,)),
    "pad_replicate": Net(lambda: nn.ReplicationPad2d((1, 2, 0, 3)), (IMAGE,)),
    "pad_negative": Net(lambda: Fn(lambda x: F.pad(x, (-1, 2))), (IMAGE,)),
    "pad_circular": Net(lambda: nn.CircularPad2d(1), (IMAGE,)),
    "upsample_bicubic": Net(lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (IMAGE,)),
    "upsample_size": Net(
        lambda: nn.Upsample((17, 9), mode="bilinear", align_corners=False), (IMAGE,), half=True
    ),
    "upsample_1d": Net(lambda: nn.Upsample(scale_factor=3), (SERIES,)),
    "pool_max_indices": Net(lambda: nn.MaxPool2d(3, 2, 1, return_indices=True), (IMAGE,)),
    "pool_ceil": Net(lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (IMAGE,), half=True),
    "pool_average_padded": Net(lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (IMAGE,)),
    "pool_1d": Net(lambda: nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2)), (SERIES,)),
    "pool_adaptive": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d((3, 7)), nn.ReLU()),
        (IMAGE,), half=True,
    ),
    "pool_adaptive_1d": Net(lambda: nn.AdaptiveAvgPool1d(7), (SERIES,)),
    "pool_adaptive_max": Net(lambda: nn.AdaptiveMaxPool2d((4, 5)), (IMAGE,)),
    "pixel_shuffle": Net(lambda: nn.PixelShuffle(2), (IMAGE,), half=True),
    "unfold": Net(lambda: nn.Unfold(3), (IMAGE,)),
    "rolled": Net(lambda: Fn(lambda x: torch.roll(x, 2, 1).flip(0) + 1), (M,)),
    "stacked": Net(lambda: Fn(lambda x: torch.stack([x, x * 2, x - 1], 1).flatten(1)), (M,)),
    "repeated": Net(lambda: Fn(lambda x: x.repeat(2, 3).tile(1, 2)), (M,)),
    "split": Net(lambda: Fn(lambda x: [y * 2 for y in x.split([1, 4, 3], 1)]), (M,)),
    "broadcast": Net(lambda: Fn(lambda x: x[:, :1].expand(3, 8) * x[:1]), (M,)),
    # Choosing, ordering, comparing.
    "indexed": Net(lambda: Fn(lambda x, i: x[i] * 2, i=PICK), (M,)),
    "indexed_twice": Net(lambda: Fn(lambda x, i: x[i, i + 1] + 1, i=PICK), (M,)),
    "gathered": Net(lambda: Fn(lambda x, i: x.gather(1, i) * 3, i=COLUMNS), (M,)),
    "scattered": Net(lambda: Fn(_scatter), (M,)),
    "scattered_add": Net(
        lambda: Fn(lambda x, i: x.scatter_add(1, i, x[:, :3] * 2), i=COLUMNS), (M,)
    ),
    "index_put": Net(lambda: Fn(lambda x, i: x.index_put((i,), x * 2), i=PICK), (M,)),
    "index_selected": Net(lambda: Fn(lambda x, i: x.index_select(0, i) - 1, i=PICK), (M,)),
    "where": Net(lambda: Fn(lambda x: torch.where(x > 0, x * 2, -x)), (M,), half=True),
    "filled": Net(lambda: Fn(lambda x: x.masked_fill(x < 0, 0.5) + 1), (M,)),
    "clamped": Net(lambda: Fn(lambda x: x.clamp(-0.4, 0.3) + x.clamp(min=0)), (M,), half=True),
    "clamped_tensor": Net(lambda: Fn(lambda x: torch.clamp(x, x * 0.1, x * 0 + 0.5)), (M,)),
    "cumulative": Net(lambda: Fn(lambda x: x.cumsum(1) * 2), (M,)),
    "top": Net(lambda: Fn(lambda x: x.topk(3)), (M,)),
    "sorted": Net(lambda: Fn(lambda x: x.sort(descending=True)), (M,)),
    "arg_sorted": Net(lambda: Fn(lambda x: x.argsort()), (M,)),
    "extremes": Net(lambda: Fn(lambda x: (*x.max(1), *x.min(0), x.argmin(0))), (M,)),
    "logic": Net(
        lambda: Fn(lambda x: ((x > 0) & (x < 0.5) | (x == 1), ~(x >= 0), (x != 0).any(1))), (M,)
    ),
    "integers": Net(
        lambda: Fn(lambda i: (i * 2 + 1, i // 2, i % 3, i << 1, i >> 1, (i & 3) | 4)), (LETTERS,)
    ),
    "casts": Net(lambda: Fn(lambda x: ((x * 9).int() + 1, (x > 0).float(), x.double())), (M,)),
    "made": Net(
        lambda: Fn(lambda x: x + torch.arange(8) + torch.ones(8) + torch.zeros_like(x)), (M,)
    ),
    "one_hot": Net(lambda: Fn(lambda i: F.one_hot(i, 8).float()), (LETTERS,)),
    "nonzero": Net(lambda: Fn(lambda x: torch.nonzero(x > 0)), (M,)),
    # Arithmetic.
    "softmax_middle": Net(lambda: nn.Softmax(1), (ROWS,), half=True),
    "log_softmax_first": Net(lambda: nn.LogSoftmax(0), (ROWS,)),
    "logsumexp": Net(lambda: Fn(lambda x: x.logsumexp(-1)), (M,)),
    "statistics": Net(lambda: Fn(lambda x: (x.std(1), x.var(0), x.norm(dim=1), x.prod(1))), (M,)),
    "variances": Net(lambda: Fn(lambda x: torch.var_mean(x, (0, 1), correction=0)), (ROWS,)),
    "powers": Net(lambda: Fn(lambda x: ((x + 2) ** 1.5, x**2, 2**x, x.abs().sqrt())), (M,)),
    "special": Net(
        lambda: Fn(lambda x: (x.erf(), x.log1p().expm1(), x.sign(), x.atan2(x + 2))), (M / 2,)
    ),
    "sines": Net(lambda: Fn(lambda x: torch.cat([x.sin(), x.cos()], -1) * 2), (M * 9,), half=True),
    "matmul_two": Net(lambda: Fn(lambda x, y: x @ y.transpose(1, 2)), (ROWS, ROWS * 2), half=True),
    "einsum": Net(lambda: Fn(lambda x, y: torch.einsum("bsi,bti->bst", x, y)), (ROWS, ROWS)),
    "baddbmm": Net(
        lambda: Fn(lambda x: torch.baddbmm(x[:, :, :5], x, x.transpose(1, 2), alpha=0.5)), (ROWS,)
    ),
    "distances": Net(lambda: Fn(lambda x, c: torch.cdist(x, c), c=_random(4, 8, seed=17)), (M,)),
    "lerp": Net(lambda: Fn(lambda x, y: torch.lerp(x, y, 0.3)), (M, M + 1)),
    "glu": Net(lambda: nn.GLU(), (M,)),
    "remainders": Net(lambda: Fn(lambda x: (x % 0.3, torch.fmod(x, 0.3), x.round())), (M,)),
    # State, methods, sizes.
    "counter": Net(Counter, calls=((M,), (M + 1,), (M * 3,))),
    "three_methods": Net(_two_methods, (ROWS,)),
    "dynamic_rows": Net(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)),
        calls=((_random(2, 5, 8),), (_random(2, 11, 8),)),
        dynamic=({1: _dim("t", 2, 12)},),
        half=True,
    ),
    "dynamic_conv": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.SiLU()),
        calls=((IMAGE,), (_random(1, 4, 20, 12),)),
        dynamic=({2: _dim("h", 8, 24)},),
    ),
    "dynamic_joined": Net(
        lambda: Fn(lambda x, y: (torch.cat([x, y], 0) + 1).softmax(0)),
        calls=((M, M), (_random(5, 8), _random(5, 8))),
        dynamic=(({0: _dim("n", 2, 9)}, {0: _dim("n", 2, 9)}),),
    ),
    "mixed": Net(
        lambda: nn.Sequential(nn.Linear(8, 8), Fn(torch.erf), nn.LayerNorm(8), nn.Linear(8, 2)),
        (M,), half=True, quantize=("int8", "int8-dynamic"),
    ),
}  # fmt: skip
