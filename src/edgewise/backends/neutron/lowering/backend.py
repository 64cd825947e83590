"""The ahead-of-time half of the Neutron backend: a partition becomes a payload."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch.export import ExportedProgram

from edgewise.backends.neutron.lowering.artifacts import read_artifacts
from edgewise.backends.neutron.lowering.compile_spec import NeutronOptions
from edgewise.backends.neutron.lowering.context import Lowering, Tensor
from edgewise.backends.neutron.lowering.converter import required_converter
from edgewise.backends.neutron.lowering.flavors import REFERENCE
from edgewise.backends.neutron.lowering.verify import LOWERED
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.payload import ReferencePayload, official, write_reference
from edgewise.backends.neutron.tflite.model import Value
from edgewise.edge.graph import is_call
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.quantized_decomposed import is_quantize
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
    found = [TABLE.of(n) for n in program.graph.nodes if is_call(n)]
    moves = not converts_formats and any(one is not None and one.images for one in found)
    to = Lowering(IntegerConstants(program), moves)
    outputs = [to.output(result) for result in to.lower_all(program, TABLE)]
    model = to.b.finish([v for v, _ in to.inputs], [v for v, _ in outputs])
    LOWERED(model)
    integers = {n.name: t for n, t in to.done.items() if is_quantize(n) and isinstance(t, Tensor)}
    return TFLiteProgram(model, to.b.operator_names, to.inputs, outputs, integers)


def _dump(options: NeutronOptions, tag: str, what: str, data: bytes) -> None:
    if options.intermediates_dir is None:
        return
    folder = Path(options.intermediates_dir)
    if not folder.is_dir():
        raise ValueError(
            f"[Neutron] intermediates_dir must be an existing directory; got {str(folder)!r}"
        )
    (folder / f"{tag}_{what}.et.tflite").write_bytes(data)
