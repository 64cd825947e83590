"""A step that writes one row of a cache, by the length of the cache: in place, and copied.

The model keeps a cache of [1, 8, length, 64] numbers, writes one row at a position and returns it
read back. "in place" is `index_copy_`; "copied" reads the old cache after the write, so that it
must be kept. Our time, and the peer's for a file of its own making.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from _common import report

HEADS, WIDTH = 8, 64


def cache_model(length: int, keeps_old: bool) -> tuple[Any, tuple[Any, ...]]:
    """The module and its inputs."""
    import torch

    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(1, HEADS, length, WIDTH))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            old = self.rows.clone()
            self.rows.index_copy_(2, at, x)
            result = self.rows.index_select(2, at)
            return result + old.index_select(2, at) if keeps_old else result * 2

    return Cache().eval(), (torch.rand(1, HEADS, 1, WIDTH), torch.tensor([5]))


def lowered(framework: str, length: int, keeps_old: bool) -> bytes:
    """The program's bytes, by either framework."""
    import torch

    module, inputs = cache_model(length, keeps_old)
    program = torch.export.export(module, inputs)
    if framework == "ours":
        import edgewise

        return bytes(edgewise.to_edge_transform_and_lower(program).to_executorch().buffer)
    from executorch.exir import to_edge

    return bytes(to_edge(program).to_executorch().buffer)


def seconds(framework: str, pte: bytes, inputs: tuple[Any, ...], repeats: int) -> float:
    """The fastest of several calls."""
    if framework == "ours":
        from edgewise.runtime import Runtime

        method: Any = Runtime.get().load_program(pte).load_method("forward")
        inputs = tuple(x.numpy() for x in inputs)
    else:
        from executorch.runtime import Runtime as Peer

        method = Peer.get().load_program(pte).load_method("forward")
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        method.execute(inputs)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> int:
    """Measure each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 1024, 8192, 32768])
    parser.add_argument("--only", choices=("ours", "peer"))
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    frameworks = [options.only] if options.only else ["ours", "peer"]
    rows = []
    for length in options.lengths:
        row: dict[str, Any] = {"length": length, "cache MB": HEADS * length * WIDTH * 4 / 1e6}
        for keeps_old, name in ((False, "in place"), (True, "copied")):
            _, inputs = cache_model(length, keeps_old)
            for framework in frameworks:
                pte = lowered(framework, length, keeps_old)
                row[f"{framework} {name} us"] = (
                    seconds(framework, pte, inputs, options.repeats) * 1e6
                )
        rows.append(row)
    report("One row written to a cache", rows, ["fastest of the repeats"], options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
