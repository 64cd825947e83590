"""Each kernel of the runtime declares as many arguments as its operator's schema has."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from edgewise.quantize._torchao import convert_pt2e  # noqa: F401 (defines quantized_decomposed)

KERNELS = Path(__file__).resolve().parents[2] / "native" / "kernels"
ENTRY = re.compile(r'\{"([a-z_]+)::(\w+)(?:\.(\w+))?",\s*(\d+),')


def test_counts_of_arguments_are_those_of_the_schemas() -> None:
    wrong, known = {}, 0
    for file in KERNELS.glob("*.cpp"):
        for space, name, overload, count in ENTRY.findall(file.read_text()):
            wanted = _arguments(f"{space}::{name}", overload)
            if wanted is None:
                continue  # of ExecuTorch, not of PyTorch
            known += 1
            if wanted != int(count):
                wrong[f"{space}::{name}.{overload}"] = (int(count), wanted)
    assert not wrong
    assert known > 280


def _arguments(operator: str, overload: str) -> int | None:
    """Of the schema; of an out-variant that PyTorch lacks, the functional one's and `out`."""
    for name, more in ((overload, 0), (overload.removesuffix("_out"), 1)):
        try:
            return len(torch._C._get_schema(operator, name).arguments) + more
        except RuntimeError:
            continue
    return None
