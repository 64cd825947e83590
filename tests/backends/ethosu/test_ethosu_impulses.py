"""Weights as the NPU sees them: read out of Vela's programs one by one, with an image of impulses.

Window n of the image has a single one, where the n-th weight of every output channel is
multiplied with it. Sums are outputs as they are. So this needs no reference, and a weight in a
wrong place cannot go unnoticed: weights are tags, that tell all of them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("ethosu", reason="extra [ethosu]")
pytest.importorskip("tosa_serializer", reason="extra [ethosu]")

import tosa_serializer as ts
from tosa_graph import TosaGraph, attribute

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.simulator import Simulator, disassemble

_TAGS = 251


@dataclass(frozen=True)
class Kernel:
    out: int
    """Output channels; of a depthwise kernel, which has one input channel, all."""
    size: tuple[int, int]
    inputs: int = 1
    stride: int = 1
    dilation: int = 1
    depthwise: bool = False
    bits: int = 8
    """Of the input."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.out, *self.size, self.inputs


# Odd channels and sizes; depth first (the first and by name) and part kernel first; kernels
# of more than 8 points a side, which come in parts.
KERNELS = {
    "one by one": Kernel(37, (1, 1), 83),
    "few inputs": Kernel(21, (3, 3), 3),
    "many inputs": Kernel(19, (3, 2), 77),
    "depth first": Kernel(19, (5, 2), 64),
    "depth first, 16 bits": Kernel(11, (5, 2), 64, bits=16),
    "many outputs": Kernel(151, (2, 2), 9),
    "large": Kernel(9, (9, 11), 5),
    "stride 2": Kernel(25, (3, 5), 7, stride=2),
    "stride 3": Kernel(13, (5, 4), 18, stride=3),
    "dilated": Kernel(17, (5, 3), 11, dilation=2),
    "16 bits": Kernel(23, (3, 3), 35, bits=16),
    "16 bits, few inputs": Kernel(23, (3, 3), 5, bits=16),
    "depthwise": Kernel(67, (3, 3), depthwise=True),
    "depthwise, large": Kernel(21, (9, 7), depthwise=True),
    "depthwise, stride 2": Kernel(35, (5, 3), stride=2, depthwise=True),
    "depthwise, 16 bits": Kernel(41, (3, 4), depthwise=True, bits=16),
}
SPARSE = {
    "depth first": Kernel(37, (1, 1), 128),
    "depth first, 16 bits": Kernel(37, (1, 1), 64, bits=16),
    "part kernel": Kernel(19, (5, 2), 64),
    "few inputs": Kernel(21, (3, 3), 4),
    "many inputs": Kernel(19, (3, 2), 148),
    "stride 2": Kernel(25, (3, 5), 8, stride=2),
    "16 bits": Kernel(23, (3, 3), 36, bits=16),
}
FAST, CODED = (), ("--disable-fwd",)
TARGETS = [
    ("ethos-u55-32", FAST),
    ("ethos-u55-128", FAST),
    ("ethos-u65-512", FAST),
    *[(f"ethos-u85-{macs}", flags) for macs in (128, 256, 512, 2048) for flags in (FAST, CODED)],
]


def windows(kernel: Kernel) -> int:
    """How many impulses it takes: a depthwise kernel's channels have one each at a time."""
    return kernel.size[0] * kernel.size[1] * kernel.inputs


