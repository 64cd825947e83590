"""From torch's operators to the edge dialect, one node after the other.

A node that somebody keeps stays. Else, in this order: a rule of `edge.canonicalize`
spells it; a core ATen operator stays; anything else is decomposed by tracing that one
call with torch's own decompositions, and what comes out is treated the same way. The
whole program is never traced again for this.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from edgewise.edge import canonicalize
from edgewise.edge.decompositions import DECOMPOSITIONS, decomposes
from edgewise.edge.functionalize import is_functional
from edgewise.edge.graph import calls, erase_dead, inherit_meta, is_composite, op_name
from edgewise.edge.inner_linears import with_linears
from edgewise.edge.layout import settle
from edgewise.edge.node_errors import at_node
from edgewise.edge.open_sizes import has_symbols, told_if_fixed
from edgewise.edge.program import Constants, fake_mode
from edgewise.edge.provenance import forget, note
from edgewise.errors import InvalidGraphError

Keep = Callable[[Node], bool]


def normalize(program: ExportedProgram, keep: Keep = lambda node: False) -> bool:
    """Requires a functional graph. Ensures the edge dialect. Returns whether it modified."""
    tracer = CallTracer(program)
    graph = program.graph
    changed = False
    worklist = list(calls(graph))
    worklist.reverse()
    while worklist:
        node = worklist.pop()
        if node._erased:
            continue  # an item, erased together with the call that computed a list
        if canonicalize.is_nothing(node):
            graph.erase_node(node)
            changed = True
        elif keep(node):
            settle(node)
        elif node.target in canonicalize.RULES and canonicalize.apply_rule(graph, node):
            changed = True
        elif canonicalize.tensors_of_numbers(node, known=False) or canonicalize.integers_of_totals(
            node
        ):
            worklist.append(node)
            changed = True
        elif is_edge_operator(node.target) and not decomposes(node.target):
            settle(node)
        else:
            note(node)
            made = tracer.inline(node)
            if made is None:
                forget(node)
            changed |= made is not None
            worklist.extend(reversed(with_linears(made or [], keep)))
    return erase_dead(graph) or changed


def is_edge_operator(target: Any) -> bool:
    """Whether the dialect has it: core ATen, functional and no view; or no ATen at all."""
    if not isinstance(target, torch._ops.OpOverload):
        return True
    if target.namespace not in ("aten", "prims"):
        return True
    schema = target._schema
    if schema.is_mutable or any(r.alias_info is not None for r in schema.returns):
        return False
    if torch.Tag.core in target.tags or target in _EDGE_EXTRAS:
        return True
    return not _can_decompose(target)


aten = torch.ops.aten

# Functional and needed, though torch does not tag them as core.
_EDGE_EXTRAS = {
    aten.view_copy.default,
    aten.permute_copy.default,
    aten.expand_copy.default,
    aten.unsqueeze_copy.default,
    aten.squeeze_copy.dims,
    aten.slice_copy.Tensor,
    aten.select_copy.int,
    aten._to_copy.default,
    aten.mm.default,
    aten.bmm.default,
    aten.diagonal_copy.default,
    aten.unfold_copy.default,
    aten.roll.default,
    aten.replication_pad1d.default,
}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's own table of decompositions to core ATen."""
    global _table
    if _table is None:
        _table = dict(torch.export.default_decompositions())
    return _table


_table: dict[Any, Callable[..., Any]] | None = None


def _can_decompose(target: torch._ops.OpOverload) -> bool:
    return target in decompositions() or is_composite(target)


