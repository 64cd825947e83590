"""What the benchmarks of NPUs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


def loaded(finished: Any) -> Callable[..., torch.Tensor]:
    """A function of the inputs that runs the program on the host."""
    from edgewise.runtime import Runtime

    method = Runtime.get().load_program(finished.buffer).load_method("forward")
    return lambda *inputs: torch.from_numpy(np.array(method.execute(list(inputs))[0]))


def output_step(program: torch.export.ExportedProgram) -> float:
    """The scale of the output's quantization."""
    result = next(iter(reversed(program.graph.nodes))).args[0][0]
    return float(result.args[1])


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = list(rows[0])
    lines = [head, ["---"] * len(head)]
    lines += [[_cell(row[key]) for key in head] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sqnr(found: torch.Tensor, expected: torch.Tensor) -> float | str:
    """In dB."""
    noise = float((found - expected).double().square().sum())
    signal = float(expected.double().square().sum())
    return 10 * float(np.log10(signal / noise)) if noise else "exact"


def write(page: Path, text: str, name: str = "figures") -> None:
    """Between the marks of that name in a page."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = page.read_text().split(start)
    page.write_text(before + start + "\n" + text + "\n" + end + rest.split(end)[1])
