"""Quantizing modules with torchao, as users do, and looking at what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.backends.xnnpack.payload import QuantizedTensorValue
from support import exported_again, kinds, payloads


def pt2e(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    *,
    dynamic: bool = False,
    per_channel: bool = True,
    dynamic_shapes: Any = None,
    ours: bool = False,
    calibration: tuple[Any, ...] | None = None,
    **weights: int,
) -> torch.export.ExportedProgram:
    """The exported program of the PT2E flow with torchao's XNNPACK quantizer, or with ours;
    calibrated on `inputs` if on nothing else. weights: weight_qmin and weight_qmax."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    if ours:
        from edgewise.backends.xnnpack import XNNPACKQuantizer
        from edgewise.quantize import get_symmetric_quantization_config
    else:
        from torchao.testing.pt2e._xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )

    with torch.no_grad():
        exported = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic_shapes)
        config = get_symmetric_quantization_config(
            is_per_channel=per_channel, is_dynamic=dynamic, **weights
        )
        prepared = prepare_pt2e(exported.module(), XNNPACKQuantizer().set_global(config))
        prepared(*(calibration or inputs))
        return exported_again(convert_pt2e(prepared), exported, inputs, dynamic_shapes)


def trained(
    module: torch.nn.Module, inputs: tuple[Any, ...], *, per_channel: bool = True
) -> torch.export.ExportedProgram:
    """The same after two steps of training that simulate rounding, with our quantizer."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    from edgewise.backends.xnnpack import XNNPACKQuantizer
    from edgewise.quantize import get_symmetric_quantization_config

    graph = torch.export.export(module.train(), inputs).module()
    config = get_symmetric_quantization_config(is_per_channel=per_channel, is_qat=True)
    prepared = prepare_qat_pt2e(graph, XNNPACKQuantizer().set_global(config))
    optimizer = torch.optim.SGD(prepared.parameters(), 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        prepared(*inputs).square().mean().backward()
        optimizer.step()
    move_exported_model_to_eval(prepared)
    with torch.no_grad():
        return torch.export.export(convert_pt2e(prepared), inputs)


def groupwise(
    module: torch.nn.Module, inputs: tuple[Any, ...], weight: torch.dtype, granularity: Any
) -> torch.export.ExportedProgram:
    """The export of a module whose linear layers `quantize_` changed in place."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=weight, weight_granularity=granularity
    )
    with torch.no_grad():
        quantize_(module.eval(), config)
        return torch.export.export(module, inputs)


def lower(
    program: torch.export.ExportedProgram, partitioner: Any = None
) -> edgewise.ExecutorchProgramManager:
    partitioners = [partitioner or XnnpackPartitioner()]
    return edgewise.to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch()


def reference(program: torch.export.ExportedProgram, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What the quantized program computes in eager mode, quantizing in floating point."""
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(program.module()(*inputs))


def output_step(program: torch.export.ExportedProgram) -> float:
    """The scale of the last quantization: one step of the program's output."""
    quantizations = [
        n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target) and n.args
    ]
    return float(quantizations[-1].args[1])


def node_types(graph: Any) -> list[tuple[str, list[int]]]:
    """Each node of a payload with the datatypes of its inputs and of its output."""
    types = {}
    for value in graph.xvalues:
        member = value.xvalue_union
        table = member[1] if isinstance(member, tuple) else member
        plain = table.tensor_value if isinstance(table, QuantizedTensorValue) else table
        types[plain.id_out] = plain.datatype
    found = []
    for kind, node in zip(kinds(graph), graph.xnodes, strict=True):
        member = node.xnode_union
        table = member[1] if isinstance(member, tuple) else member
        ids = [v for k, v in vars(table).items() if k.endswith("_id") and v in types]
        found.append((kind, [types[i] for i in ids]))
    return found


FLOAT, QINT8, QDINT8, QCINT8, QCINT4, QBINT4, QBINT8 = 1, 3, 9, 6, 8, 10, 15


def float_kinds(pte: bytes) -> Counter[str]:
    """What is computed in floating point, by kind; conversions aside."""
    found: Counter[str] = Counter()
    for graph in payloads(pte):
        for kind, types in node_types(graph):
            if kind != "Convert" and set(types) <= {FLOAT}:
                found[kind] += 1
    return found


def kinds_of(pte: bytes) -> Counter[str]:
    return Counter(kind for graph in payloads(pte) for kind in kinds(graph))
