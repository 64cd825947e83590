"""Graphs as text, the memory's plan for Chrome, outputs next to a reference's, buffers by name."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.compat import graphs
from edgewise.compat.analysis import compare_results, generate_memory_trace
from edgewise.compat.delegation import print_delegation_info
from edgewise.compat.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from edgewise.compat.portable_lib import _load_for_executorch_from_buffer, _load_program_from_buffer
from edgewise.partition.spec import TAG


class Net(torch.nn.Module):
    """A delegate on either side of an operator of two results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).topk(2)[0].sin()


def lowered() -> EdgeProgramManager:
    program = torch.export.export(Net(), (torch.ones(2, 4),))
    return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])


def test_graphs_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    module = lowered().exported_program().graph_module
    graphs.print_delegated_graph(module)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("    backend_id: XnnpackBackend") == 2
    assert any("aten.linear.default" in one and one.startswith("      %") for one in lines)
    assert [node.name for node in graphs.get_delegates(module.graph)] == [
        "lowered_module_0",
        "lowered_module_1",
    ]
    names = [node.name for node in graphs.get_non_lowered_nodes(module.graph)]
    assert names == ["topk", "getitem"]
    topk = next(node for node in module.graph.nodes if node.name == "topk")
    said = graphs.inspect_node(module.graph, topk)
    assert "\n--> %topk" in said
    assert "self.linear(x).topk(2)" in said
    graphs.print_program(lowered().to_executorch().executorch_program, indent=2)
    assert "  Program(" in capsys.readouterr().out


def test_constants_have_the_tag_of_what_reads_them() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)  # type: ignore[operator]
            return self.linear(x) * self.calls

    edge = to_edge(torch.export.export(Counter(), (torch.ones(2, 4),))).exported_program()
    for node in edge.graph.nodes:
        if node.op == "call_function":
            node.meta[TAG] = "b" if node.target is torch.ops.aten.add.Tensor else "a"
    tags = lambda: {n.name: n.meta.get(TAG) for n in edge.graph.nodes if n.op == "placeholder"}  # noqa: E731
    graphs.tag_constant_data(edge)
    assert {tag for name, tag in tags().items() if "linear" in name} == {"a"}
    assert tags()["b_calls"] is tags()["x"] is None
    graphs.tag_mutated_buffer(edge)
    assert tags()["b_calls"] in ("a", "b")


def test_the_memory_plan_is_what_the_program_says(tmp_path: Path) -> None:
    made = lowered().to_executorch()
    plan = made.executorch_program.execution_plan[0]
    for by_offset in (False, True):
        generate_memory_trace(made, tmp_path / "trace.json", by_offset)
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        ends = {}
        for event in sorted(events, key=lambda one: (one["tid"], one["ts"])):
            assert event["ts"] >= ends.get(event["tid"], 0)  # no two blocks overlap
            ends[event["tid"]] = event["ts"] + event["dur"]
        if by_offset:
            assert max(ends.values()) == plan.non_const_buffer_sizes[1]
    assert {event["args"]["op_name"] for event in events} >= {"aten.topk.default"}
    generate_memory_trace(made, tmp_path / "trace.json", ommit_metadata=True)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not any(event["args"] for event in events)
    with pytest.raises(ValueError, match="try edge"):
        generate_memory_trace(made.buffer, tmp_path / "trace.json")


def test_compared_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    got = [np.array([1.0, 1.0]), torch.tensor([[3.0]])]
    found = compare_results(wanted, got)
    assert found["mse"] == [0.5, 0.0]
    assert found["snr"] == [pytest.approx(10 * math.log10(5 / 1)), math.inf]
    assert found["cosine_similarity"] == [pytest.approx(3 / math.sqrt(10)), pytest.approx(1)]
    assert "snr" in capsys.readouterr().out
    assert [*compare_results(wanted, got, ["mse"])] == ["mse"]
    refused: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((wanted, got[:1]), {}),
        ((wanted, got), {"metrics": ["psnr"]}),
        ((wanted, got), {"plot": True}),
        ((wanted, got[::-1]), {}),
    ]
    for arguments, options in refused:
        with pytest.raises(ValueError):  # noqa: PT011
            compare_results(*arguments, **options)


