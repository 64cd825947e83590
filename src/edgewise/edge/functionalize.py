"""In-place operators become functional ones.

`y = relu_(x)` may become `y = relu(x)`, with later uses of `x` reading `y`, if nothing
else can see the write: `x` is no view of an input, parameter or buffer, and no other alias of
it is read later. A buffer or an input that is written itself has the last such result as its new
value. That covers activations, residual sums and state of ordinary models, without a trace. For
anything else (slices written through) `functionalize` answers None and the caller lets torch
functionalise the program in its one trace.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from edgewise.edge.graph import arguments, is_call, is_composite, replace, same_shape
from edgewise.edge.program import return_states, state_placeholders, sync_outputs

_aten = torch.ops.aten

_DROPOUTS = {
    _aten.dropout.default,
    _aten.feature_dropout.default,
    _aten.alpha_dropout.default,
}

# Composite operators whose schema shows no alias but that return their input, or may.
_RETURN_THEIR_INPUT = {*_DROPOUTS, _aten.type_as.default}

# They change a tensor's shape and write no element: views made before stay what they are.
_RESHAPE_IN_PLACE = {
    f"aten::{name}_"
    for name in ("detach", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}

# Norms, and the argument that says whether they are trained.
_TRAINED_BY: dict[Any, str] = {
    _aten.batch_norm.default: "training",
    _aten.instance_norm.default: "use_input_stats",
}

# Composite operators that always compute a fresh tensor. Others are taken for aliases.
_FRESH = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul
    batch_norm layer_norm group_norm instance_norm rms_norm embedding softmax log_softmax
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d max_pool1d
    max_pool2d max_pool3d relu6 selu celu hardsigmoid hardswish silu gelu prelu mish
    scaled_dot_product_attention cat stack concat pad one_hot square where
    upsample_bilinear2d upsample_nearest2d outer tensordot std var norm
""".split()  # noqa: SIM905  (a list of forty strings says less)


def is_functional(graph: Graph) -> bool:
    return not any(_mutates(node) for node in graph.nodes)


def drop_identities(program: ExportedProgram) -> bool:
    """Takes out composite operators that return their very input. Returns whether it modified.

    Before a trace: there they would count as copies, and writes through them be lost.
    """
    found = [
        node
        for node in program.graph.nodes
        if node.target in _DROPOUTS and not (arguments(node)["train"] and arguments(node)["p"] > 0)
    ]
    for node in found:
        source = node.args[0]
        assert isinstance(source, Node)
        replace(node, source)
    if found:
        sync_outputs(program)
    return bool(found)


def may_return_views(program: ExportedProgram) -> set[torch._ops.OpOverload]:
    """Composite operators of the program that may return a view without saying so.

    A trace that kept them whole would take their results for fresh tensors.
    """
    targets = {node.target for node in program.graph.nodes if is_call(node)}
    return {
        target
        for target in targets
        if isinstance(target, torch._ops.OpOverload)
        and (target in _RETURN_THEIR_INPUT or _is_opaque_composite(target))
    }


def composites_of(program: ExportedProgram) -> set[torch._ops.OpOverload]:
    """Operators of the program and its bodies that torch defines by others, and may keep whole:
    not norms that write statistics."""
    from torch._export.utils import _is_preservable_cia_op

    modules = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    calls = [node for module in modules for node in module.graph.nodes if is_call(node)]
    targets = {node.target for node in calls}
    targets -= {node.target for node in calls if _writes_statistics(node)}
    return {
        target
        for target in targets
        if isinstance(target, torch._ops.OpOverload) and _is_preservable_cia_op(target)
    }


def is_vectorized(program: ExportedProgram) -> bool:
    """Whether there are parts of `torch.vmap`, whose nodes have values of fewer dimensions than
    they compute, and which only a trace writes out."""
    return any(
        node.op == "call_function"
        and getattr(node.target, "__module__", None) == "torch._functorch.predispatch"
        for node in program.graph.nodes
    )


def writes_in_custom_operators(program: ExportedProgram) -> bool:
    """Whether operators outside of ATen write their arguments."""
    return any(
        _mutates(node) and node.target.namespace not in ("aten", "prims")
        for node in program.graph.nodes
    )


