"""Partitions become calls of delegates.

A tagged partition is cut out of the graph as a program of its own, compiled by its
backend, and replaced by one `call_delegate` node. All partitions of a program are
replaced in one sweep, in time linear in nodes and edges.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.bodies import graphs_within
from edgewise.edge.graph import is_size
from edgewise.edge.node_errors import internal_errors, users_code
from edgewise.edge.program import (
    drop_unused_constants,
    output_node,
    sync_outputs,
)
from edgewise.errors import PartitionError
from edgewise.partition.cut_out import cut_out, drop_states, owned_states
from edgewise.partition.lowered_module import (
    LoweredBackendModule,
    insert_call,
    is_delegate_call,
    lowered_of,
)
from edgewise.partition.spec import (
    DEBUG_HANDLE,
    TAG,
    BackendDetails,
    DelegationSpec,
    PartitionRefused,
)

Lowered = TypeVar("Lowered", bound=LoweredBackendModule)


def lower_partitions(
    program: ExportedProgram,
    tags: dict[str, DelegationSpec],
    on_refusal: Callable[[list[Node], PartitionRefused], None] | None = None,
) -> dict[str, LoweredBackendModule]:
    """Compiles the nodes tagged with a key of `tags`, in place. Returns what each tag became.

    on_refusal: called with the nodes of each partition that its backend refuses; they stay in the
    program, without their tag. Without it the refusal is raised.
    PartitionError if a tag is unknown or a partition depends on itself through nodes
    outside of it.
    """
    groups: dict[str, list[Node]] = {}
    for node in program.graph.nodes:
        tag = node.meta.get(TAG)
        if tag is None or node.op != "call_function":
            continue
        if tag not in tags:
            raise PartitionError(
                f"[to_backend] a node's delegation_tag must be a key of partition_tags; "
                f"got {tag!r} on {node.name}"
            )
        groups.setdefault(tag, []).append(node)
    add_debug_handles(program.graph)
    _order_by_partition(program.graph, groups)
    made: dict[str, LoweredBackendModule] = {}
    for tag, nodes in groups.items():
        try:
            made[tag] = _replace(program, nodes, tags[tag])
        except PartitionRefused as refusal:
            if on_refusal is None:
                raise
            for node in nodes:
                del node.meta[TAG]
            on_refusal(nodes, refusal)
    if made:
        sync_outputs(program)
        drop_unused_constants(program)
    return made


def _order_by_partition(graph: Graph, groups: dict[str, list[Node]]) -> None:
    """Moves nodes so that each partition's are consecutive, after all that they need.

    Depth first over units (a node, or a whole partition), visited in the graph's order.
    """
    unit_of: dict[Node, Any] = {}
    for tag, members in groups.items():
        for member in members:
            unit_of[member] = tag
    done: set[Any] = set()
    open_units: set[Any] = set()
    end = output_node(graph)

    def members_of(unit: Any) -> list[Node]:
        return groups[unit] if isinstance(unit, str) else [unit]

    def needed_by(unit: Any) -> Iterable[Any]:
        for member in members_of(unit):
            for source in member.all_input_nodes:
                if is_size(source) and member in unit_of:
                    continue  # no input of a partition: see `cut_out`
                other = unit_of.get(source, source)
                if other != unit:
                    yield other

    for node in list(graph.nodes):
        if node.op in ("placeholder", "output"):
            continue
        stack: list[tuple[Any, Iterator[Any] | None]] = [(unit_of.get(node, node), None)]
        while stack:
            unit, pending = stack.pop()
            if unit in done or (isinstance(unit, Node) and unit.op == "placeholder"):
                continue
            if pending is None:
                if unit in open_units:
                    raise PartitionError(
                        f"[to_backend] a partition must not depend on itself through nodes outside "
                        f"of it; got a cycle through {unit}"
                    )
                open_units.add(unit)
                pending = iter(list(needed_by(unit)))
            missing = next((u for u in pending if u not in done and not _is_input(u)), None)
            if missing is not None:
                stack.append((unit, pending))
                if missing in open_units:
                    raise PartitionError(
                        f"[to_backend] a partition must not depend on itself through nodes outside "
                        f"of it; got a cycle through {missing}"
                    )
                stack.append((missing, None))
                continue
            open_units.discard(unit)
            done.add(unit)
            for member in members_of(unit):
                for source in member.all_input_nodes:
                    # Behind it the loop above must not move it: a partition may begin before it.
                    if source.op == "get_attr" and source not in done:
                        done.add(source)
                        end.prepend(source)
                end.prepend(member)


def _is_input(unit: Any) -> bool:
    return isinstance(unit, Node) and unit.op in ("placeholder", "get_attr")


def _replace(
    program: ExportedProgram, nodes: Sequence[Node], spec: DelegationSpec
) -> LoweredBackendModule:
    graph = program.graph
    states = owned_states(program, nodes)
    part, inputs, outputs = cut_out(program, nodes, states)
    members = set(nodes)
    add_debug_handles(part.graph)
    backend = spec.backend()
    if _wants_all_methods(backend):
        lowered = LoweredBackendModule(part, spec.backend_id, b"", spec.compile_specs)
        lowered.waits_for = backend  # until `settle_together`
    else:
        lowered = _compile(LoweredBackendModule, part, spec)
    with graph.inserting_before(nodes[0]):
        items = insert_call(program.graph_module, graph, lowered, inputs, outputs, like=nodes[-1])
        for node, item in zip(outputs, items, strict=True):
            outside = {user for user in node.users if user not in members}
            node.replace_all_uses_with(item, delete_user_cb=outside.__contains__)
    drop_states(program, states)
    modules = {s for n in nodes for s in n.all_input_nodes if s.op == "get_attr"}
    for node in reversed(nodes):
        graph.erase_node(node)
    for module in modules:
        if not module.users:
            graph.erase_node(module)
    for state in states:
        graph.erase_node(state)
    return lowered


def lower_program(program: ExportedProgram, spec: DelegationSpec, made: type[Lowered]) -> Lowered:
    """The whole edge program, compiled by one backend; `made` is the module's class.

    PartitionError if there is no such backend, or if the program writes its state; what the backend
    has against the program is raised, too.
    """
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise PartitionError(
            f"[to_backend] a program that is one delegate must not write state; got "
            f"{', '.join(written)}; try edge.to_backend(partitioner)"
        )
    add_debug_handles(program.graph)
    return _compile(made, program, spec)


def _compile(made: type[Lowered], program: ExportedProgram, spec: DelegationSpec) -> Lowered:
    backend = spec.backend()
    with _running(backend, spec.backend_id):
        result = backend.preprocess(program, spec.compile_specs)
    return made(program, spec.backend_id, result.processed_bytes, spec.compile_specs, result)


def _running(backend: type[BackendDetails], name: str) -> AbstractContextManager[None]:
    ours = backend.__module__.startswith("edgewise.")
    return internal_errors(f"{name}.preprocess") if ours else users_code()


def _wants_all_methods(backend: type[BackendDetails]) -> bool:
    own: Any = backend.preprocess_multimethod
    default: Any = BackendDetails.preprocess_multimethod
    return getattr(own, "__func__", own) is not default.__func__


def settle_together(programs: Mapping[str, ExportedProgram]) -> None:
    """Has backends that want the partitions of all methods at once compile them, in place."""
    waiting: dict[type[BackendDetails], dict[str, list[LoweredBackendModule]]] = {}
    for method, program in programs.items():
        whole = program.graph_module
        for graph_module in [whole, *(body for _, body in graphs_within(whole))]:
            for node in filter(is_delegate_call, graph_module.graph.nodes):
                lowered = lowered_of(node, graph_module)
                if lowered.waits_for is not None:
                    by_method = waiting.setdefault(lowered.waits_for, {})
                    by_method.setdefault(method, []).append(lowered)
    for backend, by_method in waiting.items():
        with _running(backend, backend.backend_id or backend.__name__):
            results = backend.preprocess_multimethod(
                {name: [one.original_module for one in group] for name, group in by_method.items()},
                {name: [one.compile_specs for one in group] for name, group in by_method.items()},
            )
        for method, modules in by_method.items():
            for lowered, result in zip(modules, results[method], strict=True):
                lowered.settle(result)


def add_debug_handles(graph: Graph) -> None:
    """Numbers the calls that have none (`meta["debug_handle"]`), by which backends name nodes."""
    handles = (node.meta.get(DEBUG_HANDLE) for node in graph.nodes)
    free = itertools.count(1 + max((h for h in handles if isinstance(h, int)), default=0))
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if DEBUG_HANDLE not in node.meta:
            node.meta[DEBUG_HANDLE] = next(free)
