"""Threads of portable kernels: programs without a delegate, with one thread and with several.

The two run in turns, in blocks of calls; the ratio is the median of the pairs'. The results must be
the same, bit by bit: exit code 1 if not.
"""

import argparse
import time
from statistics import median
from typing import Any

import numpy as np
import torch
from _common import ratio, report
from torch import nn

import edgewise
import edgewise.edge.cache_operators  # (defines torch.ops.edgewise)
from edgewise.runtime import Method, Runtime


class Product(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x @ y


class Attention(nn.Module):
    """Of the last positions of a cache."""

    def forward(self, queries: Any, keys: Any, values: Any) -> Any:
        start = keys.shape[1] - queries.shape[1]
        return torch.ops.edgewise.custom_sdpa(queries, keys, values, start, None, 0.0, True, None)


def numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes)


def cases() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    cache = numbers(1, 2048, 8, 64)
    return {
        "512x512 @ 512x512": (Product(), (numbers(512, 512), numbers(512, 512))),
        "the same, float64": (
            Product(),
            (numbers(512, 512).double(), numbers(512, 512).double()),
        ),
        "4096x256 @ 256x64": (Product(), (numbers(4096, 256), numbers(256, 64))),
        "12 of 197x64 @ 64x197": (Product(), (numbers(12, 197, 64), numbers(12, 64, 197))),
        "linear, 64 rows of 1024 to 1024": (nn.Linear(1024, 1024), (numbers(64, 1024),)),
        "linear, 1 row of 1024 to 1024": (nn.Linear(1024, 1024), (numbers(1, 1024),)),
        "attention, 1 of 2048, 8 heads": (Attention(), (numbers(1, 1, 8, 64), cache, cache)),
        "attention, 256 of 2048": (Attention(), (numbers(1, 256, 8, 64), cache, cache)),
    }


def milliseconds(method: Method, inputs: list[Any], block: float) -> float:
    """Of a call, over a block of them."""
    count, begin = 0, time.perf_counter()
    while count < 3 or time.perf_counter() - begin < block / 1e3:
        method.execute(inputs)
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    module, example = cases()[name]
    exported = torch.export.export(module.eval(), example)
    file = bytes(edgewise.to_edge_transform_and_lower(exported).to_executorch().buffer)
    inputs = [each.numpy() for each in example]
    counts = (1, options.threads)
    methods = [
        Runtime.get().load_program(file, threads=count).load_method("forward") for count in counts
    ]
    outputs = [method.execute(inputs)[0] for method in methods]
    times: list[list[float]] = [[], []]
    for pair in range(options.pairs):
        for at in (0, 1) if pair % 2 == 0 else (1, 0):
            times[at].append(milliseconds(methods[at], inputs, options.block))
    return {
        "program": name,
        "1 thread ms": median(times[0]),
        f"{options.threads} threads ms": median(times[1]),
        "ratio": ratio(times[1], times[0]),
        "same": np.array_equal(*outputs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--block", type=float, default=50, metavar="MS")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = [measure(name, options) for name in cases()]
    report("Threads of portable kernels", rows, [f"medians of {options.pairs} pairs"], None)
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