def written(graph: Graph) -> set[Node]:
    """Nodes whose memory an operator writes, or may write, under any of their names."""
    mutating = [node for node in graph.nodes if _mutates(node) and not _writes_nothing(node)]
    aliases = _alias_sets(graph) if mutating else {}
    return {name for node in mutating for base in _written_by(node) for name in aliases[base]}


def functionalize(program: ExportedProgram) -> bool | None:
    """Rewrites in place. True or False: whether it modified; None: it takes a trace."""
    states = state_placeholders(program)
    plan = _plan(program.graph, states)
    if not plan:
        return None if plan is None else False
    state_of = {state: state for state in states}
    written: dict[Node, Node] = {}
    for node, _ in plan:
        base = node.args[0]
        assert isinstance(base, Node)
        if base in state_of:
            state_of[node] = state_of[base]
            written[state_of[base]] = node
    _rewrite(plan)
    return_states(program, written)
    return True


def functionalize_graph(graph: Graph) -> bool | None:
    """As `functionalize`; None: nothing was changed, as writes may be read through other names."""
    plan = _plan(graph)
    if plan:
        _rewrite(plan)
    return None if plan is None else bool(plan)


_Plan = list[tuple[Node, torch._ops.OpOverload]]


def _plan(graph: Graph, states: Collection[Node] = ()) -> _Plan | None:
    """The operators that write, each with its functional twin; None if that does not do."""
    mutating = [node for node in graph.nodes if _mutates(node)]
    if not mutating:
        return []
    order = {node: position for position, node in enumerate(graph.nodes)}
    aliases = _alias_sets(graph)
    plan: _Plan = []
    for node in mutating:
        functional = _functional_twin(node)
        base = node.args[0] if node.args else None
        if functional is None or not isinstance(base, Node):
            return None
        group = aliases[base]
        held = [member for member in group if member.op != "call_function"]
        if held and not (
            len(held) == 1
            and held[0] in states
            and not _writes_nothing(node)
            and (held[0] is base or _is_same_tensor(held[0], base, mutating))
        ):
            return None
        now = order[node]
        for member in group:
            # Earlier in-place writes to the same tensor are other names of it: their
            # later uses read this node's result, as those of the base do.
            if member is base or member is node or _is_same_tensor(member, base, mutating):
                continue
            if order[member] > now or _writes_nothing(node):
                continue  # made from what the write left, or else from a member read later
            if any(order[user] > now for user in member.users):
                return None
        plan.append((node, functional))
    return plan


def _rewrite(plan: _Plan) -> None:
    order = {node: position for position, node in enumerate(plan[0][0].graph.nodes)}
    for node, functional in plan:
        base = node.args[0]
        assert isinstance(base, Node)
        now = order[node]
        later = {user for user in base.users if user is not node and order[user] > now}
        base.replace_all_uses_with(node, delete_user_cb=later.__contains__)
        node.target = functional


def _mutates(node: Node) -> bool:
    return (
        is_call(node)
        and isinstance(node.target, torch._ops.OpOverload)
        and (node.target._schema.is_mutable or _writes_statistics(node))
    )


def _writes_statistics(node: Node) -> bool:
    """Whether it is a norm that is trained, and keeps a running mean and variance: it writes them,
    which its schema does not say."""
    trained = _TRAINED_BY.get(node.target)
    if trained is None:
        return False
    named = arguments(node)
    return bool(named[trained]) and named["running_mean"] is not None


def _written_by(node: Node) -> list[Node]:
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    named = arguments(node)
    if _writes_statistics(node):
        given = [named["running_mean"], named["running_var"]]
    else:
        given = [named[a.name] for a in _written_arguments(target)]
    return [base for value in given for base in _nodes_in(value)]


def _written_arguments(target: torch._ops.OpOverload) -> list[Any]:
    """Of the schema."""
    arguments = target._schema.arguments
    return [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]


