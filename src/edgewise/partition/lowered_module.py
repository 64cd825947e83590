"""What a backend has compiled, as a module, and its calls in a graph.

A call is torch's own `torch.ops.higher_order.executorch_call_delegate`, of a module that a
`get_attr` node reads; so `torch.export` knows it, too.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from edgewise.edge.graph import inherit_meta
from edgewise.edge.program import make_program, make_signature, output_node
from edgewise.partition.spec import (
    BackendDetails,
    CompileSpec,
    Estimates,
    NamedBlobs,
    PreprocessResult,
)
from edgewise.releases import Target

call_delegate: Any = executorch_call_delegate
"""`call_delegate(lowered, *inputs)`: what the lowered module's original returns."""


class LoweredBackendModule(torch.nn.Module):
    """A compiled program, or a partition of one.

    Called from Python it computes what the original nodes did, and it may be a part of another
    module that is exported and lowered. edge_program: the original. result: all that the backend
    said, if more than the payload.
    """

    def __init__(
        self,
        edge_program: ExportedProgram,
        backend_id: str,
        processed_bytes: bytes,
        compile_specs: Sequence[CompileSpec] = (),
        result: PreprocessResult | None = None,
    ) -> None:
        super().__init__()
        self._result = result or PreprocessResult(processed_bytes)
        self.waits_for: type[BackendDetails] | None = None
        self._backend_id = backend_id
        self._compile_specs = list(compile_specs)
        self._original_module = edge_program
        self._out_spec: Any = edge_program.call_spec.out_spec if edge_program else None
        self._flat: LoweredBackendModule | None = None
        if edge_program is not None and not _is_flat(edge_program):
            flat = _flattened(edge_program)
            self._flat = LoweredBackendModule(
                flat, backend_id, processed_bytes, compile_specs, self._result
            )

    @property
    def flat(self) -> LoweredBackendModule:
        """What graphs call: it takes and returns tensors without the original's structure."""
        return self._flat or self

    @property
    def backend_id(self) -> str:
        """Of the backend that has compiled it."""
        return self._backend_id

    @property
    def compile_specs(self) -> list[CompileSpec]:
        """What it was compiled with, and the runtime is told."""
        return self._compile_specs

    @property
    def original_module(self) -> ExportedProgram:
        """The program that it stands for."""
        return self._original_module

    @property
    def processed_bytes(self) -> bytes:
        """The payload, for every release of ExecuTorch."""
        return self._result.processed_bytes

    @property
    def named_data(self) -> NamedBlobs:
        """Blobs that the payload refers to by key."""
        return self._result.named_data

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """For the delegation report, of nodes by name."""
        return self._result.notes

    @property
    def estimates(self) -> Estimates | None:
        """The backend's, of all of it; None: it makes none."""
        return self._result.estimates

    @property
    def debug_handle_map(self) -> Mapping[int, Sequence[int]]:
        """Handles of nodes by the payload's own numbers."""
        return self._result.debug_handle_map

    @property
    def meta(self) -> dict[str, Any]:
        """What ExecuTorch's backends say of a delegate beside its payload."""
        said = getattr(self._result, "_delegate_info_meta", None)
        handles = {"debug_handle_map": dict(self.debug_handle_map)}
        return handles if said is None else {**handles, "_delegate_info_meta": said}

    @property
    def named_data_store_output(self) -> Any:
        """Named data as ExecuTorch's backends give them; None: there are none."""
        return getattr(self._result, "data_store_output", None)

    def settle(self, result: PreprocessResult) -> None:
        """Gives a module what its backend made of it together with others."""
        self._result = result
        self.waits_for = None

    def for_target(self, target: Target) -> PreprocessResult:
        """What is written into a file for that runtime."""
        make = self._result.for_target
        return self._result if make is None or target == Target() else make(target)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredBackendModule:
        """Itself: nothing changes it, and its weights are views of the model's memory."""
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns for its arguments."""
        found = call_delegate(self.flat, *pytree.tree_leaves((args, kwargs)))
        return pytree.tree_unflatten(found, self._out_spec)

    def as_program(self) -> ExportedProgram:
        """A program that does nothing but call the delegate."""
        source = self.original_module
        given = {n.name: n for n in source.graph.nodes if n.op == "placeholder"}
        graph = Graph()
        inputs = []
        for name in map(str, source.graph_signature.user_inputs):
            inputs.append(graph.placeholder(name))
            inputs[-1].meta = dict(given[name].meta)
        root = torch.nn.Module()
        end = output_node(source.graph)
        outputs = insert_call(root, graph, self.flat, inputs, end.all_input_nodes, like=end)
        by_source = dict(zip(end.all_input_nodes, outputs, strict=True))
        results = [by_source[node] for node in end.args[0]]  # type: ignore[index, union-attr]
        graph.output(tuple(results))
        specs = [InputSpec(InputKind.USER_INPUT, TensorArgument(n.name), None) for n in inputs]
        signature = make_signature(specs, [n.name for n in results])
        return make_program(graph, signature, like=source, root=root, state_dict={}, constants={})


def _is_flat(program: ExportedProgram) -> bool:
    return (program.call_spec.in_spec, program.call_spec.out_spec) == _flat_specs(program)


def _flattened(program: ExportedProgram) -> ExportedProgram:
    """The same program for tensors without structure."""
    in_spec, out_spec = _flat_specs(program)
    return make_program(
        program.graph,
        program.graph_signature,
        like=program,
        root=program.graph_module,
        in_spec=in_spec,
        out_spec=out_spec,
    )


def _flat_specs(program: ExportedProgram) -> tuple[pytree.TreeSpec, pytree.TreeSpec]:
    signature = program.graph_signature
    inputs: tuple[Any, ...] = tuple(range(len(signature.user_inputs)))
    outputs = tuple(range(len(signature.user_outputs)))
    return pytree.tree_structure((inputs, {})), pytree.tree_structure(outputs)


def is_delegate_call(node: Node) -> bool:
    """Whether it calls what a backend has compiled."""
    return node.op == "call_function" and node.target is call_delegate


def lowered_of(call: Node, owner: torch.nn.Module) -> LoweredBackendModule:
    """What a delegate's call runs. owner: the graph module of the call."""
    attribute = call.args[0]
    assert isinstance(attribute, Node)
    lowered = getattr(owner, str(attribute.target))
    assert isinstance(lowered, LoweredBackendModule)
    return lowered


def _attribute(root: torch.nn.Module, graph: Graph, lowered: LoweredBackendModule) -> Node:
    """Reads a delegate's module, which `root` gets unless it has it, at the insertion point."""
    for name, child in root.named_children():
        if child is lowered:
            return graph.get_attr(name)
    number = 0
    while hasattr(root, f"lowered_module_{number}"):
        number += 1
    name = f"lowered_module_{number}"
    root.add_module(name, lowered)
    return graph.get_attr(name)


def insert_call(
    root: torch.nn.Module,
    graph: Graph,
    lowered: LoweredBackendModule,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    like: Node,
) -> list[Node]:
    """Calls a delegate at the graph's insertion point. Returns what stands for `outputs`.

    root: the graph's module, which gets the delegate's. like: whose provenance the call has.
    """
    call = graph.call_function(call_delegate, (_attribute(root, graph, lowered), *inputs))
    inherit_meta(call, like)
    call.meta["val"] = tuple(node.meta["val"] for node in outputs)
    items = []
    for index, node in enumerate(outputs):
        item = graph.call_function(operator.getitem, (call, index))
        inherit_meta(item, node)
        item.meta["val"] = node.meta["val"]
        items.append(item)
    return items
