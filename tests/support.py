"""Making files, running them on either runtime, and comparing with eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from closeness import assert_bounded, in_float64
from edgewise.edge.relift import relift
from edgewise.format.file import ReadFile, read
from edgewise.format.program import DelegateCall, KernelCall

REL, FLOOR = 1e-5, 2e-6
"""Allowed difference of each element: relative to it, and absolute. For float32 with operands
around 1: the floor is some sixteen units in the last place of a term of 1, for results in which
terms cancel. Where terms are larger or many, a test says so."""


DEEP = 2e-5
"""The floor for models of many layers of sums, whose errors go through all that follow."""


def export(
    module: torch.nn.Module, inputs: Sequence[Any], *, dynamic_shapes: Any = None
) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=dynamic_shapes)


def all_sizes_open(inputs: Sequence[torch.Tensor]) -> Any:
    """Dynamic shapes: every size that the program itself does not fix."""
    return tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in inputs)


def at_other_sizes(
    program: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor], step: int
) -> list[torch.Tensor] | None:
    """The inputs with each open size larger by `step` (negative: smaller), where its range allows:
    parts of the inputs, or the inputs repeated. None if no size is open."""
    placeholders = program.graph.find_nodes(op="placeholder")
    of = {node.name: node.meta["val"].shape for node in placeholders}
    shapes = [of[str(name)] for name in program.graph_signature.user_inputs]
    sizes: dict[Any, int] = {}
    for shape, x in zip(shapes, inputs, strict=True):
        for size, now in zip(shape, x.shape, strict=True):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                bounds = program.range_constraints[size.node.expr]
                sizes[size.node.expr] = int(min(max(now + step, bounds.lower), bounds.upper))
    if not sizes:
        return None
    others = []
    for shape, x in zip(shapes, inputs, strict=True):
        for dim, size in enumerate(shape):
            if isinstance(size, torch.SymInt):
                wanted = int(size.node.expr.subs(sizes))
                x = torch.cat([x] * -(-wanted // x.shape[dim]), dim).narrow(dim, 0, wanted)
        others.append(x.contiguous())
    return others


def exported_again(
    module: torch.nn.Module,
    program: torch.export.ExportedProgram,
    inputs: Sequence[Any],
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """The export of a module that was the program's before it was converted: what
    `torch.export.export` gives (tests/edge/test_edge_relift.py), mostly without its time."""
    assert isinstance(module, torch.fx.GraphModule)
    again = relift(module, program)
    if again is None:
        again = torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic_shapes)
    return again


def partitioners(partitioner: Any) -> list[Any]:
    """`"xnnpack"`, None, or what `to_edge_transform_and_lower` itself takes."""
    if partitioner is None:
        return []
    if partitioner == "xnnpack":
        from edgewise.backends.xnnpack import XnnpackPartitioner

        return [XnnpackPartitioner()]
    return partitioner


def lower(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    partitioner: Any = "xnnpack",
    dynamic_shapes: Any = None,
    config: Any = None,
    **options: Any,
) -> edgewise.ExecutorchProgramManager:
    """options: as for `to_edge_transform_and_lower`; config: as for `to_executorch`."""
    exported = export(module, inputs, dynamic_shapes=dynamic_shapes)
    edge = edgewise.to_edge_transform_and_lower(
        exported, partitioner=partitioners(partitioner), **options
    )
    return edge.to_executorch(config)


def run_ours(pte: bytes, *calls: Sequence[Any], method: str = "forward") -> list[list[Any]]:
    """Outputs of each call in turn, on this project's runtime; tensors for arrays."""
    from edgewise.runtime import Runtime

    loaded = Runtime.get().load_program(pte).load_method(method)
    return [[_tensor(y) for y in loaded.execute(list(inputs))] for inputs in calls]


def run_peer(pte: bytes, *calls: Sequence[Any], method: str = "forward") -> list[list[Any]]:
    """Outputs of each call in turn, on ExecuTorch's runtime."""
    from executorch.runtime import Runtime

    loaded = Runtime.get().load_program(pte).load_method(method)
    # Outputs are views of the method's memory there: copied before the next call.
    return [
        [y.clone() if isinstance(y, torch.Tensor) else y for y in loaded.execute(list(inputs))]
        for inputs in calls
    ]


RUNTIMES = {"ours": run_ours, "peer": run_peer}