def _keep_sizes(node: Node, result: Any) -> None:
    """Sizes that only data tell stay the symbols that they were, whose bounds are known: the
    trace of a call such as `arange(n)` makes new ones."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    before: Any = node.meta.get("val")
    several = isinstance(result, (list, tuple))
    for old, new in zip(before, result, strict=True) if several else [(before, result)]:
        if not isinstance(old, torch.Tensor) or not isinstance(new, Node):
            continue
        made = new.meta.get("val")
        if not isinstance(made, torch.Tensor):
            continue
        fresh = free_unbacked_symbols(made) - free_unbacked_symbols(old)
        if fresh:
            _rename(fresh, made.shape, old.shape)
            new.meta["val"] = old


def _rename(fresh: Container[Any], made: Sequence[Any], old: Sequence[Any]) -> None:
    """Each fresh symbol is the size that the old shape has at its index: so intermediate tensors
    have its bound, too."""
    for new, known in zip(made, old, strict=True):
        if not isinstance(new, torch.SymInt) or not isinstance(known, torch.SymInt):
            continue
        if new.node.expr in fresh and known.node.expr.is_Symbol:
            new.node.shape_env._rename_unbacked_to(new.node.expr, known.node.expr)


def _is_prim(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "prims"


def _replace(node: Node, result: Any) -> None:
    """By a node, or by a list of what its items are."""
    if isinstance(result, (list, tuple)):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise TypeError(f"{user.name} takes the whole list that {op_name(node)} computes")
            _replace(user, result[user.args[1]])  # type: ignore[index]
    else:
        node.replace_all_uses_with(result)
    node.graph.erase_node(node)


class CallTracer:
    """Traces single calls into smaller ones and puts those into the graph."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._mode: Any = None
        self._constants: Constants | None = None

    def inline(
        self, node: Node, more: Mapping[Any, Callable[..., Any]] | None = None
    ) -> list[Node] | None:
        """The nodes that now stand for the call, or None if torch has nothing smaller.

        more: decompositions beside torch's to core ATen.
        """
        target: Any = node.target
        flat, spec = pytree.tree_flatten((node.args, node.kwargs))
        sources = [a for a in flat if isinstance(a, Node)]
        slots = [i for i, a in enumerate(flat) if isinstance(a, Node)]

        def run(*values: Any) -> Any:
            filled = list(flat)
            for slot, value in zip(slots, values, strict=True):
                filled[slot] = value
            args, kwargs = pytree.tree_unflatten(filled, spec)
            return target(*args, **kwargs)

        values = [source.meta["val"] for source in sources]
        table = {**decompositions(), **DECOMPOSITIONS, **(more or {})}
        traced = self.trace(node, run, values, table)
        inner = [n for n in traced.graph.nodes if n.op == "call_function"]
        if more is not None and any(_is_prim(n.target) for n in inner):
            return None  # no kernels
        # An operator that comes out of itself has nothing smaller; a write into an operand that
        # its schema hides (running statistics) is such a one, which the dialect's check refuses.
        # What the caller gives may call it with other operands.
        own = more is None or len(inner) == 1
        if own and any(n.target is target for n in inner):
            settle(node)
            return None
        return self._splice(node, traced, sources)

    def trace(
        self,
        node: Node,
        run: Callable[..., Any],
        values: Sequence[Any],
        table: dict[Any, Callable[..., Any]],
    ) -> GraphModule:
        """What `run` does with fake values, as a functional graph. node: the call that it stands
        for. table: decompositions."""
        from torch._dispatch.python import enable_python_dispatcher
        from torch.fx.experimental.proxy_tensor import make_fx

        if self._mode is None:
            self._mode = fake_mode(self._program)
        # Without oneDNN, whose recurrent layers no file can hold.
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._mode)
            stack.enter_context(without_onednn())
            if any(has_symbols(value) for value in values):
                # Torch's decompositions in Python: those in C++ take sizes for numbers.
                stack.enter_context(enable_python_dispatcher())
                stack.enter_context(told_if_fixed(node, self._mode))
            stack.enter_context(_told_of_data(node))
            traced = make_fx(run, decomposition_table=table)(*values)
            if not is_functional(traced.graph):
                traced = make_fx(torch.func.functionalize(traced, remove="mutations"))(*values)
        return traced

    def _splice(self, node: Node, traced: GraphModule, sources: list[Node]) -> list[Node]:
        result, made = self.copy_in(node, traced, sources)
        _keep_sizes(node, result)
        _replace(node, result)
        return made

    def copy_in(
        self, node: Node, traced: GraphModule, sources: Sequence[Node]
    ) -> tuple[Any, list[Node]]:
        """Puts the traced calls before the node, which stays: what they return, and all of them."""
        graph = node.graph
        env: dict[Node, Any] = {}
        arguments = iter(sources)
        made: list[Node] = []
        result: Any = None
        with graph.inserting_before(node):
            for inner in traced.graph.nodes:
                if inner.op == "placeholder":
                    env[inner] = next(arguments)
                elif inner.op == "get_attr":
                    env[inner] = self._lift(inner, traced)
                elif inner.op == "output":
                    result = torch.fx.node.map_arg(inner.args[0], lambda n: env[n])
                else:
                    copy = graph.node_copy(inner, lambda n: env[n])
                    for key in ("stack_trace", "nn_module_stack", "seq_nr", "original_aten"):
                        copy.meta.pop(key, None)
                    inherit_meta(copy, node)
                    env[inner] = copy
                    made.append(copy)
        return result, made

    def _lift(self, inner: Node, traced: GraphModule) -> Node:
        if self._constants is None:
            self._constants = Constants(self._program)
        value = getattr(traced, str(inner.target))
        return self._constants.add(str(inner.target), value)


@contextmanager
def _told_of_data(node: Node) -> Iterator[None]:
    """InvalidGraphError if the trace asks for what tensors hold."""
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        yield
    except RuntimeError as failure:
        known = (DataDependentOutputException, GuardOnDataDependentSymNode)
        if not isinstance(failure, known) and "data is not allocated" not in str(failure):
            raise
        raise InvalidGraphError(
            f"{at_node(node)} operators must be decomposed without what tensors hold; got "
            f"{op_name(node)}, which depends on it; try numbers in the place of tensors"
        ) from failure


@contextmanager
def without_onednn() -> Iterator[None]:
    """Its recurrent layers are one operator. (torch.backends.mkldnn.flags warns of devices.)"""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)