def _functional_twin(node: Node) -> torch._ops.OpOverload | None:
    """`aten.relu.default` for `aten.relu_.default`, if only the first argument is written."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    namespace, _, name = target._schema.name.partition("::")
    written = _written_arguments(target)
    if namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    if len(written) != 1 or written[0].name != target._schema.arguments[0].name:
        return None
    twin = _twin_by_arguments(target)
    if twin is None:
        return None
    # `x.int_add_(float)` keeps x's type, where the functional form would promote.
    base, value = node.args[0], node.meta.get("val")
    before = base.meta.get("val") if isinstance(base, Node) else None
    if not isinstance(value, torch.Tensor) or not isinstance(before, torch.Tensor):
        return None
    if _writes_nothing(node):
        return twin
    return twin if _keeps_type(node, before) and same_shape(before.shape, value.shape) else None


@cache
def _twin_by_arguments(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """`aten.transpose.int` for `aten.transpose_.default`; None without one of the same types."""
    packet = getattr(_aten, target._schema.name.partition("::")[2][:-1], None)
    twins = [getattr(packet, n) for n in packet.overloads()] if packet is not None else []
    twins.sort(key=lambda other: other._overloadname != target._overloadname)
    return next((t for t in twins if _takes(t, target)), None)


def _takes(twin: torch._ops.OpOverload, target: torch._ops.OpOverload) -> bool:
    """Whether an operator that writes nothing has arguments of the types that one that does has."""
    types = [[str(a.real_type) for a in o._schema.arguments] for o in (twin, target)]
    return not twin._schema.is_mutable and types[0] == types[1]


def _writes_nothing(node: Node) -> bool:
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._schema.name in _RESHAPE_IN_PLACE


def _keeps_type(node: Node, before: torch.Tensor) -> bool:
    """Whether the functional form computes `before`'s type: no other operand promotes."""
    if node.target is _aten.copy_.default:
        return True
    types = [before.dtype]
    for argument in node.args[1:]:
        if isinstance(argument, Node) and isinstance(argument.meta.get("val"), torch.Tensor):
            types.append(argument.meta["val"].dtype)
        elif isinstance(argument, float) and not before.dtype.is_floating_point:
            return False
    result = types[0]
    for other in types[1:]:
        result = torch.promote_types(result, other)
    return result == before.dtype


def _alias_sets(graph: Graph) -> dict[Node, set[Node]]:
    """Nodes that may share memory, as one set object for all of them."""
    group: dict[Node, set[Node]] = {}
    for node in graph.nodes:
        group[node] = {node}
        if not is_call(node):
            continue
        for source in _sources_aliased_by(node):
            merged = group[source] | group[node]
            for member in merged:
                group[member] = merged
    return group


def _sources_aliased_by(node: Node) -> list[Node]:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        # getitem: an element of a tuple that may hold views.
        return [
            n
            for n in node.all_input_nodes
            if not isinstance(n.meta.get("val"), torch.Tensor) and not _is_unsafe(n)
        ]
    schema = target._schema
    aliased = [
        argument
        for position, argument in enumerate(node.args)
        if position < len(schema.arguments) and schema.arguments[position].alias_info is not None
    ]
    annotated = any(r.alias_info is not None for r in schema.returns)
    if annotated or target in _RETURN_THEIR_INPUT:
        sources = aliased or [node.args[0]]
    elif _is_opaque_composite(target):
        sources = list(node.all_input_nodes)
    else:
        sources = []
    found: list[Node] = []
    for source in sources:
        found += _nodes_in(source)
    return found


def _is_unsafe(node: Node) -> bool:
    """Whether PyTorch says that its results may be written and its operand is not read again."""
    target = node.target
    unsafe = ("aten::unsafe_chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes")
    return isinstance(target, torch._ops.OpOverload) and target._schema.name in unsafe


def _nodes_in(argument: object) -> list[Node]:
    items = argument if isinstance(argument, (list, tuple)) else (argument,)
    return [item for item in items if isinstance(item, Node)]


def _is_opaque_composite(target: torch._ops.OpOverload) -> bool:
    name = target._schema.name.partition("::")[2]
    if name in _FRESH or torch.Tag.core in target.tags:
        return False
    if target.namespace in ("quantized_decomposed", "torchao"):
        return False  # quantization changes the type: results are new tensors
    return is_composite(target)


def _is_same_tensor(member: Node, base: Node, mutating: list[Node]) -> bool:
    """Whether `member` is `base` after or before an in-place write, not a view of it."""
    chain = base
    while chain in mutating and isinstance(chain.args[0], Node):
        chain = chain.args[0]
        if chain is member:
            return True
    chain = member
    while chain in mutating and isinstance(chain.args[0], Node):
        chain = chain.args[0]
        if chain is base:
            return True
    return False
