"""Quantization that users ask for by other ways than a layer's own pattern: it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import by_rows
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from quantized import QCINT4, QCINT8, node_types, output_step, pt2e, reference
from torch import nn

import edgewise
from edgewise.backends.xnnpack import (
    ConfigPrecisionType,
    XnnpackPartitioner,
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from edgewise.backends.xnnpack.lowering.weight_only import PADDED
from edgewise.quantize import quantize
from support import Fn, assert_close, kinds, payloads

IMAGE = (1, 8, 13, 17)
IN_FLOAT = {"AvgPooling2d"}

MOVES: dict[str, Any] = {
    "dropout in place": lambda x: F.dropout(x, 0.5, False, True),
    "dropout of channels": lambda x: F.dropout2d(x, 0.5, False),
    "detached": lambda x: x.detach(),
    "expand_as": lambda x: x[:, :, :1].expand_as(x),
    "movedim": lambda x: x.movedim(2, 3),
    "moveaxis": lambda x: x.moveaxis((2, 3), (3, 2)),
    "swapaxes": lambda x: x.swapaxes(2, 3),
    "narrow": lambda x: x.narrow(2, 1, 4),
    "pixel shuffle": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2),
    "unflatten": lambda x: x.flatten(1).unflatten(1, (8, 13, 17)),
    "view_as": lambda x: x.view_as(x),
    "channel shuffle": lambda x: torch.channel_shuffle(x, 2),
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "split": lambda x: torch.cat(x.split((1, 2, 5), 1)[::-1], 1),
    "flip": lambda x: x.flip(2),
    "roll": lambda x: x.roll(1, 2),
    "repeat": lambda x: x.repeat(1, 1, 2, 1),
}


def between_convolutions(move: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), Fn(move), nn.Conv2d(8, 4, 1))


def by_distance(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(columns) - torch.arange(rows)[:, None] + rows - 1


def with_weights(function: Any, **weights: torch.Tensor) -> nn.Module:
    """Which are parameters, as a layer's."""
    return Fn(function, **{name: nn.Parameter(weight) for name, weight in weights.items()})


STATIC: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "x @ weights": (with_weights(lambda x, w: x @ w, w=torch.randn(8, 12)), (3, 4, 8)),
    "x @ computed weights": (
        with_weights(lambda x, w: x @ F.layer_norm(w, (8,)).mT, w=torch.randn(12, 8)),
        (3, 4, 8),
    ),
    "layers of volumes": (
        nn.Sequential(
            Fn(lambda x: x * 0.5), nn.Conv3d(2, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)
        ),
        (1, 2, 6, 8, 4),
    ),
    "relative positions": (
        with_weights(
            lambda x, w: (x @ w).gather(-1, by_distance(4, 6).expand(3, 4, 6)), w=torch.randn(8, 12)
        ),
        (3, 4, 8),
    ),
    "x * number": (Fn(lambda x: x * 0.37), IMAGE),
    "x + number": (Fn(lambda x: x + 0.37), IMAGE),
    "x - number": (Fn(lambda x: x - 1.5), IMAGE),
    "number - x": (Fn(lambda x: 1 - x), IMAGE),
    "x / number": (Fn(lambda x: x / 3), IMAGE),
    "x *= number": (Fn(lambda x: (x + x).mul_(-2)), IMAGE),
    "x += number, with alpha": (Fn(lambda x: (x + x).add_(0.1, alpha=3)), IMAGE),
    "pooling to one, alone": (nn.AdaptiveAvgPool2d(1), IMAGE),
    "pooling first": (nn.Sequential(nn.AdaptiveAvgPool2d((13, 1)), nn.Conv2d(8, 8, 1)), IMAGE),
    "padding that does not count": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "padding that counts": (nn.AvgPool2d(3, 1, 1), IMAGE),
    "sizes that do not divide": (nn.AdaptiveAvgPool2d((5, 7)), IMAGE),
    "sizes that do not divide, between layers": (
        nn.Sequential(
            nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d((5, 7)), nn.Conv2d(8, 4, 1)
        ),
        IMAGE,
    ),
    **{f"{name}, between layers": (between_convolutions(m), IMAGE) for name, m in MOVES.items()},
}


