"""What `read_contents` says of files, next to what the runtime and the emitter know."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.inspect import read_contents
from edgewise.runtime import Runtime


class Net(torch.nn.Module):
    """A delegate, a kernel, a delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.cumsum(torch.relu(self.conv(x)).mean((2, 3)), 1))
        return y


class Counter(torch.nn.Module):
    """State."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)
        return self.seen * 2


IMAGE = (torch.randn(2, 3, 8, 8),)


def lowered(model: torch.nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    return edgewise.compile(model.eval(), inputs, verbose=False, **options)


PROGRAMS = {
    "delegates": lambda: lowered(Net(), IMAGE),
    "kernels": lambda: lowered(Net(), IMAGE, backend="none"),
    "int8": lambda: lowered(Net(), IMAGE, quantize="int8", calibration=[IMAGE]),
    "state": lambda: lowered(Counter(), (torch.ones(2),), backend="none"),
    "dynamic": lambda: lowered(
        Net(), IMAGE, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=4)},)
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_the_runtime_says(name: str) -> None:
    data = PROGRAMS[name]().buffer
    contents = read_contents(data)
    assert sum(contents.sizes.values()) == contents.nbytes == len(data)
    program = Runtime.get().load_program(data)
    assert {method.name for method in contents.methods} == program.method_names
    for method in contents.methods:
        told = program.metadata(method.name)
        assert len(method.instructions) == told.instruction_count
        assert tuple(method.arenas) == tuple(told.planned_memory)
        assert set(method.kernels) == set(told.operators)
        sizes = [(d.backend, d.payload_bytes) for d in method.delegates]
        assert sizes == [(d.backend, d.payload_bytes) for d in told.delegates]
        for index, value in enumerate(method.inputs):
            info = told.input_tensor_meta(index)
            facts = (value.dtype, tuple(value.shape), value.nbytes, value.dynamism)
            assert facts == (info.dtype_name, info.sizes(), info.nbytes(), info.dynamism)


def test_graphs() -> None:
    """Constants of a delegate are the model's weights; every value is known by its name."""
    program = PROGRAMS["delegates"]()
    (method,) = read_contents(program.buffer).methods
    assert [step.kind for step in method.instructions] == ["delegate", "kernel", "delegate"]
    weights = sum(p.numel() * 4 for p in Net().parameters())
    found = [t for d in method.delegates if d.graph for t in d.graph.tensors]
    assert sum(t.nbytes for t in found if t.role == "constant") == weights
    for delegate in method.delegates:
        assert delegate.graph is not None
        names = {t.name for t in delegate.graph.tensors}
        for node in delegate.graph.nodes:
            assert set(node.inputs + node.outputs) <= names
    quantized = read_contents(PROGRAMS["int8"]().buffer).methods[0].delegates[0].graph
    assert quantized is not None
    scales = [t.quantization for t in quantized.tensors if t.dtype == "qcint8"]
    assert scales == ["8 scales along dimension 0"]


def test_plan() -> None:
    """Tensors that live at the same time lie apart; state lasts from the first to the last step."""
    for name in ("kernels", "state"):
        (method,) = read_contents(PROGRAMS[name]().buffer).methods
        assert method.plan
        for one in method.plan:
            assert one.offset + one.nbytes <= method.arenas[one.arena - 1]
            for other in method.plan:
                together = one.first <= other.last and other.first <= one.last
                apart = (
                    one.offset + one.nbytes <= other.offset
                    or other.offset + other.nbytes <= one.offset
                    or one.arena != other.arena
                )
                in_place = one.last == other.first or other.last == one.first
                assert one is other or apart or in_place or not together
    state = [p for p in method.plan if method.values[p.value].place == "state"]
    assert [(p.first, p.last) for p in state] == [(0, len(method.instructions) - 1)]


def test_data_files(tmp_path: Path) -> None:
    exported = torch.export.export(Net().eval(), IMAGE)
    program = edgewise.to_edge_transform_and_lower(exported).to_executorch(
        edgewise.ExecutorchBackendConfig(external_constants=True)
    )
    program.write_tensor_data_to_file(tmp_path)
    (file,) = tmp_path.glob("*.ptd")
    contents = read_contents(file)
    # The head's weight is stored transposed, under another name.
    named = {n: p.numel() * 4 for n, p in Net().named_parameters()}
    kept = {n: size for n, size in contents.named_data.items() if n in named}
    assert kept == {n: size for n, size in named.items() if n != "head.weight"}
    assert sum(contents.named_data.values()) >= sum(named.values())
    assert sum(contents.sizes.values()) == file.stat().st_size
    (method,) = read_contents(program.buffer).methods
    assert {v.name for v in method.constants} <= set(contents.named_data)
    assert {v.place for v in method.constants} == {"data file"}


@pytest.mark.parametrize("name", ["delegates", "kernels"])
def test_damaged_files(name: str) -> None:
    """Whatever the bytes: contents, or a ValueError that says where."""
    whole = bytearray(PROGRAMS[name]().buffer)
    end = min(len(whole), 4096)  # weights follow
    generator = random.Random(0)
    refusals = []
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 8)):
            at = generator.randrange(end)
            data[at] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
        if generator.random() < 0.2:
            del data[generator.randrange(8, len(data)) :]
        try:
            read_contents(bytes(data))
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert all(told.startswith("[") for told in refusals)


@pytest.mark.peer
def test_files_of_the_peer() -> None:
    pytest.importorskip("executorch", reason="extra [peer]")
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackPartitioner as PeerPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    exported = torch.export.export(Net().eval(), IMAGE)
    theirs = to_edge_transform_and_lower(exported, partitioner=[PeerPartitioner()])
    ours = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    found = []
    for file in (theirs.to_executorch().buffer, ours.to_executorch().buffer):
        contents = read_contents(bytes(file))
        assert sum(contents.sizes.values()) == len(file)
        (method,) = contents.methods
        graphs = [d.graph for d in method.delegates]
        assert all(graph is not None for graph in graphs)
        kinds = [node.kind for graph in graphs if graph for node in graph.nodes]
        found.append((kinds.count("Conv2d"), kinds.count("FullyConnected")))
        assert method.kernels["aten::cumsum.out"] == 1
        assert math.prod(method.outputs[0].shape) == 8
    assert found[0] == found[1] == (1, 1)
