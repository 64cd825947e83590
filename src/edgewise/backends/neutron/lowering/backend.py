"""The ahead-of-time half of the Neutron backend: a partition becomes a payload."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.neutron.lowering.artifacts import read_artifacts
from edgewise.backends.neutron.lowering.compile_spec import NeutronOptions
from edgewise.backends.neutron.lowering.context import NHWC, Computed, Lowering, Stored, Tensor
from edgewise.backends.neutron.lowering.converter import required_converter
from edgewise.backends.neutron.lowering.flavors import REFERENCE
from edgewise.backends.neutron.lowering.quantized import Quant, is_constant
from edgewise.backends.neutron.lowering.verify import LOWERED
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.payload import ReferencePayload, official, write_reference
from edgewise.backends.neutron.tflite.model import Value
from edgewise.edge.graph import arguments, fake, is_call, is_getitem, op_name
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import at_node, internal_errors
from edgewise.edge.orders import Perm, identity
from edgewise.edge.program import Constants, output_node
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.errors import PartitionError
from edgewise.partition.spec import BackendDetails, CompileSpec, PreprocessResult


class NeutronBackend(BackendDetails):
    """Id `NeutronBackend`, as in files of ExecuTorch."""

    backend_id: ClassVar[str] = "NeutronBackend"

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """PartitionRefused if NXP's converter makes no program of it; PartitionError or
        NeutronConverterError if it fails."""
        options = NeutronOptions.read(compile_specs)
        program = lower(edge_program, options.use_neutron_for_format_conversion)
        tag = f"neutron_{edge_program.graph_signature.user_outputs[0]}"
        _dump(options, tag, "pure", program.model)
        if options.neutron_converter_flavor == REFERENCE:
            payload = write_reference(
                ReferencePayload(
                    program.model, options.config, program.moved_inputs, program.moved_outputs
                )
            )
            return PreprocessResult(payload)
        converter = required_converter(options.neutron_converter_flavor)
        converted = converter.convert(program.model, options, program.operators, tag)
        _dump(options, tag, "neutron", converted)
        artifacts = read_artifacts(converted)
        payload = official(artifacts, program.channels_last, len(program.moved_inputs))
        return PreprocessResult(payload)


class TFLiteProgram:
    """A partition as TFLite.

    operators: names of the operators, in order. integers: the tensor of each quantization, by its
    node's name. moved_inputs, moved_outputs: by argument, whether
    the runtime must reorder dimensions.
    """

    def __init__(
        self,
        model: bytes,
        operators: list[str],
        inputs: list[tuple[Value, bool]],
        outputs: list[tuple[Value, bool]],
        integers: dict[str, Tensor],
    ) -> None:
        self.model = model
        self.operators = operators
        self.integers = integers
        self.moved_inputs = tuple(moved for _, moved in inputs)
        self.moved_outputs = tuple(moved for _, moved in outputs)
        self.channels_last = {value.name for value, moved in [*inputs, *outputs] if moved}


def lower(program: ExportedProgram, converts_formats: bool = True) -> TFLiteProgram:
    """The nodes of a partition, as their definitions lower them.

    converts_formats: inputs and outputs lie as in PyTorch; else they are channels last where the
    program has operators on images, and the runtime reorders them.
    """
    constants = Constants(program)
    to = Lowering(constants)
    found = [TABLE.of(n) for n in program.graph.nodes if is_call(n)]
    moves = not converts_formats and any(one is not None and one.images for one in found)
    inputs: list[tuple[Value, bool]] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node not in constants:
            tensor, moved = _input(to, node, moves)
            to.done[node] = tensor
            inputs.append((tensor.value, moved))
        elif is_call(node):
            _lower(to, node)
    outputs = []
    results = output_node(program.graph).args[0]
    for result in results:  # type: ignore[union-attr]
        assert isinstance(result, Node)
        outputs.append(_output(to, result, moves))
    model = to.b.finish([v for v, _ in inputs], [v for v, _ in outputs])
    LOWERED(model)
    integers = {n.name: t for n, t in to.done.items() if is_quantize(n) and isinstance(t, Tensor)}
    return TFLiteProgram(model, to.b.operator_names, inputs, outputs, integers)


def _input(to: Lowering, node: Node, moves: bool) -> tuple[Tensor, bool]:
    value = fake(node)
    quant = next((Quant.of(u) for u in node.users if is_dequantize(u)), None)
    if quant is None:
        raise PartitionError(
            f"{at_node(node)} inputs of a partition must be quantized; got {value.dtype}; "
            f"try a partitioner that tags what NeutronPartitioner accepts"
        )
    order, moved = _format(node, moves)
    shape = tuple(int(n) for n in value.shape)
    return to.result(node, shape, order, quant), moved


def _format(node: Node, moves: bool) -> tuple[Perm, bool]:
    """How the argument's dimensions lie in TFLite; whether the runtime sees to it.

    An argument that lies channels last is marked, too: the runtime then takes it as it is, and
    refuses it unmarked.
    """
    order = dim_order(fake(node))
    if order == NHWC or (moves and order == identity(4)):
        return NHWC, True
    if order != identity(len(order)):
        raise PartitionError(
            f"{at_node(node)} inputs and outputs of a partition must be contiguous or channels "
            f"last; got dimensions in the order {order}; try .contiguous() before"
        )
    return order, False


def _output(to: Lowering, node: Node, moves: bool) -> tuple[Value, bool]:
    found = to.done[node]
    assert isinstance(found, Tensor)
    order, moved = _format(node, moves and found.order == NHWC)
    return to.in_order(found, order).value, moved


def _lower(to: Lowering, node: Node) -> None:
    if is_constant(node, to.constants):
        return
    if is_dequantize(node):
        source = to.done[arguments(node)["input"]]
        assert isinstance(source, Tensor)
        to.done[node] = Stored(source)
    elif is_quantize(node):
        value = to.real(arguments(node)["input"])
        quant = Quant.of(node)
        if isinstance(value, Computed):
            to.done[node] = value.quantized(quant)
        else:
            to.done[node] = to.requantized(value.tensor, quant, node.name)
    elif is_getitem(node):
        to.done[node] = to.done[node.args[0]]  # type: ignore[index]
    else:
        definition = TABLE.of(node)
        if definition is None:
            raise PartitionError(
                f"{at_node(node)} only operators of the table can be lowered; got "
                f"{op_name(node)}; try a partitioner that tags what NeutronPartitioner accepts"
            )
        with internal_errors(f"lowering {definition.name} for Neutron", node):
            to.done[node] = definition.lower(to, node, arguments(node))


def _dump(options: NeutronOptions, tag: str, what: str, data: bytes) -> None:
    if options.intermediates_dir is None:
        return
    folder = Path(options.intermediates_dir)
    if not folder.is_dir():
        raise ValueError(
            f"[Neutron] intermediates_dir must be an existing directory; got {str(folder)!r}"
        )
    (folder / f"{tag}_{what}.et.tflite").write_bytes(data)
