"""bfloat16 is computed in float32, for backends that have no arithmetic of its own for it.

float32 holds every number of bfloat16, so weights and inputs stay what they are, and results are
those of eager with fewer roundings. What the caller sees keeps its type: inputs are cast first,
outputs last.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from edgewise.edge.bodies import control_flow, transform_bodies
from edgewise.edge.functionalize import written
from edgewise.edge.graph import call, calls, is_getitem, replace, tensors_of
from edgewise.edge.inline_regions import inline_regions
from edgewise.edge.program import copy_with_modules, output_node, sync_outputs

__all__ = ["computes_bfloat16", "upcast", "upcast_bfloat16"]

aten = torch.ops.aten
NARROW, WIDE = torch.bfloat16, torch.float32
_CAST = aten._to_copy.default
_CASTS = {_CAST: 0, aten.copy_.default: 1}
"""What casts at the borders, and the index of the operand that is cast."""

_OF_ANY_FLOAT = {"aten", "prims", "quantized_decomposed", "torchao", "llama", "edgewise"}
"""Namespaces of operators that compute the same in float32."""
_READ_BITS = {aten.view.dtype}


def upcast_bfloat16(program: ExportedProgram) -> bool:
    """Edits a private copy, whose tensors are shared. Returns whether it modified.

    Operators that read bits, and those of other libraries, take and give bfloat16 as before.
    """
    if not computes_bfloat16(program):
        return False
    _upcast(program, casts_borders=True)
    return True


def upcast(program: ExportedProgram) -> ExportedProgram:
    """The program itself where it computes nothing in bfloat16, else a copy in float32, with
    regions under autocast as part of the graph."""
    if not computes_bfloat16(program):
        return program
    copied = copy_with_modules(program)
    inline_regions(copied, program.graph_module, upcasts=True)
    upcast_bfloat16(copied)
    return copied


def computes_bfloat16(program: ExportedProgram) -> bool:
    """Whether there is something for the pass to do."""
    return any(_computes_narrow(n) or _is_under_autocast(n) for n in program.graph.nodes)


def _is_under_autocast(node: Node) -> bool:
    """Whether it is a region that casts to bfloat16, which its results may not show."""
    if node.target is not torch.ops.higher_order.wrap_with_autocast:
        return False
    _, dtype, is_enabled, *_ = node.args
    return bool(is_enabled) and dtype == NARROW


def _computes_narrow(node: Node) -> bool:
    """Whether the node has a result in bfloat16, and is no cast that this pass leaves."""
    if node.op == "placeholder" or not _is_narrow(node) or _is_exact(node):
        return False
    is_cast = node.target in _CASTS and not _is_narrow(node.all_input_nodes[_CASTS[node.target]])
    return not (is_cast and all(u.op == "output" or _is_exact(u) for u in node.users))


def _is_narrow(node: Node) -> bool:
    return any(tensor.dtype == NARROW for tensor in tensors_of(node))


def _is_exact(node: Node) -> bool:
    """Whether the node's meaning hangs on the types that it is given."""
    if is_getitem(node):
        source = node.args[0]
        return isinstance(source, Node) and _is_exact(source)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False  # a higher-order operator, whose graphs are like this one
    return target in _READ_BITS or target.namespace not in _OF_ANY_FLOAT


def _upcast(program: ExportedProgram, *, casts_borders: bool) -> None:
    """casts_borders: inputs and outputs keep their type. Bodies of control flow have none to keep:
    what calls them has float32."""
    graph = program.graph
    narrow = {node for node in graph.nodes if _is_narrow(node)}
    aliases = [node for node in calls(graph) if _becomes_alias(node)]
    lifted = _upcast_state(program)
    for node in graph.nodes:
        if node.op == "placeholder":
            if node.name in lifted or not casts_borders:
                _note_wide(node)
        elif node.op != "output" and not _is_exact(node):
            if node.op == "call_function" and control_flow(node) is None:
                node.args = map_aggregate(node.args, _wide_type)
                node.kwargs = map_aggregate(node.kwargs, _wide_type)
            _note_wide(node)
    for node in aliases:
        copy = _copy_instead(node)
        if node in narrow:
            narrow.add(copy)
    if casts_borders:
        _cast_inputs(graph)
        _cast_outputs(program, narrow)
    _cast_around_exact(graph, narrow)
    transform_bodies(program, lambda body, name: _body(body))
    sync_outputs(program)