@pytest.mark.parametrize("name", STATIC)
def test_integers_in_integers_out_within_a_step(name: str) -> None:
    torch.manual_seed(1)
    model, shape = STATIC[name]
    x = torch.randn(shape)
    exported = quantize(model.eval(), (x,), "int8", XNNPACKQuantizer, calibration=[x])
    want = exported.module()(x).detach().numpy()
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    report = edge.delegation_report()
    assert report.share() == 1
    told = {note for n in report.nodes for note in n.notes}
    # On this runtime only; in floats between quantized values; a larger file.
    noted = ("in groups of 32", "Int8StaticActivationInt8WeightConfig", "8da4w in groups of 16")
    assert len(told) == (name in noted)
    buffer = edge.to_executorch().buffer
    (graph,) = payloads(buffer)
    assert kinds(graph).count("Convert") == 2
    assert not IN_FLOAT.intersection(kinds(graph))
    step = [n.args[1] for n in exported.graph.nodes if "dequantize_per_tensor" in str(n.target)][-1]
    got = np.asarray(edgewise.load(buffer)(x))
    # Behind several layers, a step of one is some steps of the next one's results.
    most = 4 if "layers" in name else 1
    assert np.abs(got - want).max() <= 1.001 * most * step  # type: ignore[operator]


EAGER, LAYERS, PROGRAM = "eager", "layers", "program"


def _configs(rank: int = 2) -> dict[str, tuple[Any, str]]:
    """Each with what the result is compared with: torchao's, or what `by_rows` makes of the layers
    or of the program, where XNNPACK finds scales of activations by a rule of its own.

    rank: of the activations.
    """
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8DynamicActivationIntxWeightConfig,
        Int8StaticActivationInt8WeightConfig,
        Int8WeightOnlyConfig,
        PerGroup,
        PerRow,
        PerTensor,
    )

    four = {"weight_dtype": torch.int4, "weight_granularity": PerGroup(16)}
    dynamic = Int8DynamicActivationInt8WeightConfig
    static = {"act_quant_scale": torch.full((1,) * rank, 0.03), "granularity": PerTensor()}
    return {
        "Int8WeightOnlyConfig": (Int8WeightOnlyConfig(), EAGER),
        "one scale for the weights": (Int8WeightOnlyConfig(granularity=PerTensor()), EAGER),
        "in groups of 32": (Int8WeightOnlyConfig(granularity=PerGroup(32)), EAGER),
        "Int8DynamicActivationInt8WeightConfig": (dynamic(), LAYERS),
        "one scale for all": (dynamic(granularity=PerTensor()), LAYERS),
        "a scale a row, one for the weights": (
            dynamic(granularity=[PerRow(), PerTensor()]),
            LAYERS,
        ),
        "Int8StaticActivationInt8WeightConfig": (
            Int8StaticActivationInt8WeightConfig(**static),
            EAGER,
        ),
        "8da4w in groups of 16": (Int8DynamicActivationIntxWeightConfig(**four), PROGRAM),
    }


@pytest.mark.parametrize("unwrapped", [False, True], ids=["", "unwrapped by the caller"])
@pytest.mark.parametrize(
    ("shape", "outputs", "bias"),
    [((4, 64), 64, True), ((2, 3, 64), 96, False), ((2, 3, 64), 1, True)],
    ids=["rows", "three dimensions", "one output"],
)
@pytest.mark.parametrize("name", _configs())
def test_linear_layers_of_quantize_are_products_of_integers(
    name: str, shape: tuple[int, ...], outputs: int, bias: bool, unwrapped: bool
) -> None:
    from torchao.quantization import quantize_
    from torchao.utils import unwrap_tensor_subclass

    config, kind = _configs(len(shape))[name]
    torch.manual_seed(0)
    layers = nn.Linear(64, 320, bias=bias), nn.ReLU(), nn.Linear(320, outputs, bias=bias)
    model, x = nn.Sequential(*layers).eval(), torch.randn(shape)
    size = len(edgewise.compile(model, x, verbose=False).buffer)
    quantize_(model, config)
    most = model[2].weight.dequantize().abs().max()
    want = [by_rows.of_layers(model, x) if kind == LAYERS else model(x).detach()]
    if unwrapped:
        unwrap_tensor_subclass(model)
    exported = torch.export.export(model, (x,))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    if kind == PROGRAM:
        want = by_rows.reference(exported, (x,))
    report = edge.delegation_report()
    assert report.share() == 1
    told = {note for n in report.nodes for note in n.notes}
    # On this runtime only; in floats between quantized values; a larger file.
    noted = ("in groups of 32", "Int8StaticActivationInt8WeightConfig", "8da4w in groups of 16")
    assert len(told) == (name in noted)
    buffer = edge.to_executorch().buffer
    assert len(buffer) < 0.45 * size
    # What lies between two steps of the given scale may be rounded to either.
    off = 0.03 * float(most) if name == "Int8StaticActivationInt8WeightConfig" else 4e-6
    assert_close([edgewise.load(buffer)(x)], want, rel=1e-5, floor=off, inputs=(x,))


