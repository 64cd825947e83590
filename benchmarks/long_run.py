"""Whether anything grows in long runs: `python benchmarks/long_run.py [CALLS]`.

CALLS (10,000,000) in sum over small programs: a network in float32 and in int8, a decoder with a
cache, a branch, a loop, an Ethos-U program in the simulator, programs that are loaded and go again.
Prints by how much memory, descriptors and maps of the process grew after a tenth of the calls, when
all is warm; exit code 1 if memory grew by more than 1 MB or any of the others at all.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import edgewise
from edgewise.runtime import Runtime

CORPUS = Path(__file__).parents[1] / "tests" / "fuzz" / "corpus"
MOST_GROWTH = 1_000_000
WARM = 0.1


class Cache(nn.Module):
    """What a step of a decoder does with its state: writes a row, and attends to all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.keys.index_copy_(0, self.at % 8, x)
        self.at.add_(1)
        return (x @ self.keys.t()).softmax(-1) @ self.keys


def method_of(file: str | bytes) -> Any:
    data = file if isinstance(file, bytes) else (CORPUS / "pte" / file).read_bytes()
    return Runtime.get().load_program(data, threads=1).load_method("forward")


def load_and_run(file: str) -> Callable[[], object]:
    data = (CORPUS / "pte" / file).read_bytes()
    given = [np.ones((1, 3, 6, 6), np.float32)]

    def call() -> object:
        return Runtime.get().load_program(data, threads=1).load_method("forward").execute(given)

    return call


def simulator() -> Callable[[], object]:
    from edgewise.backends.ethosu import payload
    from edgewise.backends.ethosu.simulator import Simulator

    program = payload.from_bytes((CORPUS / "ethosu" / "ethos-u55-128.bin").read_bytes())
    runner = Simulator(program)
    given = [np.zeros(tensor.size, np.int8) for tensor in program.inputs]
    return lambda: runner.run(given)


def kinds() -> dict[str, tuple[float, Callable[[], object]]]:
    """Of each kind its share of the calls, and a call."""
    image = np.ones((1, 3, 6, 6), np.float32)
    decoder = edgewise.compile(Cache(), (torch.ones(1, 4),), backend="none", verbose=False).buffer
    methods = {
        "network, float32": (0.25, method_of("xnnpack_convolution.pte"), [image]),
        "network, int8": (0.2, method_of("xnnpack_int8.pte"), [image]),
        "decoder": (0.2, method_of(decoder), [np.ones((1, 4), np.float32)]),
        "branch": (0.15, method_of("portable_cond.pte"), [np.ones((3, 4), np.float32)]),
        "loop": (0.19, method_of("portable_while.pte"), [np.array(3)]),
    }

    def calls(method: Any, given: list[Any]) -> Callable[[], object]:
        return lambda: method.execute(given)

    found: dict[str, tuple[float, Callable[[], object]]] = {
        name: (share, calls(method, given)) for name, (share, method, given) in methods.items()
    }
    found["load, run, unload"] = (0.0098, load_and_run("xnnpack_convolution.pte"))
    found["NPU simulator"] = (0.0002, simulator())
    return found


def state() -> dict[str, int]:
    """Of this process: bytes that no file has, open descriptors, maps."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    anonymous = next(line for line in lines if line.startswith("RssAnon"))
    return {
        "memory": int(anonymous.split()[1]) * 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
    }


def main(count: int) -> int:
    begin = time.monotonic()
    made = kinds()
    # In turns, so that each kind meets what the others leave behind.
    rounds = 100
    before = None
    done = dict.fromkeys(made, 0)
    for number in range(rounds):
        if number == int(WARM * rounds):
            before = state()
        for name, (share, call) in made.items():
            wanted = int(count * share * (number + 1) / rounds)
            while done[name] < wanted:
                call()
                done[name] += 1
    after = state()
    assert before is not None
    growth = {key: after[key] - before[key] for key in after}
    print(f"{sum(done.values()):,} calls in {time.monotonic() - begin:.0f} s:")
    for name, calls in done.items():
        print(f"  {name}: {calls:,}")
    for key, value in growth.items():
        print(f"{key}: {before[key]:,} to {after[key]:,}, {value:+,}")
    return int(growth["memory"] > MOST_GROWTH or growth["descriptors"] > 0 or growth["maps"] > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000))
