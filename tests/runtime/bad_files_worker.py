"""Loads and runs damaged copies of a file: `bad_files_worker.py FILE KIND FIRST COUNT`.

Prints how many ran and how many were refused. A refusal is an `edgewise.runtime.Error`;
anything else ends the process with an error, and a crash ends it with a signal. The last
line on stderr says which copy was at work.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import numpy as np

from edgewise.runtime import Error, Program, Runtime

LIMIT = 8 << 30  # of address space: a damaged size must not take the machine down


def damaged(data: bytes, kind: str, index: int) -> bytes:
    choice = random.Random(f"{kind} {index}")
    if kind == "truncated":
        return data[: choice.randrange(len(data))]
    # The flatbuffer's beginning is where most tables and offsets are.
    end = len(data) // 3 if kind == "head" else len(data)
    copy = bytearray(data)
    for _ in range(choice.choice((1, 1, 1, 2, 8))):
        copy[choice.randrange(end)] ^= 1 << choice.randrange(8)
    return bytes(copy)


def run(program: Program) -> None:
    for name in sorted(program.method_names):
        method = program.load_method(name)
        meta = method.metadata
        inputs: list[object] = []
        for i, kind in enumerate(meta.input_kinds):
            if kind == "Tensor":
                tensor = meta.input_tensor_meta(i)
                if tensor.nbytes() > 1 << 24:
                    return
                # The types that numpy does not have must be refused; any array will do.
                dtype = tensor.dtype_name if hasattr(np, tensor.dtype_name) else "uint8"
                inputs.append(np.zeros(tensor.sizes(), dtype))
            else:
                inputs.append({"int": 0, "float": 0.0, "bool": False, "str": ""}.get(kind))
        for output in method.execute(inputs):
            repr(output)


def main() -> None:
    path, kind, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    data = Path(path).read_bytes()
    ran = refused = 0
    for index in range(first, first + count):
        print(kind, index, file=sys.stderr, flush=True)
        try:
            run(Runtime.get().load_program(damaged(data, kind, index), threads=1))
            ran += 1
        except Error as error:
            if not str(error).startswith("["):
                sys.exit(f"the message names no place: {error}")
            refused += 1
    print(ran, refused)


if __name__ == "__main__":
    main()
