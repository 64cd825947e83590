"""Batches whose size only the running program knows, in programs made for one size.

The NPU's program computes as many rows as the batch has at most. The rows that are missing are
filled up with zeros before it, and what it makes of them is cut off behind it: both by operators
of the program, so that it is right on every runtime. That holds where each row of a result depends
on the same row of the operands only, and costs the largest batch's time whatever the batch is;
hence it is not done unless it is asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from edgewise.backends.neutron.lowering.quantized import Cluster
from edgewise.backends.neutron.operators import TABLE
from edgewise.edge.graph import Dim, arguments, call, dims_of, fake, is_call, is_size, tensors_of
from edgewise.edge.layout import dim_order
from edgewise.edge.orders import identity
from edgewise.edge.resolve_symbolic_shapes import SizeMaker
from edgewise.edge.sizes import LARGEST_BOUND, at, is_symbolic, shown
from edgewise.partition.spec import Refusal

aten = torch.ops.aten
_RULE = "rows of a bounded batch that stay apart"
_HINT = "torch.export.Dim(name, max=...) for the first dimension alone"
FILLED = Refusal(
    "the NPU's program is made for the largest batch", "rows to fill it up, or to cut off"
)
"""Why what `fill` adds is not on the NPU."""


class DynamicBatch:
    """The clusters of a program that are made for the largest batch, for now or for good."""

    def __init__(self, graph: Graph, inputs: Sequence[Node]) -> None:
        """inputs: what the caller of the program gives."""
        self._graph = graph
        self._sizes = SizeMaker(graph, list(inputs))
        self._before: dict[Node, tuple[Any, Any, Any]] = {}

    def fix(self, cluster: Cluster) -> Refusal | None:
        """Gives the cluster's nodes their sizes at the largest batch, or says why it cannot."""
        nodes = [*cluster.inputs, *cluster.nodes, *cluster.outputs]
        largest: dict[Any, int] = {}
        for node in nodes:
            for tensor in tensors_of(node):
                got = _largest(dims_of(tensor.shape), tensor, largest)
                if got is not None:
                    return Refusal(_RULE, f"{node.name}: {got}", _HINT)
        if not largest:
            return None
        for node in cluster.nodes:
            mixed = _mixes(node)
            if mixed is not None:
                return Refusal(_RULE, f"{node.name}, {mixed}", _HINT)
        for node in nodes:
            self._before[node] = (node.meta["val"], node.args, node.kwargs)
            sizes = _numbers(largest)
            node.args, node.kwargs = map_arg((node.args, node.kwargs), sizes)
            node.meta["val"] = _at(node.meta["val"], largest)
        return None

    def release(self, cluster: Cluster) -> None:
        """Undoes `fix`."""
        for node in cluster.all_nodes:
            if node in self._before:
                node.meta["val"], node.args, node.kwargs = self._before.pop(node)

    def fill(self, partitions: Sequence[Sequence[Node]]) -> list[Node]:
        """Adds what cuts rows off behind the partitions, and what fills them up before."""
        added = []
        for nodes in partitions:
            members = set(nodes)
            for node in nodes:
                users = [u for u in node.users if u not in members]
                if users and node in self._before and _is_dynamic(self._before[node][0]):
                    added.append(self._cut(node, users))
        for nodes in partitions:
            members = set(nodes)
            for source in dict.fromkeys(s for n in nodes for s in n.all_input_nodes):
                users = [n for n in nodes if source in n.args and n in self._before]
                dynamic = users and not is_size(source) and _is_dynamic(source.meta["val"])
                if source not in members and dynamic:
                    added.append(self._filled(source, users))
        return added

    def _filled(self, source: Node, users: Sequence[Node]) -> Node:
        value = fake(source)
        whole = fake(users[0])
        with self._graph.inserting_before(users[0]):
            rows = self._rows(source, value)
            missing = self._graph.call_function(operator.sub, (int(whole.shape[0]), rows))
            missing.meta["val"] = int(whole.shape[0]) - value.shape[0]
            amounts = [0] * (2 * value.dim() - 1)
            filled = value.new_empty(whole.shape)
            made = call(
                self._graph,
                aten.constant_pad_nd.default,
                (source, [*amounts, missing]),
                source,
                filled,
            )
        for user in users:
            user.replace_input_with(source, made)
        return made

    def _cut(self, node: Node, users: Sequence[Node]) -> Node:
        value = self._before[node][0]
        following = node.next
        with self._graph.inserting_before(following):
            rows = self._rows(node, value)
            made = call(self._graph, aten.slice_copy.Tensor, (node, 0, 0, rows), node, value)
        for user in users:
            user.replace_input_with(node, made)
        return made

    def _rows(self, like: Node, value: torch.Tensor) -> Node:
        size: Any = value.shape[0]
        made = self._sizes.make(size)
        return (
            made
            if made is not None
            else call(self._graph, aten.sym_size.int, (like, 0), like, size)
        )


def _largest(shape: Sequence[Dim], tensor: torch.Tensor, found: dict[Any, int]) -> str | None:
    """Adds the batch's symbol with its bound to `found`; or says what else the shape is."""
    if not any(map(is_symbolic, shape)):
        return None
    rows, rest = shape[0], shape[1:]
    if any(map(is_symbolic, rest)):
        return shown(shape)
    if dim_order(tensor) != identity(len(shape)):
        return f"{shown(shape)} with dimensions in another order"
    factor, symbol = sympy.sympify(rows).as_coeff_Mul()
    if not (symbol.is_Symbol and factor.is_Integer and factor > 0):
        return shown(shape)
    size: Any = tensor.shape[0]
    upper = size.node.shape_env.bound_sympy(symbol).upper
    if not isinstance(upper, sympy.Integer) or upper > LARGEST_BOUND:
        return f"{shown(shape)} without an upper bound"
    found[symbol] = int(upper)
    return None if len(found) == 1 else f"{shown(shape)} beside another symbol"


def _mixes(node: Node) -> str | None:
    """How a row of the node's result depends on others."""
    operands = [s for s in node.all_input_nodes if not is_size(s)]
    if not any(_is_dynamic(s.meta["val"]) for s in operands):
        return None
    if not _is_dynamic(node.meta["val"]):
        return "whose result is of all rows"
    definition = TABLE.of(node)
    rank = tensors_of(node)[0].dim()
    along = definition.along(arguments(node)) if definition is not None else ()
    return "along the batch" if any(dim % rank == 0 for dim in along) else None


def _is_dynamic(value: Any) -> bool:
    values = value if isinstance(value, (tuple, list)) else [value]
    return any(
        is_symbolic(size)
        for v in values
        if isinstance(v, torch.Tensor)
        for size in dims_of(v.shape)
    )


def _at(value: Any, largest: Mapping[Any, int]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_at(v, largest) for v in value)
    if not isinstance(value, torch.Tensor):
        return value
    return value.new_empty([at(size, largest) for size in dims_of(value.shape)])


def _numbers(largest: Mapping[Any, int]) -> Any:
    """Of a size its number at the largest batch; other nodes as they are."""

    def number(node: Node) -> Any:
        if not (is_call(node) and is_size(node)):
            return node
        (size,) = dims_of([node.meta["val"]])
        return at(size, largest)

    return number


__all__ = ["FILLED", "DynamicBatch"]