@pytest.mark.parametrize("size", [8, 16, 24, 32, 48, 64, 96])
def test_groups_that_are_filled_up_are_told(size: int) -> None:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    model, x = nn.Sequential(nn.Linear(192, 40)).eval(), (torch.randn(3, 192),)
    four = {"weight_dtype": torch.int4, "weight_granularity": PerGroup(size)}
    quantize_(model, Int8DynamicActivationIntxWeightConfig(**four))
    exported = torch.export.export(model, x)
    program = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    notes = [note for n in program.delegation_report().nodes for note in n.notes]
    assert notes == ([] if size % 32 == 0 else [PADDED])
    got = edgewise.load(program.to_executorch().buffer)(*x)
    assert_close([got], by_rows.reference(exported, x), rel=1e-5, floor=4e-6, inputs=x)


def test_weights_in_groups_of_16_without_activations_are_said_to_be_floats() -> None:
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_

    model = nn.Sequential(nn.Linear(64, 32)).eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16)))
    exported = torch.export.export(model, (torch.randn(2, 64),))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    assert "weights are floating point in the file" in str(edge.delegation_report())


@pytest.mark.parametrize("shape", [(4, 16), (2, 3, 16)], ids=["rows", "three dimensions"])
def test_float_partitions_leave_out_what_is_quantized_at_run_time(shape: tuple[int, ...]) -> None:
    exported = pt2e(nn.Linear(16, 8), (torch.randn(shape),), dynamic=True, ours=True)
    partitioner = XnnpackPartitioner(config_precisions=ConfigPrecisionType.FP32)
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert edge.delegation_report().delegates == []


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_part_of_the_range_is_delegated(dynamic: bool) -> None:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    model, x = nn.Linear(16, 8), torch.randn(4, 16)
    config = get_symmetric_quantization_config(True, is_dynamic=dynamic, act_qmin=-127)
    graph = torch.export.export(model, (x,)).module()
    prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    prepared(x)
    exported = torch.export.export(convert_pt2e(prepared), (x,))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    assert edge.delegation_report().share() == 1
    got = [edgewise.load(edge.to_executorch().buffer)(3 * x)]
    if dynamic:
        assert_close(got, by_rows.reference(exported, (3 * x,)), rel=1e-5, floor=4e-6)
    else:
        assert_close(got, reference(exported, (3 * x,)), rel=0, floor=1.001 * output_step(exported))


@pytest.mark.parametrize(
    ("make", "shape", "filter"),
    [
        (lambda: nn.Linear(24, 10), (3, 24), QCINT4),
        (lambda: nn.Linear(25, 10), (3, 25), QCINT8),
        (lambda: nn.Conv2d(4, 6, 3), (1, 4, 6, 5), QCINT8),
    ],
    ids=["linear", "linear of odd rows", "convolution"],
)
def test_4_bits_a_channel_are_8_where_there_is_no_kernel(
    make: Callable[[], nn.Module], shape: tuple[int, ...], filter: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    exported = pt2e(make(), (x,), dynamic=True, ours=True, weight_qmin=-8, weight_qmax=7)
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    assert edge.delegation_report().share() == 1
    buffer = edge.to_executorch().buffer
    (graph,) = payloads(buffer)
    (types,) = [types for kind, types in node_types(graph) if "Conv2d" in kind or "Fully" in kind]
    assert types[1] == filter
    got = [edgewise.load(buffer)(x)]
    assert_close(got, by_rows.reference(exported, (x,)), rel=1e-5, floor=4e-6)


def test_float8_weights_are_told() -> None:
    """Nothing multiplies by them: the file holds float32, and who asked learns it."""
    from torchao.quantization import Float8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 16)).eval(), torch.randn(2, 32)
    quantize_(model, Float8WeightOnlyConfig())
    exported = torch.export.export(model, (x,))
    with pytest.warns(UserWarning, match=r"float32 in the file.* got 0\.weight \(float8_e4m3fn\)"):
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    got = np.asarray(edgewise.load(edge.to_executorch().buffer)(x))
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
