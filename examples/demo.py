"""MobileNetV2 from torch.export to a `.pte` file, and that file on the native runtime.

Prints the delegation table, the error against eager PyTorch in float64, the file's size,
and latencies. Weights are random (seeded): the architecture is what is shown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", default="mobilenet_v2", help="a name of examples/models")
    options.add_argument("--output", type=Path, default=Path("build/demo"), help="folder")
    options.add_argument("--iterations", type=int, default=50)
    options.add_argument("--threads", type=int, default=None, help="default: physical cores")
    chosen = options.parse_args()

    import torch

    import edgewise
    from edgewise.backends.xnnpack import XnnpackPartitioner
    from examples.models import MODELS

    if chosen.model not in MODELS:
        print(f"--model must be one of {', '.join(MODELS)}; got {chosen.model}", file=sys.stderr)
        return 2
    spec = MODELS[chosen.model]
    model, inputs = spec.build(0), spec.example_inputs(0)
    print(f"{chosen.model}: {sum(p.numel() for p in model.parameters()):,} parameters")

    start = time.perf_counter()
    exported = torch.export.export(model, inputs)
    print(f"torch.export      {time.perf_counter() - start:6.2f} s")

    start = time.perf_counter()
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = edge.to_executorch()
    path = chosen.output / f"{chosen.model}.pte"
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)
    print(f"lower and write   {time.perf_counter() - start:6.2f} s")
    print()
    print(program.delegation_report())
    print(program.memory_plan())
    print()

    start = time.perf_counter()
    method = edgewise.load(path, threads=chosen.threads)
    print(f"load              {(time.perf_counter() - start) * 1e3:6.1f} ms")
    result = method(*inputs)
    with torch.no_grad():
        expected = model.double()(*[_as_double(x) for x in inputs])
    worst = max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(_leaves(result), _leaves(expected), strict=True)
    )
    for _ in range(5):
        method(*inputs)
    times = []
    for _ in range(chosen.iterations):
        start = time.perf_counter()
        method(*inputs)
        times.append((time.perf_counter() - start) * 1e3)
    print(f"latency           {statistics.median(times):6.2f} ms median, {min(times):.2f} ms best")
    print(f"error             {worst:.1e} of the largest output, against eager in float64")
    print(f"file              {path.stat().st_size:,} bytes: {path}")
    if worst > 1e-4:
        print("the error is larger than 1e-4: this is a defect", file=sys.stderr)
        return 1
    return 0


def _as_double(value):  # type: ignore[no-untyped-def]
    return value.double() if value.is_floating_point() else value


def _leaves(tree):  # type: ignore[no-untyped-def]
    from torch.utils import _pytree

    return [np.asarray(leaf) for leaf in _pytree.tree_leaves(tree)]


if __name__ == "__main__":
    sys.exit(main())
