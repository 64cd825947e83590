"""Partitions in LiteRT's reference kernels against PT2E, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from edgewise.backends.neutron import NeutronPartitioner
from edgewise.backends.neutron.lowering.backend import TFLiteProgram, lower
from edgewise.edge import to_edge_program
from edgewise.edge.graph import is_call, is_getitem, op_name
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import is_quantize
from edgewise.partition.cut_out import cut_out
from edgewise.partition.spec import TAG


@dataclass
class Difference:
    """Of an operator's results to PT2E's: the largest in steps, and how many of them differ."""

    steps: int = 0
    different: int = 0
    elements: int = 0


def parts(program: ExportedProgram, partitioner: NeutronPartitioner) -> list[ExportedProgram]:
    """The programs that the partitioner cuts out."""

    def keep(edge: ExportedProgram) -> Any:
        ops, _ = partitioner.ops_to_not_decompose(edge)
        return lambda node: node.target in ops

    result = partitioner.partition(to_edge_program(program, keep))
    edge = result.tagged_exported_program
    tagged = [
        [n for n in edge.graph.nodes if n.meta.get(TAG) == tag] for tag in result.partition_tags
    ]
    return [cut_out(edge, nodes)[0] for nodes in tagged]


def by_operator(
    part: ExportedProgram, inputs: Sequence[np.ndarray[Any, Any]]
) -> dict[str, Difference]:
    """Each operator computes from the integers that LiteRT has computed before it.

    inputs: the partition's, in int8, as torch has their dimensions. The keys are operators.
    """
    made = lower(part)
    found = _integers(made, inputs)
    differences: dict[str, Difference] = {}
    constants = Constants(part)

    class Reference(Interpreter):
        def run_node(self, n: Node) -> Any:
            if n.op == "placeholder":
                return constants.tensor(n) if n in constants else next(given)
            result = super().run_node(n)
            if not is_quantize(n):
                return result
            # A tensor that only moved has no tensor of its own, or nothing to compare.
            mine = torch.from_numpy(found[n.name].copy()).reshape(result.shape)
            off = (mine.int() - result.int()).abs()
            record = differences.setdefault(_computing(n), Difference())
            record.steps = max(record.steps, int(off.max()))
            record.different += int((off > 0).sum())
            record.elements += off.numel()
            return mine

    given = iter([torch.from_numpy(x) for x in inputs])
    with torch.no_grad():
        Reference(part.graph_module).run()
    return differences


def _integers(made: TFLiteProgram, inputs: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    from ai_edge_litert.interpreter import Interpreter as LiteRT
    from ai_edge_litert.interpreter import OpResolverType

    run = LiteRT(
        model_content=made.model,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    for detail, moved, x in zip(run.get_input_details(), made.moved_inputs, inputs, strict=True):
        data = np.moveaxis(x, 1, -1) if moved else x
        run.set_tensor(detail["index"], np.ascontiguousarray(data))
    run.invoke()
    return {
        name: np.asarray(run.get_tensor(t.value.index)).transpose(np.argsort(t.order))
        for name, t in made.integers.items()
    }


def _computing(quantize: Node) -> str:
    """The operator whose result is quantized, and the clamps behind it."""
    names = []
    node = quantize.args[0]
    while isinstance(node, Node) and is_call(node) and "dequantize" not in op_name(node):
        if not is_getitem(node):
            names.append(op_name(node).split(".")[1])
        node = node.all_input_nodes[0]
    return " + ".join(reversed(names)) or "nothing"
