"""Passes that are written with `ExportPass`, over all that a graph can have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.fx.passes.operator_support import OperatorSupportBase

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.compat.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge
from edgewise.compat.partitioners import (
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
)
from edgewise.compat.passes import (
    ConvertToLinearPass,
    ExportedProgramPassBase,
    ExportedProgramPassManager,
    ExportedProgramPassResult,
    ExportPass,
    InitializedMutableBufferPass,
    PassManager,
    QuantFusionPass,
    RemoveRedundantTransposes,
)
from edgewise.errors import EdgewiseError
from edgewise.partition.lowered_module import is_delegate_call


class AddForMul(ExportPass):
    """x + y for x * y."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op is torch.ops.aten.mul.Tensor:
            op = torch.ops.aten.add.Tensor
        return super().call_operator(op, args, kwargs, meta)


class Everything(torch.nn.Module):
    """A delegate on either side of a branch and of an operator with two results; state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.calls.add_(1)  # type: ignore[operator]
        branch = torch.cond(x.sum() > 0, lambda a: a.sin() * a, lambda a: a.cos(), (x,))
        values, indices = (self.linear(x) * x).topk(2)
        return values.tanh(), indices, branch, self.calls + 0


def wanted(model: Everything, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, indices = (model.linear(x) + x).topk(2)
    return values.tanh(), indices, x.sin() + x, torch.ones(1)


def check(edge: EdgeProgramManager, model: Everything, x: torch.Tensor) -> None:
    got = edgewise.load(edge.to_executorch().buffer)(x)
    for one, other in zip(got, wanted(model, x), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other.detach())


def test_before_and_behind_delegates() -> None:
    torch.manual_seed(0)
    model, x = Everything().eval(), torch.rand(3, 4)
    edge = to_edge(torch.export.export(model, (x,))).transform([AddForMul()])
    assert isinstance(edge, EdgeProgramManager)
    lowered = edge.to_backend(XnnpackPartitioner())
    check(lowered, model, x)
    again = lowered.transform(PassManager([[ExportPass()], QuantFusionPass()]))
    graph = again.exported_program().graph
    delegates = [node.args[0].name for node in graph.nodes if is_delegate_call(node)]
    assert delegates == [f"lowered_module_{i}" for i in range(len(delegates))] != []
    check(again, model, x)


def test_a_pass_alone_is_one_pass() -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x

    x = torch.rand(3)
    edge = to_edge(torch.export.export(Product(), (x,)))
    for passes in (AddForMul(), {"forward": AddForMul()}, [InitializedMutableBufferPass(["k"])]):
        made = edge.transform(passes)
        got = edgewise.load(made.to_executorch().buffer)(x)
        is_changed = not isinstance(passes, list)
        torch.testing.assert_close(torch.as_tensor(got), x + x if is_changed else x * x)


class Sums(ExportedProgramPassBase):
    """x + y for x * y, in place."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def requires(self, exported_program: ExportedProgram) -> None:
        self.seen.append("before")

    def ensures(self, exported_program: ExportedProgram) -> None:
        self.seen.append("after")

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        for node in exported_program.graph.nodes:
            if node.target is torch.ops.aten.mul.Tensor:
                node.target = torch.ops.aten.add.Tensor
        return ExportedProgramPassResult(exported_program, True)


def test_passes_of_a_config_run_before_the_memory_is_planned() -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x

    x = torch.rand(3)
    edge = to_edge(torch.export.export(Product(), (x,)))
    passes = [AddForMul(), InitializedMutableBufferPass(["k"]), ConvertToLinearPass()]
    for config, want in ((ExecutorchBackendConfig(passes=passes), x + x), (None, x * x)):
        got = edgewise.load(edge.to_executorch(config).buffer)(x)
        torch.testing.assert_close(torch.as_tensor(got), want)
    with pytest.raises(EdgewiseError, match="a pass"):
        edge.to_executorch(ExecutorchBackendConfig(passes=[3]))


def test_passes_over_programs() -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x

    x, sums = torch.rand(3), Sums()
    edge = to_edge(torch.export.export(Product(), (x,)))
    made = edge.transform(ExportedProgramPassManager([[sums], ExportPass()]))
    assert sums.seen == ["before", "after"]
    for manager, wanted in ((made, x + x), (edge, x * x)):  # the first one is as it was
        got = edgewise.load(manager.to_executorch().buffer)(x)
        torch.testing.assert_close(torch.as_tensor(got), wanted)

    class Nothing(Sums):
        def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
            return ExportedProgramPassResult(None, True)  # type: ignore[arg-type]

        def ensures(self, exported_program: ExportedProgram) -> None:
            return

    with pytest.raises(EdgewiseError, match="must return an ExportedProgram; got NoneType"):
        edge.transform([Nothing()])


def test_a_manager_checks_what_passes_leave() -> None:
    def breaks(module: torch.fx.GraphModule) -> None:
        (node,) = (n for n in module.graph.nodes if n.op == "call_function")
        node.append(next(n for n in module.graph.nodes if n.op == "placeholder"))

    module = torch.export.export(torch.nn.ReLU(), (torch.rand(2),)).graph_module
    with pytest.raises(Exception, match="running the 'breaks' pass") as failure:
        PassManager([breaks], run_checks_after_each_pass=True)(module)
    assert "used before it has been defined" in str(failure.value.__cause__)


def test_transposes_that_undo_each_other() -> None:
    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            there_and_back = x.transpose(1, 2).transpose(-1, -2).sin()
            around = x.permute(2, 0, 1).permute(1, 2, 0).cos()
            stays = x.permute(2, 0, 1).permute(2, 0, 1)
            return there_and_back, around, stays

    x = torch.rand(2, 3, 4)
    module = torch.export.export(Turned(), (x,)).module()
    before = Turned()(x)
    result = RemoveRedundantTransposes()(module)
    assert result is not None
    assert result.modified
    orders = [n.target for n in result.graph_module.graph.nodes if "permute" in str(n.target)]
    assert len(orders) == 2
    assert not [n for n in result.graph_module.graph.nodes if "transpose" in str(n.target)]
    for one, other in zip(result.graph_module(x), before, strict=True):
        torch.testing.assert_close(one, other)


class Layers(torch.nn.Module):
    """Two linear layers with an activation each, of which the second is another; a sine between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu().sin()).tanh()


def test_partitions_by_patterns_nodes_and_support() -> None:
    class Pattern(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).relu()

    class Tanh(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
            return node.target is torch.ops.aten.tanh.default

    x = torch.rand(2, 4)
    module = torch.export.export(Layers(), (x,)).graph_module
    pattern = torch.export.export(Pattern(), (x,)).graph_module.graph
    second = [n for n in module.graph.nodes if n.target is torch.ops.aten.linear.default][1]

    def names(partitions: list[Any]) -> list[list[str]]:
        return sorted(sorted(node.name for node in one.nodes) for one in partitions)

    assert names(generate_pattern_op_partitions(module, [pattern])) == [["linear", "relu"]]
    everything = generate_pattern_op_partitions(module, [pattern], [[second]], Tanh())
    assert names(everything) == [["linear", "relu"], ["linear_1", "tanh"]]
    assert names(generate_partitions_from_list_of_nodes(module, [[second]])) == [["linear_1"]]
    with pytest.raises(AssertionError, match="needs nodes or op_support"):
        generate_pattern_op_partitions(module)