def _body(body: ExportedProgram) -> ExportedProgram:
    _upcast(body, casts_borders=False)
    return body


def _wide_type(value: Any) -> Any:
    return WIDE if value is NARROW else value


def _note_wide(node: Node) -> None:
    if "val" in node.meta:
        node.meta["val"] = pytree.tree_map(_wide, node.meta["val"])


def _wide(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != NARROW:
        return value
    return _like(value, WIDE)


def _becomes_alias(node: Node) -> bool:
    """Whether the call is a cast between the two types: a copy, which another may write to."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target.overloadpacket not in (aten.to, aten._to_copy, aten.type_as):
        return False
    before, after = tensors_of(source), tensors_of(node)
    return bool(before and after) and {before[0].dtype, after[0].dtype} == {NARROW, WIDE}


def _upcast_state(program: ExportedProgram) -> set[str]:
    """Parameters, buffers and constants in float32. Returns the names of all their placeholders."""
    known: dict[tuple[Any, ...], torch.Tensor] = {}
    lifted: set[str] = set()
    for spec in program.graph_signature.input_specs:
        table = program.state_dict if spec.target in program.state_dict else program.constants
        value = table.get(spec.target) if spec.target is not None else None
        if not isinstance(value, torch.Tensor):
            continue
        lifted.add(spec.arg.name)
        if value.dtype != NARROW:
            continue
        # Weights that share memory share it afterwards.
        address = 0 if isinstance(value, FakeTensor) else value.data_ptr()
        key = (address or id(value), value.shape, value.stride())
        if key not in known:
            known[key] = value.detach().to(WIDE)
        wide = known[key]
        is_parameter = isinstance(value, torch.nn.Parameter)
        table[spec.target] = torch.nn.Parameter(wide, requires_grad=False) if is_parameter else wide
    return lifted


def _copy_instead(node: Node) -> Node:
    with node.graph.inserting_before(node):
        options = {k: v for k, v in node.kwargs.items() if k == "memory_format"}
        copy = call(
            node.graph, aten.clone.default, [node.args[0]], node, node.meta["val"], **options
        )
    replace(node, copy)
    return copy


def _cast_inputs(graph: Graph) -> None:
    """Those that are bfloat16 still, for what computes with them. What is written to a cast, as an
    export that is not functional may say, goes to its input at the end."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    casts = {
        node: cast
        for node in reversed(inputs)
        if _is_narrow(node) and (cast := _cast_for_users(node, inputs[-1])) is not None
    }
    changed = written(graph)
    with graph.inserting_before(output_node(graph)):
        for node, cast in casts.items():
            if cast in changed:
                call(graph, aten.copy_.default, [node, cast], node, node.meta["val"])


def _cast_for_users(node: Node, after: Node) -> Node | None:
    users = {user for user in node.users if user.op != "output" and not _is_exact(user)}
    if not users:
        return None
    with node.graph.inserting_after(after):
        cast = _cast(node, WIDE)
    node.replace_all_uses_with(cast, lambda user: user in users)
    return cast


def _cast_outputs(program: ExportedProgram, narrow: Collection[Node]) -> None:
    """What was bfloat16 for the caller is again; state that stays inside has become float32."""
    returned = output_node(program.graph)
    values = returned.args[0]
    assert isinstance(values, (tuple, list))
    made = list(values)
    for index, spec in enumerate(program.graph_signature.output_specs):
        value = values[index]
        is_seen = spec.kind in (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION)
        if is_seen and isinstance(value, Node) and value in narrow and not _is_narrow(value):
            with program.graph.inserting_before(returned):
                made[index] = _cast(value, NARROW)
    returned.args = (tuple(made),)


def _cast_around_exact(graph: Graph, narrow: Collection[Node]) -> None:
    for node in [n for n in calls(graph) if _is_exact(n)]:
        for source in node.all_input_nodes:
            if source in narrow and not _is_narrow(source):
                with graph.inserting_before(node):
                    node.replace_input_with(source, _cast(source, NARROW))
        if isinstance(node.meta.get("val"), torch.Tensor) and _is_narrow(node):
            _cast_for_users(node, node)


def _cast(node: Node, dtype: torch.dtype) -> Node:
    """A cast at the graph's insertion point."""
    return call(node.graph, _CAST, [node], node, _like(node.meta["val"], dtype), dtype=dtype)


def _like(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(value, FakeTensor):
        return value.to(dtype)
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)