def apart(kernel: Kernel) -> int:
    """In output columns, so that windows do not overlap."""
    return -(-((kernel.size[1] - 1) * kernel.dilation + 1) // kernel.stride)


def graph(kernel: Kernel, weights: np.ndarray) -> tuple[bytes, int]:
    """The convolution of an image of one row of windows, and the image's width."""
    g = TosaGraph()
    height, reach = ((k - 1) * kernel.dilation + 1 for k in kernel.size)
    columns = (windows(kernel) - 1) * apart(kernel) + 1
    width = (columns - 1) * kernel.stride + reach
    channels = kernel.out if kernel.depthwise else kernel.inputs
    wide = kernel.bits == 16
    x = g.input((1, height, width, channels), f"int{kernel.bits}")
    acc = "int48" if wide else "int32"
    operands = [
        x,
        g.const(weights.transpose(1, 2, 0, 3) if kernel.depthwise else weights, "int8"),
        g.const(np.zeros(kernel.out, np.int64), acc),
        g.const([0], g.types[x]),
        g.const([0], "int8"),
    ]
    values = attribute(
        "DepthwiseConv2d" if kernel.depthwise else "Conv2d",
        pad=[0] * 4,
        stride=[kernel.stride] * 2,
        dilation=[kernel.dilation] * 2,
        local_bound=False,
        acc_type=ts.DType.INT48 if wide else ts.DType.INT32,
    )
    name = "DEPTHWISE_CONV2D" if kernel.depthwise else "CONV2D"
    sums = g.op(name, operands, (1, 1, columns, kernel.out), acc, values)
    y = g.rescale(sums, 1.0, g.types[x], scale32=not wide)
    return g.finish(y), width


def impulses(kernel: Kernel, width: int) -> np.ndarray:
    height = (kernel.size[0] - 1) * kernel.dilation + 1
    channels = kernel.out if kernel.depthwise else kernel.inputs
    image = np.zeros((1, height, width, channels), f"int{kernel.bits}")
    points = np.ndindex(*kernel.size, kernel.inputs)
    for number, (y, x, channel) in enumerate(points):
        column = number * apart(kernel) * kernel.stride + x * kernel.dilation
        image[0, y * kernel.dilation, column, ... if kernel.depthwise else channel] = 1
    return image


def seen(kernel: Kernel, weights: np.ndarray, target: str, flags: tuple[str, ...]) -> np.ndarray:
    """[out, height, width, in], as the simulator computes with them."""
    blob, width = graph(kernel, weights)
    program = vela.compile_tosa(blob, target, flags=list(flags)).program
    (found,) = Simulator(program).run([impulses(kernel, width)])
    each = found.reshape(-1, kernel.out)[:: apart(kernel)]
    return each.T.reshape(kernel.shape)


def tags(kernel: Kernel) -> np.ndarray:
    return np.arange(np.prod(kernel.shape)).reshape(kernel.shape) % _TAGS - 125


def thinned(weights: np.ndarray) -> np.ndarray:
    """Of four along the input channels two are zero, not always the same."""
    thin = weights.copy()
    fours = thin.reshape(-1, 4)
    zeros = np.argsort(np.random.default_rng(0).random(fours.shape), 1)[:, :2]
    np.put_along_axis(fours, zeros, 0, 1)
    return thin


def listing(kernel: Kernel, target: str, flags: tuple[str, ...], sparse: bool = False) -> str:
    weights = tags(kernel)
    if sparse:
        weights = thinned(weights)
    return disassemble(
        vela.compile_tosa(graph(kernel, weights)[0], target, flags=[*flags]).program.commands
    )


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("depth first", "DEPTH_FIRST"),
        ("depth first, 16 bits", "DEPTH_FIRST"),
        ("16 bits", "PART_KERNEL_FIRST"),
    ],
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_both_orders_in_both_formats_are_met(name: str, order: str, sparse: bool) -> None:
    kernel = SPARSE[name] if sparse else KERNELS[name]
    fast, coded = (listing(kernel, "ethos-u85-256", flags, sparse) for flags in (FAST, CODED))
    assert "weight_format = WEIGHT_FORMAT_FWD" in fast
    assert "weight_format = WEIGHT_FORMAT_SWD" in coded
    assert all(f"weight_order = WEIGHT_ORDER_{order}" in text for text in (fast, coded))


@pytest.mark.parametrize("name", KERNELS)
def test_every_weight_is_in_its_place(name: str) -> None:
    kernel = KERNELS[name]
    number = np.arange(np.prod(kernel.shape)).reshape(kernel.shape)
    few = np.random.default_rng(len(name)).integers(-4, 5, kernel.shape)
    for weights in (number % _TAGS - 125, number // _TAGS % _TAGS - 125, few):
        for target, flags in TARGETS:
            got = seen(kernel, weights, target, flags)
            np.testing.assert_array_equal(got, weights, f"{target} {flags}")


@pytest.mark.parametrize("name", SPARSE)
def test_every_sparse_weight_is_in_its_place(name: str) -> None:
    """Of Ethos-U85, which streams them in an order of their own."""
    kernel = SPARSE[name]
    targets = [(target, flags) for target, flags in TARGETS if "u85" in target]
    weights = thinned(tags(kernel))
    for target, flags in targets:
        assert "WEIGHT_SPARSITY_SPARSE_2_4" in listing(kernel, target, flags, sparse=True), target
        np.testing.assert_array_equal(seen(kernel, weights, target, flags), weights, target)
