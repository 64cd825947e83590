"""Cutting partitions out of random graphs: same results, or an error where there is a cycle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import ExportedProgram

import edgewise
from edgewise.edge.bodies import graphs_within
from edgewise.edge.graph import calls
from edgewise.errors import PartitionError
from edgewise.partition import BackendDetails, CompileSpec, DelegationSpec, PreprocessResult
from edgewise.partition.delegate import lower_partitions
from edgewise.partition.lowered_module import is_delegate_call, lowered_of
from support import Fn, assert_close, eager, export

INPUTS = (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]))


class Listing(BackendDetails):
    """Its payload is the list of its operators."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        names = ",".join(str(n.target) for n in calls(edge_program.graph))
        return PreprocessResult(names.encode())


SPEC = DelegationSpec("Listing", [CompileSpec("level", b"\x01")])

Recipe = list[tuple[str, int, int, str]]


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Operations on earlier values, each with the tag of its result ("" for none)."""
    found = []
    for i in range(draw(st.integers(1, 9))):
        found.append(
            (
                draw(st.sampled_from(["add", "mul", "constant", "two"])),
                draw(st.integers(0, i + 1)),
                draw(st.integers(0, i + 1)),
                draw(st.sampled_from(["", "a", "a", "b"])),
            )
        )
    return found


def build(recipe: Recipe) -> Fn:
    def function(x: torch.Tensor, y: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for kind, i, j, _ in recipe:
            if kind == "add":
                values.append(values[i] + values[j])
            elif kind == "mul":
                values.append(values[i] * values[j] + 0.5)
            elif kind == "constant":
                values.append(values[i] + c)
            else:
                values.append(torch.topk(values[i], 2).values - values[j])
        return tuple(values[2:])

    return Fn(function, c=torch.tensor([0.25, 4.0]))


def tag(program: ExportedProgram, tags: list[str]) -> None:
    """Tags calls in turn; elements of tuples as the call that computes them."""
    count = 0
    for node in calls(program.graph):
        if "getitem" in str(node.target):
            found = node.args[0].meta.get("delegation_tag", "")
        else:
            found, count = tags[count % len(tags)], count + 1
        if found:
            node.meta["delegation_tag"] = found


def cyclic(program: ExportedProgram) -> bool:
    unit = {n: n.meta.get("delegation_tag", n) for n in calls(program.graph)}
    needs: dict[object, set[object]] = {u: set() for u in unit.values()}
    for node in unit:
        needs[unit[node]] |= {
            unit[s] for s in node.all_input_nodes if s in unit and unit[s] != unit[node]
        }
    while needs:
        free = [u for u, sources in needs.items() if not sources & needs.keys()]
        if not free:
            return True
        for u in free:
            del needs[u]
    return False


@settings(max_examples=60)
@given(recipes())
def test_random_partitions(recipe: Recipe) -> None:
    module = build(recipe)
    edge = edgewise.to_edge(export(module, INPUTS))
    program = edge.exported_program()
    tag(program, [t for *_, t in recipe])
    tagged = {n.meta["delegation_tag"] for n in calls(program.graph) if "delegation_tag" in n.meta}
    if cyclic(program):
        with pytest.raises(PartitionError, match="must not depend on itself"):
            lower_partitions(program, {"a": SPEC, "b": SPEC})
        return
    before = len(list(calls(program.graph)))
    assert set(lower_partitions(program, {"a": SPEC, "b": SPEC})) == tagged
    program.graph.lint()
    found = [n for n in program.graph.nodes if is_delegate_call(n)]
    assert len(found) == len(tagged) <= before
    program.graph_module.recompile()
    got = program.module()(*INPUTS)
    assert_close(got, eager(module, INPUTS), 1e-6)


def test_constants_become_the_partitions_own() -> None:
    module = Fn(lambda x, y, c: (x + c) * y, c=torch.ones(2))
    program = edgewise.to_edge(export(module, INPUTS)).exported_program()
    tag(program, ["a"])
    lower_partitions(program, {"a": SPEC})
    lowered = program.graph_module.lowered_module_0
    assert lowered.backend_id == "Listing"
    assert lowered.processed_bytes == b"aten.add.Tensor,aten.mul.Tensor"
    assert list(lowered.original_module.state_dict) == ["c"]
    assert [s.kind.name for s in program.graph_signature.input_specs] == ["USER_INPUT"] * 2


class Sums(torch.nn.Module):
    """What is returned beside a sum of all inputs so far: `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        before = self.total * 2 if self.kind == "read elsewhere" else None
        self.total.add_(x)  # type: ignore[operator]
        if self.kind == "no result":
            return y * 3
        found = torch.sigmoid(self.total)
        if self.kind == "returned":
            return found, self.total
        return found if before is None else (found, before)


# What becomes of a state whose sum a partition computes: (other operators in it, tag of the state,
# whether the partition keeps it).
STATES = {
    "plain": (["sigmoid"], "a", True),
    "another's": (["sigmoid"], "b", False),
    "without a tag": (["sigmoid"], None, False),
    "read elsewhere": (["sigmoid"], "a", False),
    "returned": (["sigmoid"], "a", False),
    "no result": ([], "a", False),
    "result elsewhere": ([], "a", False),
}


@pytest.mark.parametrize("kind", STATES)
def test_states_that_a_partition_has_to_itself(kind: str) -> None:
    others, state_tag, owned = STATES[kind]
    program = edgewise.to_edge(export(Sums(kind), INPUTS)).exported_program()
    for node in program.graph.nodes:
        if node.op == "call_function" and any(w in node.name for w in ("add", *others)):
            node.meta["delegation_tag"] = "a"
        if node.name == "b_total" and state_tag is not None:
            node.meta["delegation_tag"] = state_tag
    lowered = lower_partitions(program, {"a": SPEC, "b": SPEC})["a"]
    program.graph.lint()
    inner = lowered.original_module.graph_signature
    assert list(inner.buffers_to_mutate.values()) == (["total"] if owned else [])
    outer = program.graph_signature
    assert list(outer.buffers_to_mutate.values()) == ([] if owned else ["total"])
    assert list(program.state_dict) == ([] if owned else ["total"])
    assert list(lowered.original_module.state_dict) == (["total"] if owned else [])
    assert_close(
        torch.utils._pytree.tree_leaves(program.module()(*INPUTS)), eager(Sums(kind), INPUTS), 1e-6
    )


def test_a_branch_that_a_partition_waits_for_stays_before_its_condition() -> None:
    """Both are moved to where the partition begins, which is before either."""

    def function(x: torch.Tensor) -> torch.Tensor:
        early = x * 2
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * early

    module, inputs = Fn(function), (INPUTS[0],)
    program = edgewise.to_edge(export(module, inputs)).exported_program()
    for node in calls(program.graph):
        if node.target is torch.ops.aten.mul.Tensor or "mul" in node.name:
            node.meta["delegation_tag"] = "a"
    assert set(lower_partitions(program, {"a": SPEC})) == {"a"}
    program.graph.lint()


class Nested(BackendDetails):
    """Has another backend compile the products in its program; its payload lists all operators,
    those in branches and what the other wrote, too."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        graphs = [edge_program.graph_module]
        graphs += [body for _, body in graphs_within(edge_program.graph_module)]
        assert not any("delegation_tag" in n.meta for one in graphs for n in one.graph.nodes)
        for node in calls(edge_program.graph):
            if node.target is torch.ops.aten.mul.Tensor:
                node.meta["delegation_tag"] = "inner"
        lower_partitions(edge_program, {"inner": SPEC})
        names = []
        for one in graphs:
            for node in calls(one.graph):
                inner = lowered_of(node, one).processed_bytes if is_delegate_call(node) else b""
                names.append(f"{node.target} {inner.decode()}".strip())
        return PreprocessResult(",".join(names).encode())


def with_branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x * y,)) + 1


@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "untagged"])
def test_a_partition_has_the_branches_of_its_control_flow(is_tagged: bool) -> None:
    """Also if the partitioner has tagged the nodes that name them, and what is in them."""
    module = Fn(with_branches)
    program = edgewise.to_edge(export(module, INPUTS)).exported_program()
    bodies = [body for _, body in graphs_within(program.graph_module)]
    assert len(bodies) == 2
    for graph in [program.graph, *(body.graph for body in bodies if is_tagged)]:
        for node in graph.nodes:
            is_asked = node.op == "call_function" or (is_tagged and node.op == "get_attr")
            if is_asked and "gt" not in node.name and "sum" not in node.name:
                node.meta["delegation_tag"] = "outer"
    lowered = lower_partitions(program, {"outer": DelegationSpec("Nested", [])})["outer"]
    program.graph.lint()
    payload = lowered.processed_bytes.decode()
    assert "executorch_call_delegate aten.mul.Tensor" in payload
    assert all(f"aten.{name}.default" in payload for name in ("sin", "cos"))
    assert [n for n in program.graph.nodes if n.op == "get_attr"] == [
        n.args[0] for n in calls(program.graph) if is_delegate_call(n)
    ]
    for sign in (1, -1):
        inputs = (INPUTS[0] * sign, INPUTS[1])
        assert_close([program.module()(*inputs)], eager(module, inputs), 1e-6)


def test_a_partition_has_the_delegates_that_it_calls() -> None:
    module = Fn(lambda x, y: torch.sin(x * y) + y)
    program = edgewise.to_edge(export(module, INPUTS)).exported_program()
    for node in calls(program.graph):
        if node.target is torch.ops.aten.mul.Tensor:
            node.meta["delegation_tag"] = "inner"
    lower_partitions(program, {"inner": SPEC})
    for node in program.graph.nodes:
        if node.op in ("call_function", "get_attr"):
            node.meta["delegation_tag"] = "outer"
    lowered = lower_partitions(program, {"outer": DelegationSpec("Nested", [])})["outer"]
    payload = lowered.processed_bytes.decode()
    assert payload.startswith("executorch_call_delegate aten.mul.Tensor,")
    assert [n for n in calls(program.graph) if "getitem" not in n.name] == [
        n for n in calls(program.graph) if is_delegate_call(n)
    ]
    assert_close([program.module()(*INPUTS)], eager(module, INPUTS), 1e-6)
