"""MobileNetV2 in float32 and in 8-bit integers: lowered, written, and run on the native runtime.

Prints for each the delegation table, the error against eager PyTorch, the file's size, and
latencies. Weights are random (seeded): the architecture is what is shown.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

Arrays = list[np.ndarray]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="mobilenet_v2", help="a name of examples/models")
    options.add_argument("--output", type=Path, default=Path("build/demo"), help="folder")
    options.add_argument("--iterations", type=int, default=50)
    options.add_argument("--threads", type=int, default=None, help="default: physical cores")
    chosen = options.parse_args()
    # torchao says on import what it could use on other machines.
    logging.getLogger("torchao").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="torch")

    import torch

    from edgewise.backends.xnnpack import XNNPACKQuantizer
    from edgewise.quantize import quantize
    from examples.models import MODELS

    if chosen.model not in MODELS:
        print(f"--model must be one of {', '.join(MODELS)}; got {chosen.model}", file=sys.stderr)
        return 2
    spec = MODELS[chosen.model]
    model, inputs = spec.build(0), spec.example_inputs(0)
    print(f"{chosen.model}: {sum(p.numel() for p in model.parameters()):,} parameters")
    chosen.output.mkdir(parents=True, exist_ok=True)

    print("\n--- float32 ---")
    start = time.perf_counter()
    exported = torch.export.export(model, inputs)
    print(f"torch.export      {time.perf_counter() - start:6.2f} s")
    path = chosen.output / f"{chosen.model}.pte"
    lower(exported, path)
    result = run(path, inputs, chosen)
    with torch.no_grad():
        expected = leaves(model.double()(*[_as_double(x) for x in inputs]))
    model.float()
    worst = largest_error(result, expected)
    print(f"error             {worst:.1e} of the largest output, against eager in float64")
    if worst > 1e-4:
        print("the error is larger than 1e-4: this is a defect", file=sys.stderr)
        return 1

    print("\n--- int8 ---")
    start = time.perf_counter()
    batches = [spec.example_inputs(seed) for seed in range(4)]
    quantized = quantize(model, inputs, "int8", XNNPACKQuantizer, calibration=batches)
    print(f"quantize, export  {time.perf_counter() - start:6.2f} s (4 calibration batches)")
    path = chosen.output / f"{chosen.model}_int8.pte"
    lower(quantized, path)
    result = run(path, inputs, chosen)
    with torch.no_grad():
        reference = leaves(quantized.module()(*inputs))
    print(f"noise             {decibels(expected, result):6.1f} dB below the float model's output;")
    print(f"                  {decibels(expected, reference):6.1f} dB for PyTorch's own simulation")
    return 0


def lower(exported: Any, path: Path) -> None:
    """Writes the file and prints what went where."""
    import edgewise
    from edgewise.backends.xnnpack import XnnpackPartitioner

    start = time.perf_counter()
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = edge.to_executorch()
    program.save(path)
    print(f"lower and write   {time.perf_counter() - start:6.2f} s")
    print()
    print(program.delegation_report())
    print(program.memory_plan())
    print()
    print(f"file              {path.stat().st_size:,} bytes: {path}")


def run(path: Path, inputs: Any, chosen: argparse.Namespace) -> Arrays:
    """Loads the file, prints latencies, and returns the outputs."""
    import edgewise

    start = time.perf_counter()
    method = edgewise.load(path, threads=chosen.threads)
    print(f"load              {(time.perf_counter() - start) * 1e3:6.1f} ms")
    for _ in range(5):
        result = method(*inputs)
    times = []
    for _ in range(chosen.iterations):
        start = time.perf_counter()
        method(*inputs)
        times.append((time.perf_counter() - start) * 1e3)
    print(f"latency           {statistics.median(times):6.2f} ms median, {min(times):.2f} ms best")
    return leaves(result)


def leaves(tree: Any) -> Arrays:
    from torch.utils import _pytree

    return [np.asarray(leaf) for leaf in _pytree.tree_leaves(tree)]


def largest_error(got: Arrays, expected: Arrays) -> float:
    pairs = zip(got, expected, strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def decibels(signal: Arrays, got: Arrays) -> float:
    power = sum(float(np.square(b).sum()) for b in signal)
    noise = sum(float(np.square(a - b).sum()) for a, b in zip(got, signal, strict=True))
    return 10 * float(np.log10(power / noise))


def _as_double(value: Any) -> Any:
    return value.double() if value.is_floating_point() else value


if __name__ == "__main__":
    sys.exit(main())
