"""What the converter made: one NeutronGraph, with its microcode, weights and kernels."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.backends.neutron.payload import NeutronArtifacts
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, Model, SubGraph
from edgewise.errors import PartitionError
from edgewise.flatbuffer import unpack
from edgewise.partition.spec import PartitionRefused, Refusal

NEUTRON_GRAPH = "NeutronGraph"
_ONE_GRAPH = f"partitions that NXP's converter turns into one {NEUTRON_GRAPH}"
_CONSTANTS = 3
"""Last inputs of the NeutronGraph: microcode, weights, kernels."""


def read_artifacts(converted: bytes) -> NeutronArtifacts:
    """From the converter's TFLite file. PartitionRefused if it is not one NeutronGraph, with the
    names of the tensors that other operators compute; PartitionError if it cannot be read."""
    try:
        model = unpack(Model, converted)
        graphs = model.subgraphs or []
        if len(graphs) != 1:
            raise _unexpected(f"{len(graphs)} subgraphs")
        return _read(model, graphs[0])
    except (ValueError, IndexError, TypeError) as cause:
        raise _unexpected(f"a file that cannot be read ({cause})") from None


def _read(model: Model, graph: SubGraph) -> NeutronArtifacts:
    names = [_operator_name(model, op.opcode_index) for op in graph.operators or []]
    if names != [NEUTRON_GRAPH]:
        raise _refused(graph, names)
    (node,) = graph.operators
    sources, results = list(node.inputs or []), list(node.outputs or [])
    inputs, constants = sources[:-_CONSTANTS], sources[-_CONSTANTS:]
    results = results[:-1]  # scratch memory
    if len(constants) != _CONSTANTS or not results:
        raise _unexpected(f"{len(sources)} inputs and {len(node.outputs or [])} outputs")
    graph_inputs, graph_outputs = list(graph.inputs or []), list(graph.outputs or [])
    version = 0
    if len(results) - 2 == len(graph_outputs):
        version, results = 1, results[:-2]
    blobs = [bytes(model.buffers[graph.tensors[i].buffer].data or b"") for i in constants]
    return NeutronArtifacts(
        inputs=_positions(inputs, graph_inputs, "input"),
        outputs=_positions(results, graph_outputs, "output"),
        input_names=tuple(graph.tensors[i].name for i in inputs),
        output_names=tuple(graph.tensors[i].name for i in results),
        microcode=blobs[0],
        weights=blobs[1],
        kernels=blobs[2],
        version=version,
    )


def _operator_name(model: Model, index: int) -> str:
    code = model.operator_codes[index]
    number = max(code.builtin_code, code.deprecated_builtin_code)
    if number == BuiltinOperator.CUSTOM:
        return str(code.custom_code)
    try:
        return BuiltinOperator(number).name
    except ValueError:
        return f"operator {number}"


def _positions(tensors: Sequence[int], among: Sequence[int], what: str) -> tuple[int, ...]:
    if any(among.count(tensor) != 1 for tensor in tensors):
        raise PartitionRefused(
            Refusal(_ONE_GRAPH, f"one with an {what} that is none of the program's")
        )
    return tuple(among.index(tensor) for tensor in tensors)


def _refused(graph: SubGraph, names: Sequence[str]) -> PartitionRefused:
    """names: of the graph's operators. Those that the converter does not turn into programs it
    leaves as they are, with their tensors' names; those that compute nothing it removes."""
    left = {
        graph.tensors[i].name: Refusal("operators that NXP's converter turns into a program", name)
        for op, name in zip(graph.operators or [], names, strict=True)
        if name != NEUTRON_GRAPH
        for i in op.outputs or []
    }
    return PartitionRefused(
        Refusal(_ONE_GRAPH, ", ".join(names) or "no operators"),
        left,
    )


def _unexpected(found: str) -> PartitionError:
    return PartitionError(
        f"[Neutron converter] the converted program must be one {NEUTRON_GRAPH}; got {found}; "
        f"try leaving operators out with operators_not_to_delegate"
    )
