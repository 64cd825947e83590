"""Random graphs of convolutions, products and pools, one or two operators each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tosa_serializer as ts
from tosa_graph import TosaGraph, attribute

Case = Callable[[np.random.Generator], tuple[TosaGraph, str]]
CASES: dict[str, Case] = {}
U85_CASES: dict[str, Case] = {}
"""What only Ethos-U85 can."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def u85_case(function: Case) -> Case:
    U85_CASES[function.__name__] = function
    return function


def size(rng: np.random.Generator, most: int = 17) -> int:
    return int(rng.integers(1, most))


def scales(rng: np.random.Generator, x: str, graph: TosaGraph, points: int) -> np.ndarray:
    """For each channel a scale that spreads a sum of `points` products over int8."""
    channels = graph.shapes[x][-1]
    scale: np.ndarray = rng.uniform(0.5, 4, channels) * 50 / (5000 * np.sqrt(points))
    return scale


def conv2d(
    graph: TosaGraph,
    x: str,
    out_channels: int,
    kernel: Sequence[int],
    rng: np.random.Generator,
    *,
    pad: Sequence[int] = (0, 0, 0, 0),
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    input_zp: int = 0,
    kind: str = "conv",
    sparse: bool = False,
) -> str:
    """The accumulators of a convolution: int32, or int48 of int16.

    kind: conv, depthwise (out_channels is the multiplier) or transpose (pad is that of the output).
    sparse: of four weights along the input channels (a multiple of four) two are zero.
    """
    n, h, w, c = graph.shapes[x]
    wide = graph.types[x] == "int16"
    acc = "int48" if wide else "int32"
    shapes = {
        "conv": (out_channels, *kernel, c),
        "depthwise": (*kernel, c, out_channels),
        "transpose": (out_channels, *kernel, c),
    }
    weights = rng.integers(-127, 128, shapes[kind])
    weights[rng.random(weights.shape) < rng.choice([0.0, 0.5])] = 0
    if sparse:
        fours = weights.reshape(-1, 4)
        zeros = np.argsort(rng.random(fours.shape), 1)[:, :2]
        np.put_along_axis(fours, zeros, 0, 1)
    channels = c * out_channels if kind == "depthwise" else out_channels
    operands = [
        x,
        graph.const(weights, "int8"),
        graph.const(rng.integers(-(10**4), 10**4, channels), acc),
        graph.const([input_zp], graph.types[x]),
        graph.const([0], "int8"),
    ]
    acc_type = ts.DType.INT48 if wide else ts.DType.INT32
    if kind == "transpose":
        shape = [
            n,
            (h - 1) * stride[0] + pad[0] + pad[1] + kernel[0],
            (w - 1) * stride[1] + pad[2] + pad[3] + kernel[1],
            channels,
        ]
        values = attribute(
            "TransposeConv2d",
            out_pad=list(pad),
            stride=list(stride),
            local_bound=False,
            acc_type=acc_type,
        )
        return graph.op("TRANSPOSE_CONV2D", operands, shape, acc, values)
    shape = [
        n,
        (h + pad[0] + pad[1] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1,
        (w + pad[2] + pad[3] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1,
        channels,
    ]
    values = attribute(
        "Conv2d" if kind == "conv" else "DepthwiseConv2d",
        pad=list(pad),
        stride=list(stride),
        dilation=list(dilation),
        local_bound=False,
        acc_type=acc_type,
    )
    name = "CONV2D" if kind == "conv" else "DEPTHWISE_CONV2D"
    return graph.op(name, operands, shape, acc, values)


def windows(
    rng: np.random.Generator, largest: int = 6, dilations: int = 2
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Input size, kernel, pad, stride and dilation of which windows cover the padded input."""
    sizes, kernel, pad, stride, dilation = [], [], [], [], []
    for _ in range(2):
        k, s, d = int(rng.integers(1, largest)), int(rng.integers(1, 4)), 1
        if s == 1:
            d = int(rng.integers(1, dilations + 1))
        extent = (k - 1) * d + 1
        before, after = (int(p) for p in rng.integers(0, k, 2))
        total = extent + s * int(rng.integers(0, 12))
        while total - before - after < 1:
            total += s
        sizes.append(total - before - after)
        kernel.append(k)
        pad += [before, after]
        stride.append(s)
        dilation.append(d)
    return sizes, kernel, pad, stride, dilation


def _convolution(rng: np.random.Generator, kind: str, dtype: str = "int8") -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    sizes, kernel, pad, stride, dilation = windows(rng)
    channels, out = size(rng, 40), size(rng, 50)
    if kind == "depthwise":
        out = 1
    if kind == "transpose":
        stride = [int(rng.integers(1, 3))] * 2
        kernel = [int(k) for k in rng.integers(2, 6, 2)]
        pad = [-int(p) for p in rng.integers(0, 2, 4)]
    x = graph.input([1, *sizes, channels], dtype)
    acc = conv2d(
        graph,
        x,
        out,
        kernel,
        rng,
        pad=pad,
        stride=stride,
        dilation=dilation,
        input_zp=int(rng.integers(-128, 128)) if dtype == "int8" else 0,
        kind=kind,
    )
    points = kernel[0] * kernel[1] * (1 if kind == "depthwise" else channels)
    scale = scales(rng, acc, graph, points)
    if dtype == "int16":
        return graph, graph.rescale(acc, scale, "int16", scale32=False)
    return graph, graph.rescale(acc, scale, output_zp=int(rng.integers(-128, 128)))


@case
def convolution(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _convolution(rng, "conv")


@case
def convolution_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _convolution(rng, "conv", "int16")


@case
def depthwise(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _convolution(rng, "depthwise")


@case
def depthwise_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _convolution(rng, "depthwise", "int16")


@case
def transposed(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _convolution(rng, "transpose")


@u85_case
def wide_accumulators(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """int48 that is used twice goes through memory in 64 bits."""
    graph = TosaGraph()
    x = graph.input([1, size(rng), size(rng), size(rng)], "int16")
    acc = conv2d(graph, x, size(rng, 30), (1, 1), rng)
    parts = [graph.rescale(acc, s, "int16", scale32=False) for s in (1e-3, 7e-4)]
    shape = list(graph.shapes[acc])
    shape[3] *= 2
    return graph, graph.op("CONCAT", parts, shape, "int16", attribute("Concat", axis=3))


@u85_case
def convolution_3d(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Accumulators that are kept from plane to plane."""
    graph = TosaGraph()
    depth, h, w, c = (int(n) for n in rng.integers(3, 12, 4))
    kernel = [int(n) for n in rng.integers(1, 4, 3)]
    x = graph.input([1, depth, h, w, c])
    out = size(rng, 20)
    operands = [
        x,
        graph.const(rng.integers(-127, 128, (out, *kernel, c)), "int8"),
        graph.const(rng.integers(-(10**4), 10**4, out), "int32"),
        graph.const([3], "int8"),
        graph.const([0], "int8"),
    ]
    shape = [1, *(n - k + 1 for n, k in zip((depth, h, w), kernel, strict=True)), out]
    values = attribute(
        "Conv3d",
        pad=[0] * 6,
        stride=[1] * 3,
        dilation=[1] * 3,
        local_bound=False,
        acc_type=ts.DType.INT32,
    )
    acc = graph.op("CONV3D", operands, shape, "int32", values)
    return graph, graph.rescale(acc, scales(rng, acc, graph, c * int(np.prod(kernel))))


@case
def large_kernel(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    kernel = [int(k) for k in rng.integers(8, 13, 2)]
    x = graph.input([1, kernel[0] + size(rng, 5), kernel[1] + size(rng, 5), size(rng, 24)])
    acc = conv2d(graph, x, size(rng, 20), kernel, rng)
    return graph, graph.rescale(acc, scales(rng, acc, graph, 2000))


@case
def fully_connected(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    x = graph.input([size(rng, 4), 1, 1, size(rng, 300)])
    acc = conv2d(graph, x, size(rng, 300), (1, 1), rng, input_zp=int(rng.integers(-128, 128)))
    return graph, graph.rescale(acc, 3e-3, output_zp=5)


@case
def many_channels(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Weights that are brought to fast memory in slices."""
    graph = TosaGraph()
    x = graph.input([1, 7, 7, int(rng.integers(150, 260))])
    acc = conv2d(graph, x, int(rng.integers(150, 260)), (3, 3), rng, pad=(1, 1, 1, 1))
    return graph, graph.rescale(acc, scales(rng, acc, graph, 2700))


@case
def clamped(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph, y = _convolution(rng, "conv")
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
    values = attribute(
        "Clamp",
        min_val=np.array([low], np.int8).view(np.uint8).tolist(),
        max_val=np.array([high], np.int8).view(np.uint8).tolist(),
        nan_mode=ts.NanPropagationMode.PROPAGATE,
    )
    return graph, graph.op("CLAMP", [y], graph.shapes[y], "int8", values)


@case
def cascade(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    """Two convolutions that may share a rolling buffer."""
    graph = TosaGraph()
    x = graph.input([1, 40, 40, 8])
    zp = int(rng.integers(-128, 128))
    acc = conv2d(graph, x, 32, (3, 3), rng, pad=(1, 1, 1, 1))
    h = graph.rescale(acc, scales(rng, acc, graph, 72), output_zp=zp)
    acc = conv2d(graph, h, 1, (3, 3), rng, pad=(1, 1, 1, 1), input_zp=zp, kind="depthwise")
    h = graph.rescale(acc, scales(rng, acc, graph, 9))
    acc = conv2d(graph, h, size(rng, 24), (1, 1), rng)
    return graph, graph.rescale(acc, scales(rng, acc, graph, 32))


@case
def matmul(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    n, h, c, w = size(rng, 4), size(rng, 20), size(rng, 40), size(rng, 20)
    a, b = graph.input([n, h, c]), graph.input([n, c, w])
    zps = [graph.const([int(z)], "int8") for z in rng.integers(-128, 128, 2)]
    acc = graph.op("MATMUL", [a, b, *zps], [n, h, w], "int32", attribute("MatMul"))
    return graph, graph.rescale(acc, 1e-3, output_zp=-7)


def _pool(rng: np.random.Generator, mode: str, dtype: str) -> tuple[TosaGraph, str]:
    graph = TosaGraph()
    sizes, kernel, pad, stride, _ = windows(rng, 6 if mode == "MAX" else 9, 1)
    x = graph.input([1, *sizes, size(rng, 40)], dtype)
    shape = [
        1,
        *((sizes[i] + pad[2 * i] + pad[2 * i + 1] - kernel[i]) // stride[i] + 1 for i in range(2)),
        graph.shapes[x][3],
    ]
    common = {"kernel": kernel, "stride": stride, "pad": pad}
    if mode == "MAX":
        values = attribute("MaxPool2d", **common, nan_mode=ts.NanPropagationMode.PROPAGATE)
        return graph, graph.op("MAX_POOL2D", [x], shape, dtype, values)
    values = attribute("AvgPool2d", **common, acc_type=ts.DType.INT32)
    zp = int(rng.integers(-128, 128)) if dtype == "int8" else 0
    operands = [x, graph.const([zp], dtype), graph.const([zp], dtype)]
    return graph, graph.op("AVG_POOL2D", operands, shape, dtype, values)


@case
def max_pool(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _pool(rng, "MAX", "int8")


@case
def max_pool_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _pool(rng, "MAX", "int16")


@case
def average_pool(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _pool(rng, "AVERAGE", "int8")


@case
def average_pool_int16(rng: np.random.Generator) -> tuple[TosaGraph, str]:
    return _pool(rng, "AVERAGE", "int16")
