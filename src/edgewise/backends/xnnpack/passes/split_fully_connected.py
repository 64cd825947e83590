"""A fully connected node of which only slices are read becomes one node per slice.

Projections of query, key and value are often one matrix: the result is then cut in
three, which costs a copy of all of it. Three products with a third of the weights each
do the same work and need no copy.

Requires: every reader of the result is, possibly behind one reshape that only splits
channels, a slice that takes whole everything but channels. Slices do not overlap, so
no product is computed twice.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import rows_of
from edgewise.edge.graph import Dim
from edgewise.edge.sizes import same, same_sizes, symbolic_sizes
from edgewise.passes import declared


@dataclass
class _Part:
    slice: Node
    start: int
    count: int


@declared()
def split_fully_connected(graph: Graph) -> bool:
    users = graph.users()
    replaced: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.kind != "FullyConnected" or node.outputs[0].output_index is not None:
            continue
        parts = _parts(node, users)
        if parts is not None:
            replaced[node] = [n for part in parts for n in _product(node, part)]
            for part in parts:
                replaced[part.slice] = []
            # Reshapes between it and the slices have no readers any more, nor an operand.
            replaced.update((reader, []) for reader in users[node.outputs[0]])
    if not replaced:
        return False
    graph.nodes = [n for node in graph.nodes for n in replaced.get(node, [node])]
    return True


def _parts(node: Node, users: dict[Value, list[Node]]) -> list[_Part] | None:
    result = node.outputs[0]
    rank = len(result.dims)
    found: list[_Part] = []
    for reader in users.get(result, []):
        source, readers = result, [reader]
        if reader.kind == "StaticReshape":
            source = reader.outputs[0]
            readers = users.get(source, [])
            if source.output_index is not None:
                return None
        # Channels may be split over trailing dimensions; ones before them do not matter.
        channels = _channel_dims(source.dims, result.dims[-1])
        if channels is None or not same(
            math.prod(source.dims[:channels]), math.prod(result.dims[: rank - 1])
        ):
            return None
        for cut in readers:
            part = _part(cut, source, channels)
            if part is None:
                return None
            found.append(part)
    found.sort(key=lambda p: p.start)
    if len(found) < 2 or any(a.start + a.count > b.start for a, b in itertools.pairwise(found)):
        return None
    if any(_needs_a_reshape_of_symbols(node, part) for part in found):
        return None
    return found


def _needs_a_reshape_of_symbols(node: Node, part: _Part) -> bool:
    target = part.slice.outputs[0].dims
    dims = (*node.outputs[0].dims[:-1], part.count)
    return symbolic_sizes(target) > 1 and not same_sizes(dims, target)


def _channel_dims(dims: tuple[Dim, ...], channels: Dim) -> int | None:
    """First of the trailing dimensions that together are the channels."""
    product = 1
    for first in range(len(dims) - 1, -1, -1):
        size = dims[first]
        if not isinstance(size, int) or not isinstance(channels, int):
            return None
        product *= size
        if product == channels:
            return first
        if product > channels:
            return None
    return None


def _part(cut: Node, source: Value, first: int) -> _Part | None:
    """The channels that a slice takes, if it takes a run of them and all of the rest."""
    if cut.kind != "StaticSlice":
        return None
    offsets, sizes = cut.params["offsets"], cut.params["sizes"]
    if list(sizes[:first]) != list(source.dims[:first]):
        return None
    cut_dims = [d for d in range(first, len(sizes)) if sizes[d] != source.dims[d]]
    if len(cut_dims) != 1:
        return None
    dim = cut_dims[0]
    if any(source.dims[d] != 1 for d in range(first, dim)):
        return None  # several runs
    inner = math.prod(source.dims[dim + 1 :])
    return _Part(cut, offsets[dim] * inner, sizes[dim] * inner)


def _product(node: Node, part: _Part) -> list[Node]:
    """The part's own product, and a reshape to the slice's shape if that is another."""
    x, weight, bias = node.inputs
    assert x is not None and weight is not None and weight.data is not None
    rows = slice(part.start, part.start + part.count)
    data = weight.data[rows]
    filters = Value(tuple(data.shape), weight.dtype, data=data, quant=rows_of(weight.quant, rows))
    inputs: list[Value | None] = [x, filters, None]
    if bias is not None and bias.data is not None:
        cut = bias.data[rows]
        inputs[2] = Value(tuple(cut.shape), bias.dtype, data=cut, quant=rows_of(bias.quant, rows))
    target = part.slice.outputs[0]
    dims = (*x.dims[:-1], part.count)
    if same_sizes(dims, target.dims):
        return [Node(node.kind, inputs, [target], dict(node.params), node.clamp, node.origin)]
    result = Value(dims, target.dtype, quant=target.quant)
    product = Node(node.kind, inputs, [result], dict(node.params), node.clamp, node.origin)
    shape = {"num_dims": len(target.dims), "new_shape": list(target.dims)}
    return [product, Node("StaticReshape", [result], [target], shape, None, node.origin)]
