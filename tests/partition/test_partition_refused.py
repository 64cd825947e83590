"""Backends that refuse to compile what their partitioners tagged: lowering goes on without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import ExportedProgram

import edgewise
from edgewise.edge.graph import calls, op_name
from edgewise.lowering import EdgeProgramManager
from edgewise.partition import (
    TAG,
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionRefused,
    PartitionResult,
    PreprocessResult,
    Refusal,
    group,
    refused_before,
)
from edgewise.partition.delegate import lower_partitions
from support import Fn, assert_close, eager, export

X = torch.tensor([[0.5, -2.0], [1.0, 3.0]])


class Choosy(BackendDetails):
    """Its compile specs name operators: those it refuses alone, those with which it refuses all."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        spec = {s.key: s.value.decode() for s in compile_specs}
        nodes = list(calls(edge_program.graph))
        alone = {
            n.name: Refusal("no such operator", op_name(n), "another one")
            for n in nodes
            if spec["alone"] and spec["alone"] in op_name(n)
        }
        if alone or (spec["whole"] and any(spec["whole"] in op_name(n) for n in nodes)):
            raise PartitionRefused(Refusal("partitions that fit", f"{len(nodes)} nodes"), alone)
        return PreprocessResult(",".join(op_name(n) for n in nodes).encode())


class TakesAll(Partitioner):
    """All calls; with `listens` without those that its backend refused."""

    def __init__(self, alone: str = "", whole: str = "", listens: bool = True) -> None:
        given = {"alone": alone, "whole": whole}
        self.spec = DelegationSpec("Choosy", [CompileSpec(k, v.encode()) for k, v in given.items()])
        self.listens, self.turns = listens, 0

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        self.turns += 1
        nodes = list(calls(exported_program.graph))
        parts = group(
            nodes,
            lambda n: n.all_input_nodes,
            lambda n: (
                op_name(n).startswith("aten.") and not (self.listens and bool(refused_before(n)))
            ),
        )
        tags = {f"part_{i}": self.spec for i in range(len(parts))}
        for tag, members in zip(tags, parts, strict=True):
            for node in members:
                node.meta[TAG] = tag
        return PartitionResult(exported_program, tags)


def lowered(function: Callable[..., torch.Tensor], one: Partitioner) -> EdgeProgramManager:
    made = edgewise.to_edge_transform_and_lower(export(Fn(function), (X,)), partitioner=[one])
    program = made.exported_program()
    assert_close([program.module()(X)], eager(Fn(function), (X,)), 1e-6)
    assert not any(TAG in n.meta or refused_before(n) for n in program.graph.nodes)
    return made


def chain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.exp(torch.tanh(x) + 1)) * 2


def diamond(x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    return torch.exp(y) * y + torch.exp(torch.relu(y))


REST = "aten.add.Scalar,aten.exp.default,aten.mul.Scalar,aten.relu.default,aten.tanh.default"


@pytest.mark.parametrize(
    ("function", "partitioner", "payloads", "left", "reason", "turns"),
    [
        (chain, TakesAll(), [REST], "", "", 1),
        (chain, TakesAll(whole="exp"), [], REST, "partitions that fit; got 5 nodes", 2),
        (
            chain,
            TakesAll("exp"),
            ["aten.add.Scalar,aten.tanh.default", "aten.mul.Scalar,aten.relu.default"],
            "aten.exp.default",
            "no such operator; got aten.exp.default; try another one",
            2,
        ),
        # What is left of the partition is refused for another reason: as a whole.
        (chain, TakesAll("tanh", "mul"), [], REST, "partitions that fit; got 4 nodes", 3),
        # A partitioner that tags the same again gets no endless loop.
        (chain, TakesAll("exp", listens=False), [], REST, "partitions that fit; got 5 nodes", 3),
        (
            diamond,
            TakesAll("relu"),
            ["aten.exp.default,aten.mul.Tensor,aten.tanh.default", "aten.add.Tensor,aten.exp.d"],
            "aten.relu.default",
            "no such operator; got aten.relu.default; try another one",
            2,
        ),
    ],
    ids=["none", "whole", "one", "one-then-whole", "deaf", "diamond"],
)
def test_refused(
    function: Callable[..., torch.Tensor],
    partitioner: TakesAll,
    payloads: list[str],
    left: str,
    reason: str,
    turns: int,
) -> None:
    made = lowered(function, partitioner)
    report = made.delegation_report()
    modules = [m for n, m in made.exported_program().graph_module.named_children()]
    found = [",".join(sorted(m.processed_bytes.decode().split(","))) for m in modules]
    assert [f[: len(p)] for f, p in zip(sorted(found), sorted(payloads), strict=True)] == sorted(
        payloads
    )
    assert ",".join(sorted(n.operator for n in report.refused)) == left
    assert len(report.delegates) == len(payloads)
    for node in report.refused:
        assert node.backend == "runtime"
    told = {str(r) for n in report.refused for r in n.refusals}
    assert told >= {reason} if reason else not told
    assert all(n.refusals for n in report.refused)
    assert partitioner.turns == turns


def test_in_a_branch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.exp(x) + 1, lambda x: x * 2, (x,))

    report = lowered(function, TakesAll("exp")).delegation_report()
    inside = {n.operator: n for n in report.nodes if n.name.startswith("true_graph_0/")}
    assert [str(r) for r in inside["aten.exp.default"].refusals] == [
        "no such operator; got aten.exp.default; try another one"
    ]
    assert inside["aten.add.Scalar"].backend == "Choosy"


def test_without_a_listener_it_is_an_error() -> None:
    edge = edgewise.to_edge(export(Fn(chain), (X,)))
    program = edge.exported_program()
    result = TakesAll(whole="exp").partition(program)
    with pytest.raises(PartitionRefused, match=r"\[partition\] partitions that fit; got 5 nodes"):
        lower_partitions(program, result.partition_tags)
