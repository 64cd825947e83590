"""The ahead-of-time half of the XNNPACK backend: a partition becomes a payload."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.builder import Builder, Operand, Ref
from edgewise.backends.xnnpack.lowering.dynamic_quant import is_dynamic_product
from edgewise.backends.xnnpack.lowering.float_fallback import float_fallbacks
from edgewise.backends.xnnpack.lowering.graph import Graph
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.backends.xnnpack.lowering.reshape import OutOfReach
from edgewise.backends.xnnpack.lowering.serialize import serialize
from edgewise.backends.xnnpack.lowering.table import Lowering
from edgewise.backends.xnnpack.lowering.weight_only import (
    EXPANDED,
    PADDED,
    PLAIN,
    UNQUANTIZED,
    is_expanded,
    is_plain,
)
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.backends.xnnpack.passes import OPTIMIZE
from edgewise.backends.xnnpack.passes.older_nodes import replace_newer
from edgewise.backends.xnnpack.passes.widen_filters import widen_filters
from edgewise.edge.graph import (
    arguments,
    dims_of,
    fake,
    is_getitem,
    is_size,
    op_name,
    shape_of,
    tensors_of,
)
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import at_node, internal_errors
from edgewise.edge.orders import identity
from edgewise.edge.program import output_node
from edgewise.edge.sizes import at, symbol_values
from edgewise.errors import PartitionError
from edgewise.partition.spec import BackendDetails, CompileSpec, PreprocessResult
from edgewise.releases import Target


class XnnpackBackend(BackendDetails):
    """Id `XnnpackBackend`, as in files of ExecuTorch."""

    backend_id: ClassVar[str] = "XnnpackBackend"

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        graph = build(edge_program)
        OPTIMIZE(graph)
        notes = _notes(list(edge_program.graph.nodes), graph)

        def written(target: Target) -> PreprocessResult:
            made = serialize(widen_filters(replace_newer(graph, target), target))
            return PreprocessResult(
                made.payload,
                made.named,
                notes=notes,
                is_read_while_running=made.has_constants,
                for_target=written,
            )

        return written(Target())


def _notes(nodes: Sequence[Node], graph: Graph) -> dict[str, list[str]]:
    """For the report, by the name of the node that a node of the subgraph comes from."""
    found = {nodes[number].name: [EXPANDED] for number in graph.expands}
    for number in graph.expands:
        if is_dynamic_product(nodes[number]):
            found[nodes[number].name].append(UNQUANTIZED)
    for number in graph.padded:
        found.setdefault(nodes[number].name, []).append(PADDED)
    for number in graph.plain:
        found.setdefault(nodes[number].name, []).append(PLAIN)
    for number, reason in float_fallbacks(graph).items():
        texts = found.setdefault(nodes[number].name, [])
        texts.append(f"in floating point between quantized values: {reason}")
    return found


def build(program: ExportedProgram) -> Graph:
    """The subgraph of a partition, as its definitions lower it."""
    constants = QuantizedConstants(program)
    builder = Builder(constants.stored)
    shapes = [t.shape for n in program.graph.nodes for t in tensors_of(n)]
    builder.graph.symbols = symbol_values(shapes, program.range_constraints)
    to = Lowering(builder, constants)
    builder.graph.sources = list(program.graph.nodes)
    for number, node in enumerate(builder.graph.sources):
        builder.origin = number
        if node.op == "placeholder":
            if node not in constants:
                value = fake(node)
                to.done[node] = builder.input(shape_of(node), value.dtype, dim_order(value))
        elif node.op == "call_function" and not is_size(node) and node not in constants:
            to.done[node] = _lower(to, node)
    for result in output_node(program.graph).args[0]:  # type: ignore[union-attr]
        assert isinstance(result, Node)
        operand = to.operand(result)
        builder.output(operand, dim_order(fake(result)))
    return builder.graph


def _lower(to: Lowering, node: Node) -> Operand | tuple[Operand, ...]:
    if is_getitem(node):
        parts = to.done[node.args[0]]  # type: ignore[index]
        assert isinstance(parts, tuple)
        return parts[node.args[1]]  # type: ignore[index]
    definition = TABLE.of(node)
    if isinstance(to.constants, QuantizedConstants) and is_expanded(node, to.constants):
        to.b.graph.expands.add(to.b.origin)
    if isinstance(to.constants, QuantizedConstants) and is_plain(node, to.constants):
        to.b.graph.plain.add(to.b.origin)
    if definition is None:
        raise PartitionError(
            f"{at_node(node)} only operators of the table can be lowered; got {op_name(node)}; "
            f"try a partitioner that tags what XnnpackPartitioner accepts"
        )
    with internal_errors(f"lowering {definition.name} for XNNPACK", node):
        try:
            result = definition.lower(to, node, arguments(node))
        except OutOfReach:
            # With symbolic sizes some orders are harder than the one that was asked about.
            for source in node.all_input_nodes:
                operand = to.done.get(source)
                if isinstance(operand, Ref):
                    to.done[source] = to.b.in_order(operand, identity(operand.rank))
            result = definition.lower(to, node, arguments(node))
    _check_shape(node, result, to.b.graph.symbols)
    return result


def _check_shape(
    node: Node, result: Operand | tuple[Operand, ...], symbols: Mapping[Any, int]
) -> None:
    """A definition that lowers to another shape than torch's is wrong."""
    value = node.meta["val"]
    expected = value[0] if isinstance(value, (tuple, list)) else value
    found = result[0] if isinstance(result, tuple) else result
    shape = [at(size, symbols) for size in found.shape]
    want = [at(size, symbols) for size in dims_of(expected.shape)]
    if shape != want and not (math.prod(shape) == math.prod(want) == 1):
        raise PartitionError(
            f"{at_node(node)} a definition must lower to the operator's shape; "
            f"got {shape} for {want}"
        )
