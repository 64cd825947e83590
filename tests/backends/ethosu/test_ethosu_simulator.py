"""The simulator against the TOSA reference model, bit by bit.

Graphs are random: shapes, kernels, padding, zero points, scales, values.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

pytest.importorskip("ethosu", reason="extra [ethosu]")
pytest.importorskip("tosa_serializer", reason="extra [ethosu]")

from tosa_all_cases import CASES, U85_CASES
from tosa_graph import reference

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.simulator import Simulator

SEEDS = 5
TARGETS = {
    "u55": ("ethos-u55-128", "ethos-u55-32", "ethos-u55-256"),
    "u65": ("ethos-u65-256", "ethos-u65-512"),
    "u85": ("ethos-u85-256", "ethos-u85-128", "ethos-u85-1024"),
}


@lru_cache(maxsize=1)
def build(name: str, seed: int) -> tuple[bytes, list[np.ndarray], np.ndarray]:
    """A graph, its inputs, and what the reference model computes."""
    rng = np.random.default_rng([seed, len(name)])
    graph, y = {**CASES, **U85_CASES}[name](rng)
    blob = graph.finish(y)
    inputs = graph.random(rng)
    return blob, inputs, reference(blob, inputs)[0]


def check(name: str, target: str, seed: int) -> None:
    blob, inputs, expected = build(name, seed)
    simulator = Simulator(vela.compile_tosa(blob, target).program)
    (actual,) = simulator.run(inputs)
    np.testing.assert_array_equal(actual.reshape(expected.shape), expected, f"seed {seed}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", TARGETS)
def test_is_the_reference(family: str, name: str) -> None:
    for seed in range(SEEDS):
        for target in TARGETS[family]:
            check(name, target, seed)


@pytest.mark.parametrize("name", U85_CASES)
def test_u85_is_the_reference(name: str) -> None:
    for seed in range(SEEDS):
        for target in TARGETS["u85"]:
            check(name, target, seed)


@pytest.mark.parametrize("name", ["convolution", "depthwise", "many_channels", "convolution_int16"])
def test_every_target_orders_weights_in_its_way(name: str) -> None:
    for target in vela.TARGETS:
        check(name, target, seed=9)


@pytest.mark.parametrize("name", ["convolution", "depthwise", "many_channels", "convolution_int16"])
def test_u85_without_fast_weights(name: str) -> None:
    """The codec of U55 in the order of U85, one stream a decoder."""
    blob, inputs, expected = build(name, 8)
    for target in ("ethos-u85-256", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048"):
        program = vela.compile_tosa(blob, target, flags=["--disable-fwd"]).program
        (actual,) = Simulator(program).run(inputs)
        np.testing.assert_array_equal(actual.reshape(expected.shape), expected, target)
