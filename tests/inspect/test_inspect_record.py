"""Records of compiled programs: what they say, and that they belong to their file."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.format.file import read
from edgewise.format.program import DelegateCall, KernelCall
from edgewise.inspect.record import (
    MethodRecord,
    NodeRecord,
    ProgramRecord,
    find_record,
    load_record,
    record_path,
)
from examples.models import MODELS
from support import lower


class Split(nn.Module):
    """What XNNPACK refuses (an argsort) between two products that it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Sequential(nn.Linear(8, 4), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = self.first(x).argsort(dim=1)
        return self.second(order.to(torch.float32))


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


class Dynamic(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).flatten()


def batch(name: str) -> dict[str, Any]:
    return {"dynamic_shapes": {"x": {0: torch.export.Dim(name, min=2, max=8)}}}


CASES: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {
    "split": (Split(), (torch.randn(2, 8),), {}),
    "branches": (Branches(), (torch.randn(3),), {}),
    "branches, kernels": (Branches(), (torch.randn(3),), {"partitioner": None}),
    "state": (Counter(), (torch.randn(4),), {"partitioner": None}),
    "dynamic": (Dynamic(), (torch.randn(3, 4),), batch("batch")),
    "dynamic, kernels": (Dynamic(), (torch.randn(3, 4),), {**batch("b"), "partitioner": None}),
    "mobilenet": (
        MODELS["mobilenet_v1_025"].build(),
        MODELS["mobilenet_v1_025"].example_inputs(0),
        {},
    ),
    "bert": (MODELS["bert_small"].build(), MODELS["bert_small"].example_inputs(0), {}),
}


@functools.cache
def compiled(case: str) -> edgewise.ExecutorchProgramManager:
    module, inputs, options = CASES[case]
    return lower(module, inputs, **options)


def node(method: MethodRecord, operator: str) -> NodeRecord:
    (found,) = [n for n in method.nodes if n.operator == operator]
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_record_agrees_with_its_file(case: str) -> None:
    program = compiled(case)
    data = program.buffer
    record = program.record()
    assert (record.sha256, record.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    (plan,) = read(data).program.execution_plan
    method = record.method("forward")
    assert len(method.instructions) == len(plan.chains[0].instructions)
    for said, written in zip(method.instructions, plan.chains[0].instructions, strict=True):
        call = written.instr_args
        assert (said.kind == "delegate") == isinstance(call, DelegateCall)
        if isinstance(call, KernelCall):
            assert said.operator.split(".")[0] == plan.operators[call.op_index].name
        assert said.nodes
    assert [d.backend for d in method.delegates] == [d.id for d in plan.delegates]
    assert list(method.arenas.values()) == list(plan.non_const_buffer_sizes[1:])
    # Each node is computed once, and everything that a record names is there.
    names = [n.name for n in method.nodes]
    assert len(set(names)) == len(names)
    run = [name for i in method.instructions for name in i.nodes]
    assert {n.name for n in method.nodes if n.kind == "call"} <= set(run)
    named = {e.source for e in method.edges} | {e.target for e in method.edges} | set(run)
    named |= {name for block in method.memory for name in block.nodes}
    named |= {name for d in method.delegates for p in d.payload for name in p.nodes}
    assert named <= set(names)
    # Every call that reads a tensor has an edge for it.
    read_by = {e.target for e in method.edges}
    assert {n.name for n in method.nodes if n.inputs} <= read_by
    for block in method.memory:
        assert block.nodes
        assert 0 <= block.offset <= block.offset + block.size <= method.arenas[str(block.arena)]
        assert -1 <= block.first <= block.last <= len(method.instructions)


def test_each_result_of_a_delegate_has_its_own_memory() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.relu(), (x * 2).tanh()

    program = edgewise.compile(Two(), torch.randn(2, 3), verbose=False)
    assert len(program.record().method().delegates) == 1
    assert [b.nodes for b in program.record().method().memory] == [("x",), ("relu",), ("tanh",)]


def test_order_of_nodes_is_that_of_their_edges() -> None:
    method = compiled("bert").record().method()
    place = {n.name: i for i, n in enumerate(method.nodes)}
    assert all(place[e.source] < place[e.target] for e in method.edges)


def test_what_a_node_says() -> None:
    method = compiled("mobilenet").record().method()
    first = next(n for n in method.nodes if n.operator == "aten.convolution.default")
    assert [m.path for m in first.modules] == ["", "features", "features.0", "features.0.0"]
    assert first.modules[-1].type == "torch.nn.modules.conv.Conv2d"
    assert first.source.split("/")[-1].startswith("mlperf_tiny.py:")
    assert first.outputs[0].shape == (1, 8, 48, 48)
    assert first.macs == 48 * 48 * 8 * 27
    assert [w.tensor.shape for w in first.weights] == [(8, 3, 3, 3), (8,)]
    assert first.weights[0].name.replace("_", ".").startswith("features.0.0.weight")
    assert first.attributes["stride"] == "[2, 2]"
    assert (first.backend, first.delegate, first.refusals) == ("XnnpackBackend", 0, ())
    relu = next(n for n in method.nodes if n.operator == "aten.relu.default")
    assert relu.folded_into == first.name
    weights = {w.name: w.tensor.bytes for n in method.nodes for w in n.weights}
    stored = sum(d.weight_bytes for d in method.delegates)
    assert 0.99 < sum(weights.values()) / stored < 1.01


def test_every_operation_of_a_payload_has_its_node() -> None:
    (delegate,) = compiled("mobilenet").record().method().delegates
    assert all(one.nodes for one in delegate.payload)
    kinds = [one.kind for one in delegate.payload]
    assert (kinds.count("Conv2d"), kinds.count("DepthwiseConv2d")) == (14, 13)


def test_a_refused_node_has_its_reasons() -> None:
    method = compiled("split").record().method()
    refused = node(method, "aten.sort.default")
    assert refused.backend == "runtime"
    assert refused.splits
    assert [r.backend for r in refused.refusals] == ["XnnpackBackend"]
    assert "sort" in str(refused.refusals[0])
    assert len(method.delegates) == 2
    assert method.by_name[refused.name] is refused


def test_a_shape_that_changes_is_text() -> None:
    method = compiled("dynamic").record().method()
    soft = node(method, "aten._softmax.default")
    assert isinstance(soft.outputs[0].shape[0], str)
    assert soft.outputs[0].shape[1] == 4
    assert soft.outputs[0].bytes == 3 * 4 * 4


def test_branches_and_state() -> None:
    method = compiled("branches, kernels").record().method()
    names = {n.name.partition("/")[0] for n in method.nodes if "/" in n.name}
    assert names == {"true_graph_0", "false_graph_0"}
    assert node(method, "cond").kind == "call"
    method = compiled("state").record().method()
    (state,) = [n for n in method.nodes if n.kind == "state"]
    assert any(e.target == state.name for e in method.edges)


def test_methods_of_one_file() -> None:
    x = (torch.randn(2, 8),)
    both = {name: torch.export.export(Split().eval(), x) for name in ("encode", "decode")}
    edge = edgewise.to_edge_transform_and_lower(both, constant_methods={"version": 3})
    record = edge.to_executorch().record()
    assert [m.name for m in record.methods] == ["encode", "decode", "version"]
    with pytest.raises(KeyError, match="one of encode, decode, version; got 'run'"):
        record.method("run")


@pytest.mark.parametrize("case", CASES)
def test_saved_and_loaded_it_is_the_same(case: str, tmp_path: Path) -> None:
    program = compiled(case)
    record = program.record()
    path = tmp_path / "model.pte"
    program.save(path, record=True)
    assert find_record(path) == record
    plain = record.save(tmp_path / "plain.json")
    assert load_record(plain) == record
    assert json.loads(plain.read_text())["format"] == "edgewise-record"
    first = record_path(path).read_bytes()
    record.save(record_path(path))
    assert record_path(path).read_bytes() == first


def test_a_record_is_not_written_unasked_nor_taken_for_another_file(tmp_path: Path) -> None:
    program = compiled("split")
    path = tmp_path / "model.pte"
    program.save(path)
    assert not record_path(path).exists()
    assert find_record(path) is None
    assert b"test_inspect_record" not in path.read_bytes()
    program.save(path, record=True)
    assert b"test_inspect_record" in gzip.decompress(record_path(path).read_bytes())
    path.write_bytes(path.read_bytes() + b"\0")
    assert find_record(path) is None


BAD = {
    "damaged gzip": (gzip.compress(b"{}")[:12] + b"\xff" * 9, "must be JSON, or gzip of it"),
    "deeper than any record": (b"[" * 100_000, "must be JSON, or gzip of it"),
    "more than any record": (gzip.compress(b" " * (257 << 20), 1), "more than 256 MiB of text"),
    "no text": (b'{"\xff": 1}', "got bytes that are no text"),
    "no JSON": (b"\x1f\x8bnot gzip", "must be JSON, or gzip of it"),
    "another format": (b'{"format": "other"}', "must have the format 'edgewise-record'"),
    "another version": (b'{"format": "edgewise-record", "version": 99}', "version 1; got 99"),
    "a field is missing": (
        b'{"format": "edgewise-record", "version": 1, "sha256": "", "bytes": 1}',
        "ProgramRecord must have methods",
    ),
    "a field of another type": (
        b'{"format": "edgewise-record", "version": 1, "sha256": "", "bytes": "x", "methods": []}',
        r"ProgramRecord\.bytes must hold int; got 'x'",
    ),
    "a nested field of another type": (
        b'{"format": "edgewise-record", "version": 1, "sha256": "", "bytes": 1,'
        b' "methods": [{"name": "forward", "nodes": [{"name": "x", "kind": 3}]}]}',
        r"NodeRecord\.kind must hold str; got 3",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_record_is_refused(case: str, tmp_path: Path) -> None:
    data, message = BAD[case]
    path = tmp_path / "model.record.json.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load_record(path)


def test_reading_takes_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    compiled("split").save(path, record=True)
    code = (
        "import sys; from edgewise.inspect.record import find_record\n"
        f"assert find_record({str(path)!r}).method().nodes\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert not {"torch", "numpy", "flatbuffers"} & set(loaded.stdout.split())


def test_fields_of_later_versions_are_ignored(tmp_path: Path) -> None:
    record = ProgramRecord("ab", 3, (MethodRecord("forward"),))
    path = record.save(tmp_path / "model.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "color": "red"}))
    assert load_record(path) == record
