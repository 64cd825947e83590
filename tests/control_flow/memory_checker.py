"""Runs a plan without kernels, on random paths, and watches its memory.

Each write marks its bytes with the value; each read finds the bytes as the value's last write
left them. The conditions of jumps are tossed.
"""

from __future__ import annotations

import random
from typing import Any

from edgewise.format.program import (
    DelegateCall,
    ExecutionPlan,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Tensor,
    TensorList,
)

_SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2}


class _Memory:
    def __init__(self, plan: ExecutionPlan, zero_states: int) -> None:
        self._plan = plan
        self._zero_states = zero_states
        self._marks: dict[int, int] = {}
        self._stamps: dict[int, tuple[int, range]] = {}
        self._clock = 0

    def place(self, index: int) -> range | None:
        value = self._plan.values[index].val
        if not isinstance(value, Tensor) or value.allocation_info is None:
            return None
        size = _SIZES[value.scalar_type]
        for n in value.sizes:
            size *= n
        start = value.allocation_info.memory_offset_low
        return range(start, start + size)

    def write(self, index: int) -> None:
        place = self.place(index)
        if place is not None:
            self._clock += 1
            self._stamps[index] = (self._clock, place)
            self._marks.update(dict.fromkeys(place, self._clock))

    def read(self, index: int, where: str) -> None:
        place = self.place(index)
        if place is None:
            return
        if index not in self._stamps and self._zero_states:
            # Its first value is what memory starts with: nobody may have written there.
            self._zero_states -= 1
            assert not any(b in self._marks for b in place), f"{where}: state {index} was written"
            self.write(index)
        assert index in self._stamps, f"{where} reads value {index}, which nothing has written"
        stamp, place = self._stamps[index]
        lost = [b for b in place if self._marks.get(b) != stamp]
        assert not lost, f"{where} reads value {index}, whose memory was written since"

    def move(self, source: int, target: int, where: str) -> None:
        self.read(source, where)
        if source in self._stamps:
            self._stamps[target] = self._stamps[source]


def check_memory(plan: ExecutionPlan, seed: int, zero_states: int = 0, limit: int = 2000) -> None:
    """AssertionError if a value is read after its memory was given to another.

    zero_states: how many buffers start as zeros, which are not in the file.
    """
    toss = random.Random(seed)
    memory = _Memory(plan, zero_states)
    for index in plan.inputs:
        memory.write(index)
    for index, value in enumerate(plan.values):
        if isinstance(value.val, Tensor) and value.val.data_buffer_idx and index not in plan.inputs:
            memory.write(index)
    never = {
        i
        for i, v in enumerate(plan.values)
        if type(v.val).__name__ == "Bool" and not v.val.bool_val
    } - _written(plan)
    instructions = plan.chains[0].instructions
    at = steps = 0
    while at < len(instructions):
        call = instructions[at].instr_args
        where = f"instruction {at}"
        steps += 1
        if isinstance(call, JumpFalseCall):
            memory.read(call.cond_value_index, where)
            back = call.destination_instruction <= at
            if call.cond_value_index in never:
                jumps = True
            else:  # long runs end: their loops are left
                jumps = toss.random() < 0.5 if steps < limit else not back
            at = call.destination_instruction if jumps else at + 1
            continue
        if isinstance(call, MoveCall):
            memory.move(call.move_from, call.move_to, where)
        elif isinstance(call, (KernelCall, DelegateCall)):
            reads, writes = _roles(plan, call)
            for index in reads:
                memory.read(index, where)
            for index in writes:
                memory.write(index)
        at += 1
    for index in plan.outputs:
        memory.read(index, "the caller")


def _roles(plan: ExecutionPlan, call: Any) -> tuple[list[int], list[int]]:
    if isinstance(call, DelegateCall):
        count = _delegate_outputs(plan, call)
        return call.args[: len(call.args) - count], call.args[len(call.args) - count :]
    name = plan.operators[call.op_index].name
    flat = [i for a in call.args for i in _items(plan, a)]
    if name == "executorch_prim::et_copy_index":
        return [call.args[1]], [call.args[0]]
    written = _items(plan, call.args[-1])
    if name == "aten::copy_":
        return [call.args[1]], written
    return [i for i in flat if i not in written], written


def _items(plan: ExecutionPlan, index: int) -> list[int]:
    value = plan.values[index].val
    if isinstance(value, TensorList):
        return list(value.items)
    return (
        [i for i in value.items if i >= 0]
        if type(value).__name__ == "OptionalTensorList"
        else [index]
    )


def _delegate_outputs(plan: ExecutionPlan, call: DelegateCall) -> int:
    """How many of a delegate's arguments are outputs: those that no instruction wrote before."""
    known = set(plan.inputs) | {
        i for i, v in enumerate(plan.values) if isinstance(v.val, Tensor) and v.val.data_buffer_idx
    }
    for instruction in plan.chains[0].instructions:
        other = instruction.instr_args
        if other is call:
            break
        if isinstance(other, MoveCall):
            known.add(other.move_to)
        elif isinstance(other, (KernelCall, DelegateCall)):
            known.update(i for a in other.args for i in _items(plan, a))
    return sum(i not in known for i in call.args)


def _written(plan: ExecutionPlan) -> set[int]:
    found = set()
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        if isinstance(call, MoveCall):
            found.add(call.move_to)
        elif isinstance(call, KernelCall):
            found.add(call.args[-1])
    return found
