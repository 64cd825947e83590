"""The runtime's own kernels against eager PyTorch on one thread, at about 64 k elements.

Each operator is exported, lowered without a backend and run. Sides take turns, and the best of
many short series counts. A call of a method that only copies a scalar is taken off ours, nothing
off eager's.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import edgewise
from edgewise.runtime import Runtime

N = 256  # 256 * 256 = 65,536


def _x(*shape: int) -> torch.Tensor:
    return torch.rand(*shape or (N, N)) + 0.1


def _index() -> torch.Tensor:
    return torch.randint(0, N, (N, N))


Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]


def cases() -> list[Case]:
    """Name, function, inputs."""
    names = [
        "abs",
        "acos",
        "asin",
        "atan",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
        "expm1",
        "floor",
        "log",
        "log10",
        "log1p",
        "log2",
        "neg",
        "reciprocal",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "isnan",
        "logical_not",
    ]
    made: list[Case] = [(n, getattr(torch, n), (_x(),)) for n in names]
    pairs = [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "pow",
        "remainder",
        "fmod",
        "atan2",
        "eq",
        "lt",
        "ge",
    ]
    made += [(n, getattr(torch, n), (_x(), _x())) for n in pairs]
    made += [
        ("add broadcast", torch.add, (_x(), _x(N))),
        ("relu", torch.relu, (_x(),)),
        ("gelu", F.gelu, (_x(),)),
        ("silu", F.silu, (_x(),)),
        ("hardtanh", F.hardtanh, (_x(),)),
        ("clamp", lambda x: torch.clamp(x, 0.2, 0.8), (_x(),)),
        ("where", lambda x, y: torch.where(x > y, x, y), (_x(), _x())),
        ("float16 add", torch.add, (_x().half(), _x().half())),
        ("int32 add", torch.add, (_index().int(), _index().int())),
        ("to float16", lambda x: x.to(torch.float16), (_x(),)),
        ("sum", lambda x: x.sum(-1), (_x(),)),
        ("sum of columns", lambda x: x.sum(0), (_x(),)),
        ("mean", lambda x: x.mean(-1), (_x(),)),
        ("amax", lambda x: x.amax(-1), (_x(),)),
        ("prod", lambda x: x.prod(-1), (_x(),)),
        ("argmax", lambda x: x.argmax(-1), (_x(),)),
        ("var", lambda x: x.var(-1), (_x(),)),
        ("any", lambda x: (x > 2).any(-1), (_x(),)),
        ("cumsum", lambda x: x.cumsum(-1), (_x(),)),
        ("softmax", lambda x: x.softmax(-1), (_x(),)),
        ("log_softmax", lambda x: x.log_softmax(-1), (_x(),)),
        ("layer_norm", lambda x: F.layer_norm(x, (N,)), (_x(),)),
        ("group_norm", lambda x: F.group_norm(x, 4), (_x(1, 16, 64, 64),)),
        ("mm", torch.mm, (_x(), _x())),
        ("bmm", torch.bmm, (_x(4, 128, 128), _x(4, 128, 128))),
        ("conv2d", lambda x, w: F.conv2d(x, w, padding=1), (_x(1, 16, 64, 64), _x(16, 16, 3, 3))),
        ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), (_x(1, 16, 64, 64),)),
        ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (_x(1, 16, 64, 64),)),
        ("bilinear", lambda x: F.interpolate(x, (64, 64), mode="bilinear"), (_x(1, 16, 32, 32),)),
        ("nearest", lambda x: F.interpolate(x, (64, 64)), (_x(1, 16, 32, 32),)),
        ("permute", lambda x: x.permute(1, 0).contiguous() + 0, (_x(),)),
        ("cat", lambda x, y: torch.cat([x, y], -1), (_x(N, 128), _x(N, 128))),
        ("slice", lambda x: x[:, ::2].clone() * 1, (_x(),)),
        ("expand", lambda x: x.expand(N, N) + 1, (_x(N),)),
        ("embedding", F.embedding, (torch.randint(0, 1000, (N,)), _x(1000, N))),
        ("gather", lambda x, i: x.gather(1, i), (_x(), _index())),
        ("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), (_x(), _index(), _x())),
        ("index_select", lambda x, i: x.index_select(0, i), (_x(), torch.randint(0, N, (N,)))),
        ("index", lambda x, i: x[i], (_x(), torch.randint(0, N, (N,)))),
        ("sort", lambda x: x.sort(-1), (_x(),)),
        ("topk", lambda x: x.topk(8, -1), (_x(),)),
        ("constant_pad", lambda x: F.pad(x, (1, 1, 1, 1)), (_x(),)),
        ("tril", torch.tril, (_x(),)),
        ("grid_sample", F.grid_sample, (_x(1, 16, 64, 64), _x(1, 64, 64, 2) - 0.6)),
        ("cdist", torch.cdist, (_x(N, 16), _x(N, 16))),
        ("bucketize", torch.bucketize, (_x(), torch.linspace(0, 1, 64))),
    ]
    return made


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _method(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = torch.export.export(_Module(function), inputs)
        program = edgewise.to_edge_transform_and_lower(exported, partitioner=[]).to_executorch()
    return Runtime.get().load_program(program.buffer, threads=1).load_method("forward")


def _best(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The shortest time of each, in microseconds; they take turns."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for which, call in enumerate(calls):
            for _ in range(3):
                start = time.perf_counter()
                call()
                best[which] = min(best[which], time.perf_counter() - start)
    return [b * 1e6 for b in best]


def main() -> None:
    """Prints a line for each operator, the slowest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="names; none: all")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each operator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    with torch.no_grad():
        for name, function, inputs in cases():
            if options.operators and name not in options.operators:
                continue
            method = _method(function, inputs)
            arrays = [x.numpy() for x in inputs]
            # Calls with inputs as large, of next to no work: copying in and out is in both.
            idle = _method(lambda *xs: xs[0].flatten()[:1] + 1, inputs)
            ours, overhead, eager = _best(
                [
                    lambda m=method, a=arrays: m.execute(a),
                    lambda m=idle, a=arrays: m.execute(a),
                    lambda f=function, i=inputs: f(*i),
                ],
                options.seconds,
            )
            rows.append((max(ours - overhead, 0.0) / eager, name, ours - overhead, eager))
    print("| operator | ours, us | eager, us | ratio |\n|---|---:|---:|---:|")
    for ratio, name, ours, eager in sorted(rows, reverse=True):
        print(f"| {name} | {ours:.1f} | {eager:.1f} | {ratio:.2f} |")
    slow = [name for ratio, name, _, _ in rows if ratio > 3]
    print(
        f"\n{len(rows) - len(slow)} of {len(rows)} within 3 times eager; slower: {slow or 'none'}"
    )


if __name__ == "__main__":
    main()
