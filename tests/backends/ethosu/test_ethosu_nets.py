"""Whole networks in the simulator against the TOSA reference model, bit by bit."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

pytest.importorskip("ethosu", reason="extra [ethosu]")
pytest.importorskip("tosa_serializer", reason="extra [ethosu]")

from tosa_graph import reference
from tosa_nets import NETS

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.simulator import Simulator


@lru_cache(maxsize=1)
def build(name: str) -> tuple[bytes, list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    graph, y = NETS[name](rng)
    blob = graph.finish(y)
    inputs = graph.random(rng)
    return blob, inputs, reference(blob, inputs)[0]


@pytest.mark.parametrize(
    "target", ["ethos-u55-128", "ethos-u65-256", "ethos-u65-512", "ethos-u85-256"]
)
@pytest.mark.parametrize("name", NETS)
def test_net_is_the_reference(name: str, target: str) -> None:
    blob, inputs, expected = build(name)
    assert len(np.unique(expected)) > 5  # the network is not dead
    (actual,) = Simulator(vela.compile_tosa(blob, target).program).run(inputs)
    np.testing.assert_array_equal(actual.reshape(expected.shape), expected)