class Stateful(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 2))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("n", torch.full((3,), 5, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x)  # type: ignore[operator]
        self.inner.n.mul_(2)  # type: ignore[operator]
        return self.state * 2 + self.inner.n.sum()  # type: ignore[operator]


def stateful(**options: bool) -> bytes:
    edge = to_edge(torch.export.export(Stateful(), (torch.ones(2, 2),)))
    return edge.to_executorch(ExecutorchBackendConfig(**options)).buffer  # type: ignore[arg-type]


def test_buffers_by_name() -> None:
    method = _load_program_from_buffer(stateful(emit_mutable_buffer_names=True)).load_method(
        "forward"
    )
    meta = method.method_meta()
    assert meta.num_attributes() == 2
    info = "TensorInfo(sizes=[2, 2], dtype=Float, is_memory_planned=True, nbytes=16)"
    assert repr(meta.attribute_tensor_meta(0)) == info
    assert repr(meta) == (
        f"MethodMeta(name='forward', num_inputs=1, input_tensor_meta=['{info}'], "
        f"num_outputs=1, output_tensor_meta=['{info}'])"
    )
    with pytest.raises(IndexError):
        meta.attribute_tensor_meta(2)
    for calls in (1, 2):
        method((torch.ones(2, 2),))
        assert method.get_attribute("state").equal(torch.full((2, 2), float(calls)))
        assert method.get_attribute("inner.n").equal(torch.full((3,), 5 * 2**calls))
    with pytest.raises(KeyError, match="got 'nothing'"):
        method.get_attribute("nothing")


def test_buffers_without_names() -> None:
    method = _load_program_from_buffer(stateful()).load_method("forward")
    assert method.method_meta().num_attributes() == 0
    with pytest.raises(KeyError, match="emit_mutable_buffer_names=True"):
        method.get_attribute("state")


@pytest.mark.peer
def test_the_peer_finds_buffers_by_name() -> None:
    data = stateful(emit_mutable_buffer_names=True)
    program = importlib.import_module(
        "executorch.extension.pybindings._C"
    )._load_program_from_buffer(data)
    method = program.load_method("forward")
    method.call((torch.ones(2, 2),))
    assert method.get_attribute("inner.n").tolist() == [10, 10, 10]


def test_an_input_on_another_device() -> None:
    program = to_edge(torch.export.export(Net(), (torch.ones(2, 4),))).to_executorch()
    module = _load_for_executorch_from_buffer(program.buffer)
    method = _load_program_from_buffer(program.buffer).load_method("forward")
    for call in (module.forward, method.set_inputs):
        with pytest.raises(RuntimeError, match="input 0 is on device meta; only CPU tensors"):
            call([torch.ones(2, 4, device="meta")])


def test_delegation_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_delegation_info(lowered().exported_program().graph_module)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["linear", "1", "0"] in lines
    assert ["topk", "0", "1"] in lines


def test_a_record_is_there_if_it_was_asked_for() -> None:
    program = torch.export.export(Net(), (torch.ones(2, 4),))
    for wanted in (True, False):
        edge = to_edge_transform_and_lower(program, generate_etrecord=wanted)
        made = edge.to_backend(XnnpackPartitioner()).transform([]).to_executorch()
        if wanted:
            assert made.get_etrecord().method().instructions
        else:
            with pytest.raises(RuntimeError, match="lowered with generate_etrecord=True"):
                made.get_etrecord()


def test_the_memory_plan_is_where_scripts_read_it() -> None:
    (plan,) = lowered().to_executorch()._emitter_output.program.execution_plan
    assert plan.non_const_buffer_sizes[0] == 0
    assert plan.non_const_buffer_sizes[1] > 0


def test_threads_of_programs_that_are_loaded_later() -> None:
    from edgewise.compat import portable_lib, runtime

    buffer = lowered().to_executorch().buffer
    try:
        portable_lib._unsafe_reset_threadpool(1)
        module = _load_for_executorch_from_buffer(buffer)
        assert runtime._threads == 1
        (got,) = module.forward((torch.ones(2, 4),))
        torch.testing.assert_close(got.shape, torch.Size([2, 2]))
        portable_lib._unsafe_reset_threadpool(0)
        with pytest.raises(ValueError, match=r"\[load_program\] threads"):
            _load_for_executorch_from_buffer(buffer)
    finally:
        runtime._threads = None
