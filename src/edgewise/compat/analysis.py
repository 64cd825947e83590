"""`executorch.util.activation_memory_profiler` and `compare_results` of `executorch.devtools`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.compat.exir import ExecutorchProgramManager


def generate_memory_trace(
    executorch_program_manager: Any,
    chrome_trace_filename: str | Path,
    enable_memory_offsets: bool = False,
    method_name: str = "forward",
    ommit_metadata: bool = False,
) -> None:
    """Writes the plan of a method's memory for Chrome's trace viewer: a row for each instruction,
    with all blocks that are taken then, a byte as wide as a microsecond; an arena is a process.

    enable_memory_offsets: blocks where they lie; without it, side by side.
    ommit_metadata: without names of nodes, modules and source lines.
    ValueError for other than an ExecutorchProgramManager.
    """
    if not isinstance(executorch_program_manager, ExecutorchProgramManager):
        raise ValueError(
            "[generate_memory_trace] expects an ExecutorchProgramManager; got "
            f"{type(executorch_program_manager).__name__}; try edge.to_executorch()"
        )
    method = executorch_program_manager.record().method(method_name)
    ends = dict.fromkeys(range(-1, len(method.instructions)), 0)
    events = []
    for block in method.memory:
        node = method.by_name.get(block.nodes[0]) if block.nodes else None
        about = {
            "op_name": node.operator if node else "",
            "Memory ID": block.arena,
            "fqn": node.module if node else "",
            "source": node.source if node else "",
            "bytes": block.size,
        }
        for row in range(block.first, min(block.last, len(method.instructions) - 1) + 1):
            start = block.offset if enable_memory_offsets else ends[row]
            ends[row] += block.size
            events.append(
                {
                    "name": ", ".join(block.nodes),
                    "cat": "memory_allocation",
                    "ph": "X",
                    "ts": start,
                    "dur": block.size,
                    "pid": block.arena,
                    "tid": row,
                    "args": {} if ommit_metadata else about,
                }
            )
    Path(chrome_trace_filename).write_text(json.dumps({"traceEvents": events}, indent=2), "utf-8")


def compare_results(
    reference_output: Sequence[Any],
    run_output: Sequence[Any],
    metrics: Sequence[str] | None = None,
    plot: bool = False,
) -> dict[str, list[float]]:
    """How far outputs are from those of a reference: by metric, a figure for each output.

    metrics: some of "snr" (in decibels), "mse" and "cosine_similarity". They are printed, too.
    plot: refused. `edgewise.inspect.compare` compares node by node.
    ValueError for other metrics, and for outputs of other numbers or sizes.
    """
    if plot:
        raise ValueError("[compare_results] draws no curves; got plot=True; try without it")
    unknown = sorted(set(metrics or ()) - set(_METRICS))
    if unknown:
        raise ValueError(
            f"[compare_results] metrics must be some of {', '.join(_METRICS)}; got {unknown}"
        )
    pairs = [
        (np.asarray(wanted, np.float64).ravel(), np.asarray(got, np.float64).ravel())
        for wanted, got in zip(reference_output, run_output, strict=True)
    ]
    found = {}
    for name in metrics or _METRICS:
        found[name] = [_METRICS[name](wanted, got) for wanted, got in pairs]
        figures = "\n".join(f"{i:<5}{figure:>8.5f}" for i, figure in enumerate(found[name]))
        print(f"{name}\n{'-' * 20}\n{figures}\n")
    return found


def _snr(wanted: NDArray[np.float64], got: NDArray[np.float64]) -> float:
    noise, signal = float(np.sum((wanted - got) ** 2)), float(np.sum(wanted**2))
    return 10 * math.log10(signal / noise) if noise and signal else math.inf if signal else math.nan


def _cosine(wanted: NDArray[np.float64], got: NDArray[np.float64]) -> float:
    lengths = float(np.linalg.norm(wanted) * np.linalg.norm(got))
    return float(wanted @ got) / lengths if lengths else math.nan


_METRICS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "snr": _snr,
    "mse": lambda wanted, got: float(np.mean((wanted - got) ** 2)),
    "cosine_similarity": _cosine,
}
