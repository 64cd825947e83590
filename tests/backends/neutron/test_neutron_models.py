"""Whole models: all of the work on the NPU, and every operator within one step of PT2E."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from neutron_reference import by_operator, parts

import edgewise
from edgewise.backends.neutron import (
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.edge.program import Constants
from edgewise.quantize.flow import quantize
from edgewise.runtime import load
from examples.models import MODELS

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert

NOISE = {
    "resnet8": 30,
    "ds_cnn": 25,
    "mobilenet_v1_025": 20,
    "autoencoder": 35,
    "mobilenet_v2": 10,
}
"""Smallest signal to noise of the whole program against PT2E, in dB, with random weights."""

MOST_DIFFERENT = {"mean": 0.2}
"""Share of results that may be rounded otherwise; of others one in a hundred."""


@pytest.mark.parametrize("name", NOISE)
def test_model(name: str) -> None:
    spec = MODELS[name]
    inputs = spec.example_inputs(1)
    batches = [spec.example_inputs(seed) for seed in (1, 2, 3)]
    program = quantize(
        spec.build(0), inputs, "int8", NeutronQuantizer, calibration=batches, progress=False
    )
    options = generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="reference")
    (part,) = parts(program, NeutronPartitioner(options))
    constants = Constants(part)
    rng = np.random.default_rng(0)
    given = [
        np.clip(rng.normal(0, 40, tuple(n.meta["val"].shape)), -128, 127).astype(np.int8)
        for n in part.graph.nodes
        if n.op == "placeholder" and n not in constants
    ]
    for operator, difference in by_operator(part, given).items():
        assert difference.steps <= 1, operator
        assert difference.different <= MOST_DIFFERENT.get(operator, 0.01) * difference.elements
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[NeutronPartitioner(options)])
    made = edge.to_executorch()
    assert made.delegation_report().share("macs") == 1
    with torch.no_grad():
        expected = program.module()(*inputs).double().numpy()
    noise = np.asarray(load(bytes(made.buffer))(*inputs)) - expected
    assert np.square(noise).sum() <= np.square(expected).sum() * 10 ** (-NOISE[name] / 10)
