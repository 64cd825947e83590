"""Weights: their codes and orders, without a program.

The orders were written down from the published description of registers and encoders. Here that
of U55 and U65 is compared with tagged weights which Vela's own library put in order;
`test_ethosu_impulses.py` reads the weights of whole programs, those of U85 too, one by one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ethosu", reason="extra [ethosu]")

from ethosu import mlw_codec

from edgewise.backends.ethosu.simulator import NpuError, fwd, mlw
from edgewise.backends.ethosu.simulator.weight_order import Order, positions


def tagged_order(shape: tuple[int, ...], order: Order) -> np.ndarray:
    """Where each weight of the stream comes from, in digits of base 255; the total for none."""
    total = int(np.prod(shape))
    found = np.zeros(0, np.int64)
    for digit in range(3):
        tags = np.arange(total) // 255**digit % 255 + 1  # zero is for none
        stream = mlw_codec.reorder_encode(
            8,
            order.group_depth,
            tags.reshape(shape).astype(np.int16),
            order.block_depth,
            order.depthwise,
            order.part_kernel,
            order.input_bits,
            8 // order.dilation[0],
            8 // order.dilation[1],
        )[0]
        values = np.array(mlw_codec.decode(bytearray(stream)), np.int64)
        found = np.zeros(len(values), np.int64) if not len(found) else found
        found += np.where(values == 0, total, (values - 1) * 255**digit)
    return np.minimum(found, total)


@pytest.mark.parametrize("kind", ["part kernel", "depth first", "depthwise"])
@pytest.mark.parametrize("group_depth", [4, 8])
def test_order_is_that_of_tagged_weights(kind: str, group_depth: int) -> None:
    rng = np.random.default_rng(group_depth)
    cases = itertools.product((8, 16), (1, 2), range(3))
    for input_bits, dilation, _ in cases:
        out, inputs = (int(n) for n in rng.integers(1, 70, 2))
        kernel = [int(n) for n in rng.integers(1, 11, 2)]
        depthwise = kind == "depthwise"
        shape = (out, kernel[0], kernel[1], 1 if depthwise else inputs)
        order = Order(
            depthwise,
            kind == "part kernel",
            input_bits,
            int(rng.choice([8, 16, 32])),
            group_depth,
            (dilation, dilation),
        )
        expected, got = tagged_order(shape, order), positions(order, shape)
        np.testing.assert_array_equal(got, expected[: len(got)], str((shape, order)))
        assert np.all(expected[len(got) :] == np.prod(shape))


def weights(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    values: Any = {
        "all": lambda: rng.integers(-255, 256, count),
        "normal": lambda: np.round(rng.normal(0, 20, count)),
        "sparse": lambda: rng.integers(-127, 128, count) * (rng.random(count) < 0.1),
        "few": lambda: rng.choice([-77, 3, 0, 9], count),
        "one": lambda: np.full(count, 5),
        "none": lambda: np.zeros(count),
    }[kind]()
    return np.clip(values, -255, 255).astype(np.int16)


@pytest.mark.parametrize("kind", ["all", "normal", "sparse", "few", "one", "none"])
@pytest.mark.parametrize("count", [1, 17, 1000, 40000, 100001])
def test_decodes_what_the_codec_encodes(kind: str, count: int) -> None:
    expected = weights(np.random.default_rng(count), kind, count)
    stream = bytes(mlw_codec.encode(expected.tolist()))
    got = mlw.decode(stream)
    np.testing.assert_array_equal(got[:count], expected)
    assert not got[count:].any()
    np.testing.assert_array_equal(got, mlw_codec.decode(bytearray(stream)))


def test_damaged_weights_end() -> None:
    rng = np.random.default_rng(0)
    stream = bytes(mlw_codec.encode(weights(rng, "normal", 3000).tolist()))
    reasons = set()
    for _ in range(200):
        altered = bytearray(stream[: int(rng.integers(1, len(stream) + 1))])
        altered[int(rng.integers(0, len(altered)))] ^= 1 << int(rng.integers(0, 8))
        try:
            mlw.decode(bytes(altered))
        except NpuError as error:
            reasons.add(str(error).split(";")[0])
    assert reasons


@pytest.mark.parametrize(("raw", "small", "bits"), [(1, 0, 8), (0, 0, 4), (0, 1, 2)])
def test_fast_weights(raw: int, small: int, bits: int) -> None:
    """A stream put together as the format says: header, then codes."""
    rng = np.random.default_rng(bits)
    table = rng.integers(-255, 256, 16)
    codes = rng.integers(0, 1 << bits, 256)
    added = -100
    header = raw | small << 1 | (added & 0xFF) << 104
    for i, value in enumerate(table):
        header |= (abs(int(value)) << 1 | int(value < 0)) << 112 + 9 * i
    body = sum(int(code) << bits * i for i, code in enumerate(codes))
    data = header.to_bytes(32, "little") + body.to_bytes(256 * bits // 8, "little")
    expected = codes.astype(np.int8).astype(int) - added if raw else table[codes]
    np.testing.assert_array_equal(fwd.decode(data), expected)
    with pytest.raises(NpuError, match="header of 32 bytes"):
        fwd.decode(data[:31])
    with pytest.raises(NpuError, match="102 zero bits"):
        fwd.decode(bytes([data[0] | 0x80]) + data[1:])
