"""Bundled programs (`.bpte`) are run here: does each call give what the file expects of it?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.format import bundled_program as bundled
from edgewise.inspect.reading import SCALAR_TYPES
from edgewise.runtime import Error, Program, Runtime
from edgewise.runtime._bfloat16 import from_bits

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CaseResult:
    """One call of a bundled program.

    matches: whether every output is as expected; None if the file expects nothing. difference: the
    largest absolute one of any element. problem: what was wrong, in words.
    """

    method: str
    index: int
    matches: bool | None
    difference: float = 0.0
    problem: str = ""


def check_bundled_program(
    file: str | Path | bytes | memoryview,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    **options: Any,
) -> list[CaseResult]:
    """Runs every call of a bundled program, and compares what it gives with what it shall give.

    Floats may differ by `atol + rtol * |expected|`, as ExecuTorch's own check has it; integers and
    booleans may not. options: as for `edgewise.runtime.Runtime.load_program` (threads, data_path).

    Raises OSError, ValueError for a file that is no bundled program or damaged, and what
    `load_program` does.
    """
    name = "file" if isinstance(file, (bytes, memoryview)) else str(file)
    held = bundled.read(Path(file).read_bytes() if isinstance(file, (str, Path)) else file, name)
    program = Runtime.get().load_program(held.program, **options)
    return [
        run_case(program, suite.method_name or "", index, case, rtol, atol)
        for suite in held.method_test_suites or ()
        for index, case in enumerate(suite.test_cases or ())
    ]


def run_case(
    program: Program,
    method: str,
    index: int,
    case: bundled.BundledMethodTestCase,
    rtol: float,
    atol: float,
) -> CaseResult:
    """One call, in a session of its own."""
    try:
        outputs = program.load_method(method).execute(list(inputs_of(case)))
    except Error as error:
        return CaseResult(method, index, False, math.inf, str(error))
    return compared(method, index, case, outputs, rtol, atol)


def compared(
    method: str,
    index: int,
    case: bundled.BundledMethodTestCase,
    outputs: Sequence[Any],
    rtol: float,
    atol: float,
) -> CaseResult:
    """Outputs of a call, with those that it expects."""
    expected = [value_of(one) for one in case.expected_outputs or ()]
    if not expected:
        return CaseResult(method, index, None)
    if len(expected) != len(outputs):
        counts = f"{len(outputs)} outputs, expected {len(expected)}"
        return CaseResult(method, index, False, math.inf, counts)
    worst, problems = 0.0, []
    for number, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        found, wanted = np.asarray(found), np.asarray(wanted)
        if found.shape != wanted.shape:
            worst = math.inf
            problems.append(f"output {number} is {found.shape}, expected {wanted.shape}")
            continue
        if not found.size:
            continue
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=math.inf))
            real = wanted.dtype.kind not in "iub"
            bound = np.where(np.isfinite(b), atol + rtol * np.abs(b), 0.0) if real else 0.0
        wrong = int((apart > bound).sum())
        worst = max(worst, float(apart.max()))
        if wrong:
            problems.append(f"output {number}: {wrong} of {a.size} elements differ")
    return CaseResult(method, index, not problems, worst, "; ".join(problems))


def inputs_of(case: bundled.BundledMethodTestCase) -> Iterator[Any]:
    """For `Method.execute`."""
    return map(value_of, case.inputs or ())


def value_of(value: bundled.Value) -> Any:
    """An array or a number. ValueError for a tensor whose bytes are not as many as it says."""
    held = value.val
    if not isinstance(held, bundled.Tensor):
        for name in ("int_val", "bool_val", "double_val"):
            if hasattr(held, name):
                return getattr(held, name)
        raise ValueError("[bundled program] a value must be a tensor or a number; got nothing")
    sizes, order = list(held.sizes or ()), list(held.dim_order or range(len(held.sizes or ())))
    if held.scalar_type not in SCALAR_TYPES or sorted(order) != list(range(len(sizes))):
        raise ValueError(
            f"[bundled program] a tensor must be of a known type and order; got type "
            f"{held.scalar_type}, order {order} of {len(sizes)} dimensions"
        )
    name, item = SCALAR_TYPES[held.scalar_type]
    data = held.data or b""
    if min(sizes, default=0) < 0 or len(data) != math.prod(sizes) * item:
        raise ValueError(
            f"[bundled program] a tensor of {sizes} {name} must have "
            f"{math.prod(sizes) * item} bytes; got {len(data)}"
        )
    stored: Array = np.frombuffer(data, np.uint16 if name == "bfloat16" else np.dtype(name))
    laid = (from_bits(stored) if name == "bfloat16" else stored).reshape([sizes[d] for d in order])
    return laid.transpose([order.index(d) for d in range(len(order))])


__all__ = ["CaseResult", "check_bundled_program"]
