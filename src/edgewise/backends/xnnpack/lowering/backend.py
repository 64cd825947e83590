"""The ahead-of-time half of the XNNPACK backend: a partition becomes a payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.builder import Builder
from edgewise.backends.xnnpack.lowering.data_files import marked_constants
from edgewise.backends.xnnpack.lowering.dynamic_quant import is_dynamic_product
from edgewise.backends.xnnpack.lowering.float_fallback import float_fallbacks
from edgewise.backends.xnnpack.lowering.graph import Graph
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.backends.xnnpack.lowering.serialize import serialize
from edgewise.backends.xnnpack.lowering.table import Lowering
from edgewise.backends.xnnpack.lowering.weight_only import (
    EXPANDED,
    PADDED,
    PLAIN,
    UNQUANTIZED,
)
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.backends.xnnpack.passes import OPTIMIZE
from edgewise.backends.xnnpack.passes.older_nodes import replace_newer
from edgewise.backends.xnnpack.passes.widen_filters import widen_filters
from edgewise.edge.graph import (
    fake,
    tensors_of,
)
from edgewise.edge.layout import dim_order
from edgewise.edge.sizes import symbol_values
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
                data_files=made.data_files,
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
    nodes = list(program.graph.nodes)
    shapes = [t.shape for n in nodes for t in tensors_of(n)]
    builder.graph.symbols = symbol_values(shapes, program.range_constraints)
    builder.graph.sources = nodes
    builder.graph.data_files = marked_constants(nodes, constants)
    to = Lowering(builder, constants)
    results = to.lower_all(program, TABLE)
    builder.origin = len(nodes) - 1
    for result in results:
        builder.output(to.operand(result), dim_order(fake(result)))
    if builder.graph.symbols and not builder.graph.is_possible():
        builder.graph.symbols = symbol_values(shapes, {})  # the example's
    return builder.graph
