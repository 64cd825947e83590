"""What the rows of the XNNPACK table promise, and comparing results with that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from closeness import assert_within, magnitudes
from edgewise.backends.xnnpack.lowering.table import XnnpackOperator
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.partition.accuracy import Accuracy
from support import eager64

SMALLEST = 2.0**-126
"""XNNPACK takes numbers nearer to zero for zero, in float32."""

PEER = {
    "float32": {
        "cos": Accuracy(floor=2e-7),
        **{name: Accuracy(terms=1) for name in ("exp", "log_sigmoid", "mish", "softplus")},
        "mean": Accuracy(terms=1.5),
        "sin": Accuracy(floor=1e-7),
    },
    "float16": {"": Accuracy(ulps=4, terms=2, floor=2.5e-3)},
}
"""What is added for ExecuTorch's runtime: its XNNPACK is of another age, and computes in float16
what this project's computes in float32, where the CPU can. By row, or of all."""

_BY_NAME = {
    (target if isinstance(target, str) else str(target)): row
    for row in TABLE.definitions
    for target in row.targets
}


def added(*accuracies: Accuracy) -> Accuracy:
    return Accuracy(
        sum(a.ulps for a in accuracies),
        sum(a.terms for a in accuracies),
        sum(a.floor for a in accuracies),
    )


def rows_in(program: Any) -> list[XnnpackOperator]:
    """The rows that a lowered program's delegates are made of."""
    nodes = [n for n in program.delegation_report().nodes if n.partition]
    return list({row.name: row for n in nodes if (row := _BY_NAME.get(n.operator))}.values())


def bound_of(program: Any, type_: str, runtime: str = "ours") -> Accuracy:
    """What the rows promise together. Where one reads another's result, that one's rounding
    is an error of its operand: of a term."""
    rows = rows_in(program)
    parts = [row.accuracy[type_] for row in rows]
    inexact = sum(1 for part in parts if part != Accuracy())
    parts.append(Accuracy(terms=max(0, inexact - 1)))
    if type_ == "float32":
        parts.append(Accuracy(floor=SMALLEST))
    if runtime == "peer":
        extra = PEER[type_]
        parts += [extra[name] for name in ("", *(row.name for row in rows)) if name in extra]
    return added(*parts)


def assert_as_promised(
    program: Any,
    outputs: Sequence[Any],
    module: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    runtime: str = "ours",
) -> None:
    """Each element of each output is within what the rows of the program declare."""
    wanted = eager64(module, inputs)
    floats = [y for y in wanted if isinstance(y, torch.Tensor) and y.is_floating_point()]
    terms: list[torch.Tensor | None] = [None] * len(wanted)
    assert len(outputs) == len(wanted)
    for index, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
        if not got.is_floating_point():
            assert torch.equal(got, want.to(got.dtype)), f"output {index}"
            continue
        bound = bound_of(program, str(got.dtype).removeprefix("torch."), runtime)
        if bound.terms and floats and terms[index] is None:
            terms = list(magnitudes(module, inputs))
        assert_within(got, want, bound, terms=terms[index], inputs=inputs, where=f"output {index}")
