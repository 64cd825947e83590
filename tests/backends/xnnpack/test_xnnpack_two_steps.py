"""`to_edge(ep).to_backend(p)` delegates what `to_edge_transform_and_lower(ep, partitioner=[p])`
does: over every case of the table, after passes, and one partitioner after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import quantized
import quantized_cases
import torch
import xnnpack_cases
from quantized_cases import DynamicLinear
from test_xnnpack_dynamic import DELEGATED
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

import edgewise
from edgewise.backends.xnnpack import (
    ConfigPrecisionType,
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackPartitioner,
)
from edgewise.edge.bodies import graphs_within
from edgewise.partition.lowered_module import call_delegate
from support import Fn, eager, export, operators, run_ours

REALS = quantized_cases.REALS
aten = torch.ops.aten


def one_step(program: ExportedProgram, *partitioners: Any) -> edgewise.EdgeProgramManager:
    return edgewise.to_edge_transform_and_lower(program, partitioner=list(partitioners))


def delegation(edge: edgewise.EdgeProgramManager) -> tuple[list[str], list[bytes]]:
    """The calls that are left, and each delegate's payload."""
    graphs = [edge.exported_program().graph_module]
    graphs += [body for _, body in graphs_within(graphs[0])]
    calls = [n for graph in graphs for n in graph.graph.nodes if n.op == "call_function"]
    payloads = [
        child.processed_bytes
        for graph in graphs
        for child in graph.children()
        if hasattr(child, "processed_bytes")
    ]
    return [str(n.target) for n in calls], payloads


def exported(case: Any) -> ExportedProgram:
    if not isinstance(case, tuple):  # of test_xnnpack_dynamic
        shapes: Any = (case.dims,)
        shapes = (shapes,) if isinstance(case.module, Fn) else shapes
        return export(case.module, case.inputs(case.example), dynamic_shapes=shapes)
    kinds_first = isinstance(case[0], list)
    module, inputs, *_ = case[1:] if kinds_first else case
    return export(module, inputs)


def rows() -> Iterator[Any]:
    tables = {
        "accepted": xnnpack_cases.ACCEPTED,
        "refused": xnnpack_cases.REFUSED,
        "quantized": quantized_cases.ACCEPTED,
        "quantized, refused": {"": quantized_cases.REFUSED},
        "dynamic": {"": DELEGATED},
    }
    for title, table in tables.items():
        for row, cases in table.items():
            yield pytest.param(list(cases.values()), id=f"{title} {row}".strip())


@pytest.mark.parametrize("cases", rows())
def test_two_steps_delegate_what_one_does(cases: Sequence[Any]) -> None:
    for case in cases:
        program = exported(case)
        once = one_step(program, XnnpackPartitioner())
        twice = edgewise.to_edge(program).to_backend(XnnpackPartitioner())
        assert delegation(twice) == delegation(once)


# --- what somebody changed in between -------------------------------------------------


def nothing(module: GraphModule) -> None:
    """A pass that looks, and changes nothing."""
    assert len(module.graph.nodes) > 0


def twice_as_much(module: GraphModule) -> None:
    """Doubles what the program returns."""
    (output,) = [n for n in module.graph.nodes if n.op == "output"]
    (result,) = output.args[0]
    with module.graph.inserting_before(output):
        doubled = module.graph.call_function(aten.mul.Tensor, (result, 2.0))
    doubled.meta["val"] = result.meta["val"]
    output.args = ((doubled,),)


