"""Whole int8 networks with random weights, in the shapes of the ones they are named after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tosa_serializer as ts
from tosa_cases import conv2d
from tosa_graph import TosaGraph, attribute

Net = Callable[[np.random.Generator], tuple[TosaGraph, str]]


class Layers:
    """Layers in which each output's scale is set so that values spread over int8."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.graph = TosaGraph()
        self.rng = rng

    def conv(
        self,
        x: str,
        out: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        kind: str = "conv",
        relu: bool = True,
    ) -> str:
        """With padding as "same"."""
        _, h, w, c = self.graph.shapes[x]
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        if max(kernel) < stride:  # the last row and column are between windows
            x = self.slice(x, [1, h - 1, w - 1, c])
            h, w = h - 1, w - 1
        pad = []
        for size, k in zip((h, w), kernel, strict=True):
            total = max((-(-size // stride) - 1) * stride + k - size, 0)
            pad += [total // 2, total - total // 2]
        acc = conv2d(
            self.graph, x, out, kernel, self.rng, pad=pad, stride=(stride, stride), kind=kind
        )
        points = kernel[0] * kernel[1] * (1 if kind == "depthwise" else c)
        channels = self.graph.shapes[acc][3]
        scale = self.rng.uniform(0.5, 1, channels) / (60 * np.sqrt(points))
        return (
            self.clamp(self.graph.rescale(acc, scale, output_zp=-3))
            if relu
            else (self.graph.rescale(acc, scale, output_zp=2))
        )

    def depthwise(self, x: str, kernel: int = 3, stride: int = 1) -> str:
        return self.conv(x, 1, kernel, stride, "depthwise")

    def clamp(self, x: str) -> str:
        limits = [np.array([v], np.int8).view(np.uint8).tolist() for v in (-3, 110)]
        values = attribute(
            "Clamp", min_val=limits[0], max_val=limits[1], nan_mode=ts.NanPropagationMode.PROPAGATE
        )
        return self.graph.op("CLAMP", [x], self.graph.shapes[x], "int8", values)

    def add(self, x: str, y: str) -> str:
        wide = [self.graph.rescale(v, s * 2**20, "int32") for v, s in ((x, 0.5), (y, 0.37))]
        shape = self.graph.shapes[x]
        total = self.graph.op("ADD", wide, shape, "int32", attribute("Add"))
        return self.graph.rescale(total, 1.1 / 2**20, output_zp=1)

    def pool(self, x: str) -> str:
        """The mean of a plane."""
        _, h, w, c = self.graph.shapes[x]
        values = attribute(
            "AvgPool2d", kernel=[h, w], stride=[1, 1], pad=[0] * 4, acc_type=ts.DType.INT32
        )
        zps = [self.graph.const([0], "int8") for _ in range(2)]
        return self.graph.op("AVG_POOL2D", [x, *zps], [1, 1, 1, c], "int8", values)

    def table(self, x: str, function: Callable[[np.ndarray], np.ndarray]) -> str:
        entries = np.round(np.clip(function(np.arange(-128, 128) / 32) * 32, -128, 127))
        operands = [x, self.graph.const(entries, "int8")]
        return self.graph.op("TABLE", operands, self.graph.shapes[x], "int8", attribute("Table"))

    def matmul(self, x: str, y: str) -> str:
        n, h, c = self.graph.shapes[x]
        w = self.graph.shapes[y][2]
        zps = [self.graph.const([0], "int8") for _ in range(2)]
        acc = self.graph.op("MATMUL", [x, y, *zps], [n, h, w], "int32", attribute("MatMul"))
        return self.graph.rescale(acc, 0.5 / (60 * np.sqrt(c)))

    def slice(self, x: str, shape: list[int]) -> str:
        operands = [x, self.graph.shape([0] * len(shape)), self.graph.shape(shape)]
        return self.graph.op("SLICE", operands, shape, self.graph.types[x], attribute("Slice"))

    def reshape(self, x: str, shape: list[int]) -> str:
        operands = [x, self.graph.shape(shape)]
        return self.graph.op("RESHAPE", operands, shape, self.graph.types[x], attribute("Reshape"))

    def transpose(self, x: str, order: list[int]) -> str:
        shape = [self.graph.shapes[x][i] for i in order]
        values = attribute("Transpose", perms=order)
        return self.graph.op("TRANSPOSE", [x], shape, self.graph.types[x], values)


def mobilenet_v2(rng: np.random.Generator, size: int = 224) -> tuple[TosaGraph, str]:
    layers = Layers(rng)
    x = layers.conv(layers.graph.input([1, size, size, 3]), 32, 3, 2)
    channels = 32
    for expand, out, times, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(times):
            stride = first if number == 0 else 1
            h = layers.conv(x, expand * channels) if expand > 1 else x
            h = layers.conv(layers.depthwise(h, 3, stride), out, relu=False)
            x = layers.add(x, h) if stride == 1 and channels == out else h
            channels = out
    x = layers.pool(layers.conv(x, 1280))
    return layers.graph, layers.conv(x, 1000, relu=False)


def resnet8(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    layers = Layers(rng)
    x = layers.conv(layers.graph.input([1, 32, 32, 3]), 16, 3)
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        h = layers.conv(layers.conv(x, out, 3, stride), out, 3, relu=False)
        x = layers.clamp(layers.add(layers.conv(x, out, 1, stride) if stride > 1 else x, h))
    return layers.graph, layers.conv(layers.pool(x), 10, relu=False)


def ds_cnn(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    layers = Layers(rng)
    x = layers.conv(layers.graph.input([1, 49, 10, 1]), 64, (10, 4), 2)
    for _ in range(4):
        x = layers.conv(layers.depthwise(x), 64)
    return layers.graph, layers.conv(layers.pool(x), 12, relu=False)


def autoencoder(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    layers = Layers(rng)
    x = layers.graph.input([1, 1, 1, 640])
    for out in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = layers.conv(x, out)
    return layers.graph, layers.conv(x, 640, relu=False)


def vit_block(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Attention of 3 heads over 50 tokens, with tables where softmax and GELU are."""
    layers = Layers(rng)
    tokens, width, heads = 50, 96, 3
    x = layers.graph.input([1, 1, tokens, width])
    parts = []
    for _ in range(3):
        h = layers.reshape(layers.conv(x, width, relu=False), [1, tokens, heads, width // heads])
        h = layers.reshape(layers.transpose(h, [0, 2, 1, 3]), [heads, tokens, width // heads])
        parts.append(h)
    query, key, value = parts
    scores = layers.matmul(query, layers.transpose(key, [0, 2, 1]))
    h = layers.matmul(layers.table(scores, np.tanh), value)
    h = layers.transpose(layers.reshape(h, [1, heads, tokens, width // heads]), [0, 2, 1, 3])
    h = layers.conv(layers.reshape(h, [1, 1, tokens, width]), width, relu=False)
    x = layers.add(x, h)
    h = layers.table(layers.conv(x, 4 * width, relu=False), lambda v: v / (1 + np.exp(-1.7 * v)))
    return layers.graph, layers.add(x, layers.conv(h, width, relu=False))


NETS: dict[str, Net] = {
    "mobilenet_v2": mobilenet_v2,
    "resnet8": resnet8,
    "ds_cnn": ds_cnn,
    "autoencoder": autoencoder,
    "vit_block": vit_block,
}
