"""Reads a `.pte` or `.ptd` file for tools. Imports no torch; reads the peer's files, too.

    from edgewise.inspect import open_program, read_contents
    print(read_contents("model.pte").methods[0].delegates[0].graph)
    print(open_program("model.pte").method("forward").nodes)

The runtime has a reader of its own, which checks everything.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewise.format.file import ReadFile, read
from edgewise.format.program import ExecutionPlan, Tensor
from edgewise.inspect.contents import (
    Contents,
    DelegateContents,
    Instruction,
    MethodContents,
    Placement,
    ValueContents,
)
from edgewise.inspect.contents_record import record_of_contents
from edgewise.inspect.delegate_graphs import read_payload
from edgewise.inspect.record import ProgramRecord, find_record

SCALAR_TYPES: dict[int, tuple[str, int]] = {
    0: ("uint8", 1),
    1: ("int8", 1),
    2: ("int16", 2),
    3: ("int32", 4),
    4: ("int64", 8),
    5: ("float16", 2),
    6: ("float32", 4),
    7: ("float64", 8),
    11: ("bool", 1),
    15: ("bfloat16", 2),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
}
"""Name and bytes of an element, by the number in the file."""

_DYNAMISMS = ("static", "bounded", "unbounded")


def read_contents(file: str | Path | bytes | bytearray | memoryview) -> Contents:
    """A file's contents. OSError if it cannot be read, ValueError if it is no such file."""
    if isinstance(file, (str, Path)):
        return _contents(memoryview(Path(file).read_bytes()), str(file))
    if not isinstance(file, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"[read_contents] file must be a path or bytes; got {type(file).__name__}; "
            f"try 'model.pte', or program.buffer"
        )
    return _contents(memoryview(file), "file")


def open_program(path: str | Path) -> ProgramRecord:
    """The record of any `.pte` file, of this project or another: the one beside it, else what the
    file itself tells. OSError if it cannot be read, ValueError if it is no such file."""
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "[open_program] a program is a file", str(path))
    return find_record(path) or record_of_file(path)


