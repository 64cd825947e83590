"""What an Ethos-U delegate's payload holds. Takes no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edgewise.backends.ethosu.payload import from_bytes
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.stream import parse
from edgewise.inspect.delegate_graphs import DelegateGraph, DelegateNode, DelegateTensor


def read_payload(payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
    """As `edgewise.registry.Backend.read_payload`."""
    program = from_bytes(payload)
    try:
        target, commands = parse(program.commands)
    except NpuError as cause:
        raise ValueError(f"[EthosUBackend] {cause}") from None
    tensors = []
    for role, group in (("input", program.inputs), ("output", program.outputs)):
        for number, one in enumerate(group):
            shape = list(one.shape)
            while len(shape) > 1 and shape[0] == 1:
                shape.pop(0)
            dtype = f"{8 * one.element_size} bits"
            tensors.append(DelegateTensor(f"{role} {number}", dtype, shape, role))
    operations = [c.opcode.name for c in commands if c.opcode.name.startswith("NPU_OP_")]
    count = Counter(operations)
    facts = {
        "target": target.name,
        "commands": len(commands),
        "operations": dict(count),
        "command_bytes": len(program.commands),
        "weight_bytes": len(program.weights),
        "scratch_bytes": program.scratch_size,
    }
    names = ("NPU_OP_STOP", "NPU_OP_KERNEL_WAIT", "NPU_OP_DMA_WAIT")
    work = [DelegateNode(name, [], []) for name in operations if name not in names]
    return DelegateGraph("ethos-u command stream", work, tensors, facts)
