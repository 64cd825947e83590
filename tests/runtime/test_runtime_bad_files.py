"""Damaged files: refused with an error of the runtime's, or run; never a crash."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.emit.scalar_types import scalar_type
from edgewise.format.file import Segments, file_parts, read
from edgewise.runtime import InvalidProgramError, Runtime, Verification
from edgewise.runtime.errors import Error
from support import Fn

WORKER = Path(__file__).with_name("bad_files_worker.py")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", ""),
        (lambda data: b"\0", ""),
        (lambda data: data[:3], ""),
        (lambda data: data[:8], ""),
        (lambda data: data[:32], ""),
        (lambda data: data[:100], ""),
        (lambda data: data[: len(data) // 2], ""),
        (lambda data: bytes(len(data)), ""),
        (lambda data: data[:4] + b"XX12" + data[8:], "ET"),
        (lambda data: b"PK\3\4" + bytes(100), ""),
        (lambda data: b"text, not a program. " * 20, ""),
        (lambda data: b"\xff" * len(data), ""),
    ],
)
def test_no_program(add_pte: bytes, tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    data = damage(add_pte)
    path = tmp_path / "bad.pte"
    path.write_bytes(data)
    for source in (data, path):
        for verification in Verification:
            with pytest.raises(InvalidProgramError, match=rf"(?s)^\[.*{message}"):
                Runtime.get().load_program(source, verification=verification)


@pytest.mark.parametrize("kind", ["truncated", "flipped", "head"])
@pytest.mark.parametrize("file", ["add_pte", "two_methods_pte", "delegated_pte"])
def test_damaged_programs(
    file: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = tmp_path / "whole.pte"
    path.write_bytes(request.getfixturevalue(file))
    count = 200 if kind == "truncated" else 400
    result = subprocess.run(
        [sys.executable, str(WORKER), str(path), kind, "0", str(count)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, "\n".join(result.stderr.splitlines()[-12:])
    ran, refused = map(int, result.stdout.split())
    assert ran + refused == count
    assert refused > 0


X, ROWS, MASK = torch.randn(16, 8), torch.arange(15, -1, -1), torch.arange(16) % 2 == 0
MOVERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cat": lambda x: torch.cat([x, x]),
    "constant_pad_nd": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "embedding": lambda x: torch.nn.functional.embedding(ROWS, x),
    "gather": lambda x: x.gather(0, ROWS[:, None]),
    "im2col": lambda x: torch.nn.functional.unfold(x[None, None], 2),
    "index": lambda x: x[ROWS],
    "index, masks": lambda x: x[MASK],
    "index, two": lambda x: x[ROWS, ROWS % 8],
    "index_select": lambda x: x.index_select(1, ROWS % 8),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x + 1),
    "reflection_pad1d": lambda x: torch.nn.functional.pad(x, (1, 2), "reflect"),
    "roll": lambda x: x.roll(3),
    "scatter": lambda x: x.scatter(0, ROWS[:, None], x),
    "select_copy": lambda x: x[3],
    "topk": lambda x: x.topk(3)[0],
}


@pytest.mark.parametrize("name", MOVERS)
def test_results_of_a_smaller_type(name: str) -> None:
    """Nothing is written behind a result that a file gives fewer bytes than the kernel moves."""
    function = MOVERS[name]
    exported = torch.export.export(Fn(lambda x: function(x) * 1), (X,))
    pte = edgewise.to_edge(exported).to_executorch().buffer
    tried = 0
    for position, value in enumerate(read(pte).program.execution_plan[0].values):
        planned = getattr(value.val, "allocation_info", None) is not None
        if not planned or not value.val.sizes or value.val.scalar_type != scalar_type(X.dtype):
            continue
        behind = _behind(pte, position)
        tried += 1
        if behind is not None:
            assert not behind.any()
    assert tried


def _behind(pte: bytes, position: int) -> np.ndarray | None:
    """What lies behind a value of uint8 in its place, after a run; None if that is refused."""
    file = read(pte)
    plan = file.program.execution_plan[0]
    tensor = plan.values[position].val
    start = -(-plan.non_const_buffer_sizes[1] // 128) * 128
    guard = start + -(-math.prod(tensor.sizes) // 64) * 64
    plan.non_const_buffer_sizes[1] = guard + 4096
    tensor.scalar_type = scalar_type(torch.uint8)
    tensor.allocation_info.memory_offset_low = start
    plan.values.append(copy.deepcopy(plan.values[position]))
    extra = plan.values[-1].val
    extra.sizes, extra.dim_order = [4096], bytes(1)
    extra.allocation_info.memory_offset_low = guard
    plan.outputs = [*plan.outputs, len(plan.values) - 1]
    segments = Segments()
    for blob in file.segments:
        segments.add(blob)
    data = b"".join(map(bytes, file_parts(file.program, segments)))
    try:
        return np.asarray(Runtime.get().load_program(data).load_method("forward").execute([X])[-1])
    except Error:
        return None