def record_of_file(path: str | Path) -> ProgramRecord:
    """What the file itself tells, in the form of a record: no modules, lines or reasons."""
    data = Path(path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    with _damage(str(path)):
        return record_of_contents(_contents(memoryview(data), str(path)), digest)


def _contents(data: memoryview, where: str) -> Contents:
    with _damage(where):
        if bytes(data[4:6]) == b"FT":
            return _data_file(data)
        return _program(data, read(data))


@contextmanager
def _damage(where: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as cause:
        if f"in {where}; try" in str(cause):
            raise
        # What is no `.pte` says so; other failures come of damaged numbers inside of one.
        told = str(cause) if str(cause).startswith("[") else f"[pte] damaged: {cause!r}"
        raise ValueError(f"{told} in {where}; try making or copying the file again") from None


def _program(data: memoryview, parsed: ReadFile) -> Contents:
    program = parsed.program
    named = {n.key or "": parsed.segments[n.segment_index] for n in program.named_data or []}
    methods = [_method(plan, parsed, named) for plan in program.execution_plan or []]
    return Contents(
        identifier=bytes(data[4:8]).decode("ascii", "replace"),
        nbytes=len(data),
        sizes=_sizes(len(data), parsed),
        methods=methods,
        named_data={key: len(blob) for key, blob in named.items()},
    )


def _sizes(total: int, parsed: ReadFile) -> dict[str, int]:
    """Every byte once: segments by who refers to them, the rest is the program and padding."""
    program = parsed.program
    left = {index: len(segment) for index, segment in enumerate(parsed.segments)}
    sizes = {"constants": 0, "delegates": 0, "shared by delegates": 0, "initial state": 0}

    def take(kind: str, index: int) -> None:
        sizes[kind] += left.pop(index, 0)

    if program.constant_segment is not None and program.constant_segment.offsets:
        take("constants", program.constant_segment.segment_index)
    for one in program.named_data or []:
        take("shared by delegates", one.segment_index)
    for plan in program.execution_plan or []:
        for delegate in plan.delegates or []:
            if delegate.processed is not None and delegate.processed.location == 1:
                take("delegates", delegate.processed.index)
    for state in program.mutable_data_segments or []:
        take("initial state", state.segment_index)
    inline = sum(len(d.data or b"") for d in program.backend_delegate_data or [])
    sizes["delegates"] += inline
    old = sum(len(b.storage or b"") for b in program.constant_buffer or [])
    sizes["constants"] += old
    sizes["other segments"] = sum(left.values())
    sizes["program and padding"] = total - sum(sizes.values())
    return {name: size for name, size in sizes.items() if size}


def _method(plan: ExecutionPlan, parsed: ReadFile, named: dict[str, memoryview]) -> MethodContents:
    values = [_value(i, v.val) for i, v in enumerate(plan.values or [])]
    inputs, outputs = list(plan.inputs or []), list(plan.outputs or [])
    steps = [_instruction(i.instr_args, plan) for c in plan.chains or [] for i in c.instructions]
    return MethodContents(
        name=plan.name or "",
        inputs=[values[i] for i in inputs],
        outputs=[values[i] for i in outputs],
        values=values,
        instructions=steps,
        delegates=[_delegate(d, parsed, named) for d in plan.delegates or []],
        arenas=list(plan.non_const_buffer_sizes or [])[1:],
        plan=_plan(plan, values, steps, inputs, outputs),
    )


def _value(index: int, held: Any) -> ValueContents:
    if isinstance(held, Tensor):
        name, size = SCALAR_TYPES.get(held.scalar_type, (f"type {held.scalar_type}", 0))
        extra = held.extra_tensor_info
        shape = list(held.sizes or [])
        place = "planned" if held.allocation_info is not None else "argument"
        if held.data_buffer_idx:
            place = "state" if held.allocation_info is not None else "constant"
        elif extra is not None and extra.location == 1:
            place = "data file"
        return ValueContents(
            index=index,
            kind="Tensor",
            dtype=name,
            shape=shape,
            dynamism=_DYNAMISMS[held.shape_dynamism],
            dim_order=list(held.dim_order or []),
            nbytes=size * math.prod(shape),
            place=place,
            name=(extra.fully_qualified_name or "") if extra is not None else "",
        )
    if held is None:
        return ValueContents(index, "Null")
    kind = type(held).__name__
    value = next((getattr(held, name) for name in vars(held)), None)
    return ValueContents(index, kind, value=list(value) if isinstance(value, bytes) else value)


def _instruction(step: Any, plan: ExecutionPlan) -> Instruction:
    if hasattr(step, "op_index"):
        operator = plan.operators[step.op_index]
        name = operator.name + (f".{operator.overload}" if operator.overload else "")
        return Instruction("kernel", name, list(step.args or []))
    if hasattr(step, "delegate_index"):
        backend = plan.delegates[step.delegate_index].id
        what = f"delegate {step.delegate_index}, {backend}"
        return Instruction("delegate", what, list(step.args or []))
    if hasattr(step, "move_from"):
        return Instruction("move", "", [step.move_from, step.move_to])
    if hasattr(step, "destination_instruction"):
        target = f"to {step.destination_instruction}"
        return Instruction("jump if false", target, [step.cond_value_index])
    return Instruction("free", "", [step.value_index])


def _plan(
    plan: ExecutionPlan,
    values: list[ValueContents],
    steps: list[Instruction],
    inputs: list[int],
    outputs: list[int],
) -> list[Placement]:
    """Lifetimes as instructions show them; state and outputs last to the end."""
    first: dict[int, int] = dict.fromkeys(inputs, 0)
    last: dict[int, int] = dict.fromkeys(inputs, 0)
    end = max(0, len(steps) - 1)
    for at, step in enumerate(steps):
        used = list(step.arguments)
        for index in step.arguments:
            if values[index].kind in ("TensorList", "OptionalTensorList"):
                used += [i for i in values[index].value if i >= 0]
        for index in used:
            first.setdefault(index, at)
            last[index] = at
    last.update(dict.fromkeys(outputs, end))
    found = []
    for value in values:
        if value.place not in ("planned", "state"):
            continue
        where = plan.values[value.index].val.allocation_info
        offset = where.memory_offset_low | where.memory_offset_high << 32
        start, stop = first.get(value.index, 0), last.get(value.index, end)
        if value.place == "state":
            start, stop = 0, end
        found.append(Placement(value.index, where.memory_id, offset, value.nbytes, start, stop))
    return found


def delegate_payloads(path: str | Path) -> Iterator[tuple[str, int, str, memoryview]]:
    """Method, number in it, backend and payload of each delegate. None of a file of weights.

    OSError if the file cannot be read, ValueError if it is damaged.
    """
    data = memoryview(Path(path).read_bytes())
    if bytes(data[4:6]) != b"ET":
        return
    with _damage(str(path)):
        parsed = read(data)
        for plan in parsed.program.execution_plan or []:
            for number, delegate in enumerate(plan.delegates or []):
                yield plan.name or "", number, delegate.id or "", _payload(delegate, parsed)


def _payload(delegate: Any, parsed: ReadFile) -> memoryview:
    reference = delegate.processed
    if reference is not None and reference.location == 1:
        segment: memoryview = parsed.segments[reference.index]
        return segment
    index = reference.index if reference is not None else 0
    return memoryview(parsed.program.backend_delegate_data[index].data or b"")


def _delegate(delegate: Any, parsed: ReadFile, named: dict[str, memoryview]) -> DelegateContents:
    payload = _payload(delegate, parsed)
    graph, problem = None, ""
    try:
        graph = read_payload(delegate.id or "", payload, named)
    except ValueError as cause:
        problem = str(cause)
    options = {
        spec.key or "": bytes(spec.value or b"").decode("utf-8", "replace")
        for spec in delegate.compile_specs or []
    }
    return DelegateContents(delegate.id or "", len(payload), options, graph, problem)


def _data_file(data: memoryview) -> Contents:
    from edgewise.format.data_file import read_named

    named = {key: len(blob) for key, blob in read_named(data).items()}
    total = sum(named.values())
    sizes = {"data": total, "table and padding": len(data) - total}
    return Contents("FT01", len(data), sizes, [], named)
