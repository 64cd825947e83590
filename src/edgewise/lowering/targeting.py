"""Writes a program for the runtime that was asked for, around what that lacks."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.lower_around import lower_around
from edgewise.edge.program import copy_with_modules, recompile_all
from edgewise.emit import Emitted, ExecutorchBackendConfig, emit_program
from edgewise.emit.missing_kernels import kernel_of, missing_kernels
from edgewise.emit.scalar_types import check_types, scalar_type
from edgewise.errors import EmitError
from edgewise.inspect.needs import (
    Need,
    TensorOperand,
    beyond,
    kernels_of,
    limits_of,
    needs_of_program,
)
from edgewise.releases import Target, target_of

Methods = Mapping[str, ExportedProgram]


def emit_for(
    methods: Methods,
    config: ExecutorchBackendConfig | None,
    constant_methods: Mapping[str, Any],
) -> tuple[Methods, Emitted, str]:
    """The methods as they were written, the file, and what the target cost, in words.

    EmitError if the file needs what the target's releases lack and nothing here goes around
    (`missing_kernels="warn"` or "ignore": the file is written all the same).
    """
    config = config or ExecutorchBackendConfig()
    target = target_of(config.runtime)
    if not target.is_strict:
        if not target.is_ours:
            methods = {name: _right_everywhere(program) for name, program in methods.items()}
        return methods, emit_program(methods, config, constant_methods), ""
    free = dataclasses.replace(config, runtime="edgewise", missing_kernels="ignore")
    without = emit_program(methods, free, constant_methods)
    avoided = beyond(_needs(without), target)
    if avoided:
        methods = {name: _around(program, target) for name, program in methods.items()}
    emitted = emit_program(methods, config, constant_methods)
    # A processor's kernels are no matter of the file: the report marks them.
    left = [need for need in beyond(_needs(emitted), target) if not need.processor]
    if left:
        _refuse(left, target, config.missing_kernels)
    done = [str(need) for need in avoided if need not in left]
    return methods, emitted, _cost(done, target, without, emitted)


def _needs(emitted: Emitted) -> list[Need]:
    return needs_of_program(emitted.program, emitted.segments.blobs)


def _around(program: ExportedProgram, target: Target) -> ExportedProgram:
    known = kernels_of(target)

    def lacks(node: Node) -> bool:
        return bool(missing_kernels([node], known) or beyond(_limits(node), target))

    return _lowered_around(program, lacks)


def _right_everywhere(program: ExportedProgram) -> ExportedProgram:
    """Without calls that each release refuses or gets wrong: what stands for them is as exact, and
    costs a few kernels."""

    def lacks(node: Node) -> bool:
        return any(need.since is None for need in _limits(node))

    modules = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    if not any(lacks(node) for module in modules for node in module.graph.nodes):
        return program
    return _lowered_around(program, lacks)


def _lowered_around(program: ExportedProgram, lacks: Callable[[Node], bool]) -> ExportedProgram:
    made = lower_around(copy_with_modules(program), lacks)
    recompile_all(made)
    return made


def _limits(node: Node) -> list[Need]:
    kernel = kernel_of(node)
    if kernel is None or not isinstance(node.target, torch._ops.OpOverload):
        return []
    check_types([node, *node.all_input_nodes])
    return list(limits_of(kernel, [_operand(argument) for argument in arguments(node).values()]))


def _operand(argument: Any) -> Any:
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if not isinstance(value, torch.Tensor):
        return value
    sizes = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return TensorOperand(scalar_type(value.dtype), sizes)


def _refuse(left: Sequence[Need], target: Target, action: str) -> None:
    text = (
        f"[to_executorch] a file for {target} must use only what that release has; got "
        f"{', '.join(map(str, left))}; try a later release, other operators, or sizes with a bound "
        f"(torch.export.Dim(..., max=...))"
    )
    if action == "error":
        raise EmitError(f'{text}; to write the file all the same: missing_kernels="warn"')
    if action == "warn":
        warnings.warn(text, stacklevel=4)


def _cost(done: Sequence[str], target: Target, without: Emitted, emitted: Emitted) -> str:
    """In bytes and instructions, against the file that uses everything."""
    if not done:
        return ""
    bytes_ = _size(emitted) - _size(without)
    calls = _instructions(emitted) - _instructions(without)
    return (
        f"for {target}: {bytes_:+,} bytes and {calls:+,} instructions against a file for edgewise, "
        f"to do without {', '.join(done)}"
    )


def _size(emitted: Emitted) -> int:
    files = [emitted.parts(), *(data.parts() for data in emitted.data_files.values())]
    return sum(memoryview(part).nbytes for parts in files for part in parts)


def _instructions(emitted: Emitted) -> int:
    plans = emitted.program.execution_plan or []
    return sum(len(c.instructions or []) for plan in plans for c in plan.chains or [])
