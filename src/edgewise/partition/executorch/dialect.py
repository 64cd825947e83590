"""An edge program as ExecuTorch spells it, for code that knows operators by its objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import transform_bodies
from edgewise.edge.graph import calls
from edgewise.edge.program import Constants, copy_with_modules

_aten = torch.ops.aten

_OF_TENSORS: Mapping[Any, Any] = {
    _aten.add.Scalar: _aten.add.Tensor,
    _aten.sub.Scalar: _aten.sub.Tensor,
    _aten.mul.Scalar: _aten.mul.Tensor,
    _aten.div.Scalar: _aten.div.Tensor,
}
"""What ExecuTorch's edge programs have instead, with a constant without dimensions."""


def in_executorch_dialect(program: ExportedProgram) -> ExportedProgram:
    """A copy whose operators are ExecuTorch's. Nodes keep their names and metadata, tensors are
    shared; constants may be added."""
    from executorch.exir import EdgeCompileConfig
    from executorch.exir.verification.verifier import EXIREdgeDialectVerifier

    made = _respelt(copy_with_modules(program), "")
    unchecked = EdgeCompileConfig(_check_ir_validity=False)
    verifier = EXIREdgeDialectVerifier(edge_compile_config=unchecked, class_only=True)
    return ExportedProgram(
        root=made.graph_module,
        graph=made.graph,
        graph_signature=made.graph_signature,
        state_dict=made.state_dict,
        range_constraints=made.range_constraints,
        module_call_graph=made.module_call_graph,
        example_inputs=made.example_inputs,
        constants=made.constants,
        verifiers=[verifier],
    )


def _respelt(program: ExportedProgram, path: str) -> ExportedProgram:
    from executorch.exir.passes.replace_aten_with_edge_pass import (
        aten_to_edge,
        should_lower_to_edge,
    )

    del path
    _numbers_to_tensors(program)
    for node in calls(program.graph):
        if should_lower_to_edge(node.target):
            node.target = aten_to_edge(node.target)
    transform_bodies(program, _respelt)
    return program


def _numbers_to_tensors(program: ExportedProgram) -> None:
    constants = Constants(program)
    known: dict[tuple[Any, torch.dtype], Node] = {}
    for node in calls(program.graph):
        spelling = _OF_TENSORS.get(node.target)
        if spelling is None or isinstance(node.args[1], (Node, complex)):
            continue
        source, number = node.args[:2]
        assert isinstance(source, Node)
        result: torch.dtype = node.meta["val"].dtype
        # By its text: 1, 1.0 and True are equal.
        key = (repr(number), result)
        if key not in known:
            tensor = torch.tensor(number, dtype=result)
            known[key] = constants.add("_lifted_tensor_constant", tensor)
        node.target = spelling
        alpha = node.args[2:3]
        node.args = (source, known[key])
        if alpha and alpha[0] != 1:
            node.kwargs = {"alpha": alpha[0]}
