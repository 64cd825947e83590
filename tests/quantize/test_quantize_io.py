"""Programs whose inputs and outputs are integers: the same numbers as with floats, on every
target and on ExecuTorch's runtime, and constant methods that say what they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.quantize.flow import quantize
from edgewise.registry import quantizer_for
from edgewise.runtime import Runtime

BACKENDS = {
    "xnnpack": None,
    "ethos-u55-128": "ethosu",
    "ethos-u85-256": "ethosu",
    "neutron-imxrt700-reference": "ai_edge_litert",
}
KEYS = ("scale", "zp", "quant_min", "quant_max", "dtype")
INT8 = 1


class Net(nn.Module):
    """An image, and an index that stays one; two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 5)
        self.table = nn.Embedding(4, 5)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x).relu()
        return self.head(y.flatten(1)) + self.table(i), y


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(1, 3, 8, 8), torch.tensor([seed % 4])


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def compiled(net: nn.Module, backend: str, **options: Any) -> edgewise.ExecutorchProgramManager:
    options = {"quantize": "int8", "calibration": [inputs(1), inputs(2)]} | options
    return edgewise.compile(net, inputs(1), backend=backend, verbose=False, **options)


def constants(buffer: bytes, kind: str, index: int) -> list[Any]:
    program = Runtime.get().load_program(buffer)
    return [program.load_method(f"{kind}{index}_{key}").execute([])[0] for key in KEYS]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_numbers(net: Net, backend: str) -> None:
    if BACKENDS[backend]:
        pytest.importorskip(BACKENDS[backend])
    floats = edgewise.load(compiled(net, backend).buffer)
    made = compiled(net, backend, quantized_inputs=True, quantized_outputs=True)
    integers = edgewise.load(made.buffer)
    scale, zero, low, high, dtype = constants(made.buffer, "input", 0)
    assert (low, high, dtype) == (-128, 127, INT8)
    for seed in (1, 5):
        x, i = inputs(seed)
        stored = np.clip(np.rint(x.numpy() / np.float32(scale)) + zero, low, high).astype(np.int8)
        for index, (y, expected) in enumerate(zip(integers(stored, i), floats(x, i), strict=True)):
            assert y.dtype == np.int8
            scale_y, zero_y, *_ = constants(made.buffer, "output", index)
            real = (y.astype(np.float32) - zero_y) * np.float32(scale_y)
            np.testing.assert_allclose(real, expected, rtol=1e-6, atol=1e-6)
    borders = [n for n in made.delegation_report().nodes if "quantize_per_tensor" in n.operator]
    table = "the embedding's result, which a target without gather quantizes on the CPU"
    assert sum(not n.partition for n in borders) <= 2, table