def pt2e(dynamic: bool) -> ExportedProgram:
    module = torch.nn.Sequential(torch.nn.Linear(30, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    return quantized.pt2e(module, (REALS,), dynamic=dynamic, ours=True)


MODELS: dict[str, Callable[[], ExportedProgram]] = {
    "dynamic": lambda: export(DynamicLinear(30, 4), (REALS,)),
    "dynamic, by PT2E": lambda: pt2e(True),
    "static per channel": lambda: pt2e(False),
    "floats": lambda: export(torch.nn.Linear(30, 4), (REALS,)),
}


@pytest.mark.parametrize("change", [nothing, twice_as_much])
@pytest.mark.parametrize("name", MODELS)
def test_linear_layers_are_whole_after_passes(name: str, change: Callable) -> None:
    torch.manual_seed(0)
    program = MODELS[name]()
    once = edgewise.to_edge_transform_and_lower(
        program, transform_passes=[change], partitioner=[XnnpackPartitioner()]
    )
    twice = edgewise.to_edge(program).transform([change]).to_backend(XnnpackPartitioner())
    assert delegation(twice) == delegation(once)
    assert delegation(twice)[0] == [str(call_delegate), str(operator.getitem)]
    found = run_ours(twice.to_executorch().buffer, (REALS,))[0][0]
    wanted = run_ours(once.to_executorch().buffer, (REALS,))[0][0]
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("shape", [(2, 3, 30), (4, 2, 3, 30)])
def test_linear_layers_of_several_symbolic_sizes_are_whole_after_a_pass(shape: tuple) -> None:
    sizes = {dim: Dim(f"d{dim}", min=2, max=9) for dim in range(len(shape) - 1)}
    x = torch.randn(shape)
    program = export(torch.nn.Linear(30, 4), (x,), dynamic_shapes=(sizes,))
    edge = edgewise.to_edge(program).transform([twice_as_much]).to_backend(XnnpackPartitioner())
    assert operators(edge.to_executorch().buffer) == ["delegate"]


def test_what_a_pass_took_apart_stays_so() -> None:
    """A product whose result somebody changes before it is a layer's again is no layer."""

    def negated(module: GraphModule) -> None:
        (product,) = [n for n in module.graph.nodes if n.target is aten.addmm.default]
        with module.graph.inserting_after(product):
            changed = module.graph.call_function(aten.neg.default, (product,))
        changed.meta["val"] = product.meta["val"]
        product.replace_all_uses_with(changed, delete_user_cb=lambda user: user is not changed)

    module, x = torch.nn.Linear(30, 4).eval(), torch.randn(2, 3, 30)
    edge = edgewise.to_edge(export(module, (x,))).transform([negated])
    pte = edge.to_backend(XnnpackPartitioner()).to_executorch().buffer
    torch.testing.assert_close(run_ours(pte, (x,))[0][0], -eager(module, (x,))[0])


def test_a_change_of_the_graph_in_place_is_kept() -> None:
    edge = edgewise.to_edge(export(torch.nn.Sigmoid(), (REALS,)))
    twice_as_much(edge.exported_program().graph_module)
    edge.exported_program().graph_signature.output_specs[0].arg.name = "mul"
    pte = edge.to_backend(XnnpackPartitioner()).to_executorch().buffer
    torch.testing.assert_close(run_ours(pte, (REALS,))[0][0], 2 * REALS.sigmoid())


@pytest.mark.parametrize("what", ["weights", "tensor", "note"])
def test_a_change_beside_the_graph_is_kept(what: str) -> None:
    """Of weights that to_edge folded, and of notes for partitioners of one's own."""
    edge = edgewise.to_edge(export(torch.nn.Linear(30, 4), (REALS,)))
    program = edge.exported_program()
    (name,) = program.constants
    with torch.no_grad():
        if what == "weights":
            program.constants[name].zero_()
        elif what == "tensor":
            program.constants[name] = torch.zeros_like(program.constants[name])
        else:
            for node in program.graph.nodes:
                node.meta["mine"] = True

    class Seen(XnnpackPartitioner):
        def partition(self, exported_program: ExportedProgram) -> Any:
            self.noted = any(n.meta.get("mine") for n in exported_program.graph.nodes)
            return super().partition(exported_program)

    partitioner = Seen()
    pte = edge.to_backend(partitioner).to_executorch().buffer
    assert partitioner.noted == (what == "note")
    if what != "note":
        bias = program.state_dict["bias"].detach()
        torch.testing.assert_close(run_ours(pte, (REALS,))[0][0], bias.expand(4, 4))


def test_partitioners_one_after_the_other_keep_what_each_wants() -> None:
    """The second wants attention whole, which the first does not know."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        q = torch.nn.functional.linear(x, torch.eye(8))
        return torch.nn.functional.scaled_dot_product_attention(q, x, x).tanh()

    program = export(Fn(attend), (torch.randn(1, 2, 5, 8),))
    first = XnnpackPartitioner(["tanh"])
    chain = edgewise.to_edge(program).to_backend(first).to_backend(XnnpackPartitioner())
    assert delegation(chain) == delegation(one_step(program, first, XnnpackPartitioner()))
    assert "where" not in " ".join(delegation(chain)[0])


def test_the_manager_that_is_asked_stays_as_it_was() -> None:
    edge = edgewise.to_edge(export(DynamicLinear(30, 4), (REALS,)))
    before = str(edge.exported_program().graph)
    dynamic = XnnpackDynamicallyQuantizedPartitioner()
    floats = XnnpackPartitioner(config_precisions=ConfigPrecisionType.FP32)
    assert delegation(edge.to_backend(dynamic)) == delegation(edge.to_backend(XnnpackPartitioner()))
    assert delegation(edge.to_backend(floats)) != delegation(edge.to_backend(dynamic))
    assert str(edge.exported_program().graph) == before


# --- the code that a graph module shows -----------------------------------------------


def stale(edge: edgewise.EdgeProgramManager) -> list[str]:
    module = edge.exported_program().graph_module
    found = {"": module, **dict(graphs_within(module))}
    return [name for name, g in found.items() if g.code != g.graph.python_code("self").src]


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda x: (x * 2).tanh(), lambda x: (x + 1).exp(), (x,))
        return y * 3


@pytest.mark.parametrize("module", [torch.nn.Linear(30, 4), Branches(), DynamicLinear(30, 4)])
def test_code_is_what_the_graph_is(module: torch.nn.Module) -> None:
    program = export(module, (REALS,))
    edge = edgewise.to_edge(program)
    changed = edge.transform([twice_as_much])
    steps = [edge, changed, edge.to_backend(XnnpackPartitioner())]
    steps += [changed.to_backend(XnnpackPartitioner()), one_step(program, XnnpackPartitioner())]
    steps += [one_step(program), edge.to_backend(None)]
    for step in steps:
        assert stale(step) == []
        step.to_executorch()
        assert stale(step) == []
    assert "call_delegate" in steps[2].exported_program().graph_module.code
