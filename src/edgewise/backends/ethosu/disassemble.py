"""Prints the command streams of a `.pte` file's Ethos-U delegates.

python -m edgewise.backends.ethosu.disassemble model.pte
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from edgewise.backends.ethosu import payload
from edgewise.backends.ethosu.payload import NpuProgram
from edgewise.backends.ethosu.simulator.stream import disassemble

STREAM = b"vela_bin_stream\0"


def programs(data: bytes) -> Iterator[NpuProgram]:
    """Every Ethos-U program in a file, or in a payload. ValueError where one is damaged."""
    view = memoryview(data)
    start = data.find(STREAM)
    while start >= 0:
        program, end = payload.read_from(view, start)
        yield program
        start = data.find(STREAM, end)


def main(arguments: list[str]) -> int:
    """0, or 1 where the file has no delegate, or 2 for wrong arguments."""
    if len(arguments) != 1:
        print("usage: python -m edgewise.backends.ethosu.disassemble FILE", file=sys.stderr)
        return 2
    count = 0
    for program in programs(Path(arguments[0]).read_bytes()):
        print(
            f"delegate {count}: {len(program.weights)} bytes of weights, "
            f"{program.scratch_size} bytes of scratch memory"
        )
        for kind, tensors in (("input", program.inputs), ("output", program.outputs)):
            for tensor in tensors:
                print(
                    f"  {kind} {list(tensor.shape)}, {8 * tensor.element_size} bits, "
                    f"at {tensor.offset:#x} of region {tensor.region}"
                )
        print(disassemble(program.commands))
        count += 1
    if not count:
        print(f"[disassemble] {arguments[0]} has no Ethos-U delegate", file=sys.stderr)
    return 0 if count else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.exit(str(error))
