"""What a record says of a method's instructions and its memory plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch.fx import Node

from edgewise.emit.memory import MemoryPlan
from edgewise.emit.origins import Origins
from edgewise.emit.shared_state import ARENA
from edgewise.format import program as pte
from edgewise.inspect.record import BlockRecord, InstructionRecord, NodeRecord

Source = tuple[str, int]
"""A node's name and the number of its output."""


class Written:
    """A method as it is in the file, next to the nodes that it was made from.

    sources: what each node of the graph stands for in the record; the call of a delegate for
    the nodes inside that compute its outputs.
    """

    def __init__(
        self,
        plan: pte.ExecutionPlan,
        origins: Origins,
        memory: MemoryPlan,
        nodes: Sequence[NodeRecord],
        sources: Mapping[Node, Sequence[Source]],
    ) -> None:
        self._plan = plan
        self._origins = origins
        self._memory = memory
        self._nodes = {node.name: node for node in nodes}
        self._sources = sources

    def instructions(self) -> Iterator[InstructionRecord]:
        """In the order of the file."""
        inside: dict[int, list[str]] = {}
        for node in self._nodes.values():
            if node.delegate is not None:
                inside.setdefault(node.delegate, []).append(node.name)
        for at, instruction in enumerate(self._plan.chains[0].instructions):
            call, name = instruction.instr_args, self._origins.instructions[at]
            if isinstance(call, pte.DelegateCall):
                number = call.delegate_index
                yield InstructionRecord("delegate", "", number, tuple(inside.get(number, ())))
                continue
            nodes: tuple[str, ...] = (name,) if name in self._nodes else ()
            if not isinstance(call, pte.KernelCall):
                kind = type(call).__name__.removesuffix("Call").removesuffix("False").lower()
                yield InstructionRecord(kind, nodes=nodes)
                continue
            if not nodes:  # it updates what its first argument stands for
                updated = self._origins.values.get(call.args[0], ())
                nodes = tuple(n for n in updated if n in self._nodes)[:1]
            operator = self._plan.operators[call.op_index]
            text = f"{operator.name}.{operator.overload}".removesuffix(".")
            yield InstructionRecord("kernel", text, None, nodes)

    def blocks(self) -> Iterator[BlockRecord]:
        """The method's own arena, then what it has in the one that methods share."""
        members: dict[object, list[str]] = {}
        for value, names in self._origins.values.items():
            members.setdefault(self._origins.homes.get(value, value), []).extend(names)
        for block in self._origins.blocks:
            held = self._resolved(members.get(block.key, ()))
            offset = self._memory.offsets[block.key]
            yield BlockRecord(held, 1, offset, block.size, block.first, block.last)
        end = len(self._plan.chains[0].instructions)
        for value, names in sorted(self._origins.values.items()):
            tensor = self._plan.values[value].val
            allocation = tensor.allocation_info if isinstance(tensor, pte.Tensor) else None
            if allocation is not None and allocation.memory_id == ARENA:
                offset = allocation.memory_offset_low | allocation.memory_offset_high << 32
                size = next((self._nodes[n].outputs[0].bytes for n in names if n in self._nodes), 0)
                yield BlockRecord(self._resolved(names), ARENA, offset, size, -1, end)

    def _resolved(self, names: Sequence[str]) -> tuple[str, ...]:
        """What the names stand for. A delegate's call stands for all its results: beside one of
        them, which has a name of its own, it says nothing."""
        nodes = [self._origins.nodes.get(name) for name in names]
        told = [{source for source, _ in self._sources.get(n, ())} for n in nodes if n is not None]
        kept = [one for one in told if not any(other and other < one for other in told)]
        order = [source for n in nodes if n is not None for source, _ in self._sources.get(n, ())]
        return tuple(dict.fromkeys(s for s in order if any(s in one for one in kept)))