def eager64(module: torch.nn.Module, inputs: Sequence[Any]) -> list[Any]:
    """The module's outputs in float64, flat. The module is not changed."""
    module = in_float64(module)
    return eager(module, [_double(x) for x in inputs])


def eager(module: torch.nn.Module, inputs: Sequence[Any]) -> list[Any]:
    """The module's outputs, flat. Changes the module's state as a call does."""
    with torch.no_grad():
        result = module(*copy.deepcopy(list(inputs)))
    return torch.utils._pytree.tree_leaves(result)


def assert_close(
    got: Sequence[Any],
    expected: Sequence[Any],
    rel: float = REL,
    floor: float = FLOOR,
    *,
    inputs: Sequence[Any] = (),
) -> None:
    """Equal shapes, and each element within `rel` of the expected one's magnitude plus `floor`.

    Integers, booleans and numbers must be equal.
    """
    assert len(got) == len(expected)
    for index, (y, want) in enumerate(zip(got, expected, strict=True)):
        if not isinstance(want, torch.Tensor):
            assert y == want, f"output {index}"
            continue
        y = _tensor(y)
        assert tuple(y.shape) == tuple(want.shape), f"output {index}"
        bound = torch.zeros(want.shape, dtype=torch.float64)
        if want.dtype.is_floating_point:
            bound = rel * want.double().abs().nan_to_num(0, 0, 0) + floor
        why = f"{rel:g} of the element + {floor:g}"
        assert_bounded(y, want, bound, inputs=inputs, where=f"output {index}", why=why)


def operators(pte: bytes, method: str = "forward") -> list[str]:
    """What the method calls, in order: "delegate", or an operator's name."""
    (plan,) = [p for p in read(pte).program.execution_plan if p.name == method]
    found = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        if isinstance(call, DelegateCall):
            found.append("delegate")
        elif isinstance(call, KernelCall):
            operator = plan.operators[call.op_index]
            found.append(f"{operator.name}.{operator.overload}".removesuffix("."))
    return found


def payloads(pte: bytes) -> list[Any]:
    """The XNNPACK graphs of a file, in the order in which its methods list them."""
    from edgewise.backends.xnnpack.payload import from_bytes

    return [from_bytes(payload) for payload in payload_bytes(pte)]


def payload_bytes(pte: bytes) -> list[bytes | memoryview]:
    """The payloads of a file's delegates, wherever they lie."""
    file: ReadFile = read(pte)
    inline = file.program.backend_delegate_data or []
    places = [d.processed for plan in file.program.execution_plan for d in plan.delegates]
    return [file.segments[p.index] if p.location == 1 else inline[p.index].data for p in places]


def kinds(graph: Any) -> list[str]:
    """The nodes of a payload, by kind."""
    from edgewise.backends.xnnpack.payload import KINDS

    names = list(KINDS)
    found = []
    for node in graph.xnodes:
        member = node.xnode_union
        number = member[0] if isinstance(member, tuple) else _number(type(member))
        found.append(names[number - 1])
    return found


def _number(kind: type) -> int:
    from edgewise.backends.xnnpack.payload import KINDS

    return list(KINDS.values()).index(kind) + 1


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _tensor(y: Any) -> Any:
    if not isinstance(y, np.ndarray):
        return y
    plain = np.ascontiguousarray(y).reshape(y.shape)
    if y.dtype.name == "bfloat16":  # of ml_dtypes, where that is installed
        return torch.from_numpy(plain.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(plain)


class Fn(torch.nn.Module):
    """A function as a module. `constants` become buffers, passed to it by name."""

    def __init__(self, function: Any, **constants: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = list(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, **{name: getattr(self, name) for name in self.names})


def quantized_for(
    target: str, module: torch.nn.Module, batches: Sequence[tuple[torch.Tensor, ...]]
) -> torch.export.ExportedProgram:
    """In 8 bits, by the target's quantizer, calibrated with the batches."""
    from edgewise.quantize.flow import quantize  # with torchao, which takes a second
    from edgewise.registry import quantizer_for

    return quantize(
        module, batches[0], "int8", quantizer_for(target), calibration=batches, progress=False
    )


def needs(backend: str) -> None:
    """Skips a test without the extra that compiles for a target, or runs it on the host."""
    if backend.startswith("neutron"):
        pytest.importorskip("ai_edge_litert", reason="extra [neutron]")
    if backend.startswith("ethos"):
        pytest.importorskip("ethosu", reason="extra [ethosu]")
