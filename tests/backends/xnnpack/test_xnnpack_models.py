"""The example models: one delegate and no other operator; transposes only where they must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import edgewise
from support import export, kinds, operators, payloads

# Model | layers of attention.
MODELS = {"mobilenet_v2": 0, "mobilenet_v3_small": 0, "resnet18": 0, "resnet50": 0, "vit_b_16": 12}


@pytest.fixture(scope="module", params=MODELS)
def lowered(request: pytest.FixtureRequest) -> tuple[str, Any]:
    from examples.models import MODELS as SPECS

    spec = SPECS[request.param]
    # Values do not matter here: no statistics are measured, which would take most of the time.
    program = edgewise.compile(export(spec.factory(), spec.example_inputs(0)))
    return request.param, program


def test_one_delegate_and_no_other_operator(lowered: tuple[str, Any]) -> None:
    _, program = lowered
    assert operators(program.buffer) == ["delegate"]
    report = program.delegation_report()
    assert report.share() == 1
    assert len(report.delegates) == 1


def test_transposes(lowered: tuple[str, Any]) -> None:
    """The image comes as planes and is turned once. Attention turns query, key, value and its
    result, for heads are split from channels."""
    name, program = lowered
    (graph,) = payloads(program.buffer)
    found = kinds(graph)
    heads = 4 * MODELS[name]
    assert found.count("StaticTranspose") == 1 + heads
    assert found[0] == "StaticTranspose"


def test_activations_are_fused_and_norms_folded(lowered: tuple[str, Any]) -> None:
    name, program = lowered
    (graph,) = payloads(program.buffer)
    found = kinds(graph)
    if name in ("mobilenet_v2", "resnet18", "resnet50"):
        assert "Clamp" not in found
        convolutions = {"mobilenet_v2": 52, "resnet18": 20, "resnet50": 53}[name]
        assert found.count("Conv2d") + found.count("DepthwiseConv2d") == convolutions
        assert len(found) < convolutions + 25
    assert "Copy" not in found


FORMS = {
    "channels-last input": (False, True, 0),
    "half": (True, False, 1),
    "half, channels-last input": (True, True, 0),
}


@pytest.mark.parametrize(("half", "channels_last", "transposes"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", [name for name, layers in MODELS.items() if layers == 0])
def test_transposes_of_other_forms(
    name: str, half: bool, channels_last: bool, transposes: int
) -> None:
    """An image that lies channels-last already is not turned."""
    from examples.models import MODELS as SPECS

    model, (image,) = SPECS[name].factory(), SPECS[name].example_inputs(0)
    if half:
        model, image = model.half(), image.half()
    if channels_last:
        image = image.to(memory_format=torch.channels_last)
    (graph,) = payloads(edgewise.compile(export(model, (image,)), verbose=False).buffer)
    assert kinds(graph).count("StaticTranspose") == transposes
