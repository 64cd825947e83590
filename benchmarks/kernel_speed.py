"""The runtime's own kernels against eager PyTorch on one thread, at about 64 k elements.

Each call is exported, lowered without a backend and run, in every type that eager has it in.
Frameworks take turns, and the best of many short series counts. A call of a method that only copies
a scalar is taken off ours, nothing off eager's. Fails if a ratio is above 3.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from kernel_cases import Case, cases

import edgewise
from edgewise.runtime import Runtime
from edgewise.runtime._native import operator_names

LIMIT = 3.0
TYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]

# Kernels that no case calls, by the beginning of their names, and why.
UNTIMED = {
    "executorch_prim::": "works on scalars",
    "aten::sym_": "works on scalars",
    "aten::_local_scalar_dense": "works on scalars",
    "aten::rand": "random: eager's generator is another one",
    "aten::bernoulli": "random: eager's generator is another one",
    "aten::native_dropout": "random: eager's generator is another one",
    "aten::empty": "computes nothing",
    "dim_order_ops::": "ours; eager's clone and to are timed under aten",
    "torchao::": "not in eager PyTorch",
    "edgewise::": "not in eager PyTorch",
    "quantized_decomposed::": "not in eager PyTorch",
}


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


@cache
def _idle(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[torch.dtype, ...]) -> Any:
    """With inputs as large, of next to no work: copying in and out is in both.

    Of each input it reads one element: an input that nothing reads would not be copied.
    """
    inputs = tuple(torch.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))
    return _method(lambda *xs: tuple(x[(slice(0, 1),) * x.dim()].clone() for x in xs), inputs)


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


def _arrays(inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    return [x if x.dtype == torch.bfloat16 else x.numpy() for x in inputs]


def measure(case: Case, dtype: torch.dtype, seconds: float) -> tuple[float, float, Any] | None:
    """Microseconds of ours and of eager, and our method; None where eager has no such call."""
    inputs = tuple(i.make(dtype) for i in case.inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.function(*inputs)
    except (RuntimeError, NotImplementedError, IndexError, ValueError):
        return None
    method = _method(case.function, inputs)
    idle = _idle(tuple(tuple(x.shape) for x in inputs), tuple(x.dtype for x in inputs))
    arrays = _arrays(inputs)
    ours, overhead, eager = _best(
        [
            lambda: method.execute(arrays),
            lambda: idle.execute(arrays),
            lambda: case.function(*inputs),
        ],
        seconds,
    )
    return max(ours - overhead, 0.0), eager, method


def main() -> int:
    """Prints a line for each call and type, the slowest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="names; none: all")
    parser.add_argument("--types", nargs="*", help="float32, int8, ...; none: all")
    parser.add_argument("--part", default="1/1", help="i/n: only every n-th call, from the i-th")
    parser.add_argument("--seconds", type=float, default=0.06, help="for each call and type")
    parser.add_argument("--above", type=float, default=0.0, help="print only ratios above this")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[tuple[float, str, float, float]] = []
    failed: list[str] = []
    called: set[str] = set()
    chosen = [c for c in cases() if not options.operators or c.name in options.operators]
    with torch.no_grad():
        for case in chosen[part - 1 :: parts]:
            for dtype in TYPES:
                kind = str(dtype).removeprefix("torch.")
                if options.types and kind not in options.types:
                    continue
                name = f"{case.name}, {kind}"
                try:
                    measured = measure(case, dtype, options.seconds)
                    if measured and measured[0] > LIMIT * measured[1]:  # again, for longer
                        measured = measure(case, dtype, 5 * options.seconds)
                except Exception as error:  # a call that we cannot run is a row, too
                    failed.append(f"{name}: {str(error).splitlines()[0][:120]}")
                    continue
                if measured:
                    ours, eager, method = measured
                    called.update(method.metadata.operators)
                    rows.append((ours / eager, name, ours, eager))
    print("| operator | ours, us | eager, us | ratio |\n|---|---:|---:|---:|")
    for ratio, name, ours, eager in sorted(rows, reverse=True):
        if ratio > options.above:
            print(f"| {name} | {ours:.1f} | {eager:.1f} | {ratio:.2f} |")
    slow = sum(ratio > LIMIT for ratio, *_ in rows)
    print(f"\n{len(rows) - slow} of {len(rows)} within {LIMIT:g} times eager; {slow} slower")
    for line in failed:
        print(f"not run: {line}")
    if not options.operators and parts == 1:
        missing = sorted(set(operator_names()) - called)
        for prefix, reason in UNTIMED.items():
            found = [name for name in missing if name.startswith(prefix)]
            print(f"not timed, {reason}: {len(found)} of {prefix}*")
            missing = [name for name in missing if name not in found]
        print(f"not timed, lowering gives others for it (timed as these): {', '.join(missing)}")
    return 1 if slow or failed else 0


if __name__ == "__main__":
    sys.exit(main())