class ChannelsLast(nn.Module):
    """As a camera gives an image, and with results that are moved."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x.permute(0, 3, 1, 2)).relu()
        return self.head(y.flatten(1)).reshape(2, 3).transpose(0, 1), y.permute(0, 2, 3, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_moved_before_and_behind(backend: str) -> None:
    if BACKENDS[backend]:
        pytest.importorskip(BACKENDS[backend])
    torch.manual_seed(0)
    model, x = ChannelsLast().eval(), torch.randn(1, 8, 8, 3)
    options: dict[str, Any] = {"backend": backend, "quantize": "int8", "calibration": [(x,)]}
    floats = edgewise.load(edgewise.compile(model, (x,), verbose=False, **options).buffer)
    both: dict[str, Any] = {"quantized_inputs": [0], "quantized_outputs": [0, 1]}
    made = edgewise.compile(model, (x,), verbose=False, **options, **both)
    report = made.delegation_report()
    assert (len(report.delegates), [n.operator for n in report.nodes if not n.partition]) == (1, [])
    scale, zero, *_ = constants(made.buffer, "input", 0)
    stored = np.clip(np.rint(x.numpy() / np.float32(scale)) + zero, -128, 127).astype(np.int8)
    found = edgewise.load(made.buffer)(stored)
    for index, (y, expected) in enumerate(zip(found, floats(x), strict=True)):
        scale, zero, *_ = constants(made.buffer, "output", index)
        real = (y.astype(np.float32) - zero) * np.float32(scale)
        np.testing.assert_allclose(real, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.peer
def test_on_the_runtime_of_executorch(net: Net) -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    buffer = compiled(net, "xnnpack", quantized_inputs=[0], quantized_outputs=[1]).buffer
    stored = torch.randint(-128, 128, (1, 3, 8, 8), dtype=torch.int8)
    index = torch.tensor([3])
    module = _load_for_executorch_from_buffer(buffer)  # which it reads while it runs
    there = module.forward((stored, index))
    here = edgewise.load(buffer)(stored, index)
    assert [y.dtype for y in there] == [torch.float32, torch.int8]
    np.testing.assert_allclose(here[0], there[0].numpy(), rtol=1e-6)
    np.testing.assert_array_equal(here[1], there[1].numpy())
    assert module.run_method("output1_dtype", ())[0] == INT8
    assert "output0_scale" not in module.method_names()


def quantized(net: nn.Module) -> torch.export.ExportedProgram:
    given = [inputs(1), inputs(2)]
    return quantize(net, inputs(1), "int8", quantizer_for("xnnpack"), calibration=given)


def test_in_steps(net: Net) -> None:
    """On a manager, before XNNPACK takes the quantization into its delegate."""
    edge = edgewise.to_edge(quantized(net)).quantize_io(method_name="forward")
    assert edge.config_methods >= {"forward_input0_scale", "forward_output1_zp"}
    made = edge.to_backend(XnnpackPartitioner()).to_executorch()
    whole = compiled(net, "xnnpack", quantized_inputs=True, quantized_outputs=True)
    stored = np.arange(3 * 64, dtype=np.int8).reshape(1, 3, 8, 8)
    ours, theirs = (edgewise.load(p.buffer)(stored, inputs(1)[1]) for p in (made, whole))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    (x, _), _ = edge.exported_program().example_inputs
    assert x.dtype == torch.int8


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1)


def test_an_open_batch() -> None:
    """Whose size is read of the input."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), Rows(), nn.Linear(16, 6)).eval()
    x = torch.randn(3, 2, 2, 2)
    made = edgewise.compile(
        model,
        (x,),
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=8)},),
        quantize="int8",
        calibration=[(x,)],
        quantized_inputs=True,
        quantized_outputs=True,
        verbose=False,
    )
    found = edgewise.load(made.buffer)(np.ones((5, 2, 2, 2), np.int8))
    assert (found.shape, found.dtype) == ((5, 6), np.int8)


# Options | what the error says.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an input of indices": ({"quantized_inputs": [1]}, r"input 1: read by aten.embedding"),
    "no such input": ({"quantized_inputs": [2]}, "below the number of inputs, 2; got 2"),
    "no index": ({"quantized_outputs": [True]}, "below the number of outputs, 2; got True"),
    "a float model": (
        {"quantized_inputs": True, "quantize": None, "calibration": None},
        "input 0: read by aten.conv2d.* try quantize='int8'",
    ),
    "a dynamic scheme": (
        {"quantized_outputs": [0], "quantize": "int8-dynamic", "calibration": None},
        "output 0: made by aten.add",
    ),
    "auto": ({"quantized_inputs": True, "quantize": "auto"}, "the scheme that it chose"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(net: Net, name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises((edgewise.errors.EdgewiseError, ValueError), match=message):
        compiled(net, "xnnpack", **options)


def test_one_of_several_methods(net: Net) -> None:
    program = quantized(net)
    edge = edgewise.to_edge({"a": program, "b": program})
    with pytest.raises(ValueError, match="method_name must be given for several methods"):
        edge.quantize_io()
    made = edge.quantize_io(inputs=[0], outputs=False, method_name="b")
    assert made.config_methods == {f"b_input0_{key}" for key in KEYS}


def test_what_a_delegate_quantizes(net: Net) -> None:
    edge = edgewise.to_edge_transform_and_lower(quantized(net), partitioner=[XnnpackPartitioner()])
    with pytest.raises(edgewise.errors.EdgewiseError, match=r"read by .*call_delegate"):
        edge.quantize_io(inputs=[0])
