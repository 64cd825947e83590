"""A program, with calls to try it by and what they shall give, as one file for a device."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from edgewise.edge.program import tensor_bytes
from edgewise.emit.scalar_types import scalar_type
from edgewise.errors import EmitError
from edgewise.files import write_whole
from edgewise.format import bundled_program as bundled
from edgewise.format import file as pte
from edgewise.format import program as schema
from edgewise.inspect.reading import SCALAR_TYPES


class MethodTestCase:
    """One call. inputs, expected_outputs: tensors and numbers, nested as the model has them.

    expected_outputs: None for a call that is only to be run.
    """

    def __init__(self, inputs: Any, expected_outputs: Any = None) -> None:
        self.inputs = _leaves(inputs, "inputs")
        self.expected_outputs = _leaves(expected_outputs, "expected_outputs")


@dataclass
class MethodTestSuite:
    """The calls of one method."""

    method_name: str
    test_cases: Sequence[MethodTestCase]


class BundledProgram:
    """A program with its calls: ExecuTorch's runners take the file, and so does `edgewise run`.

    executorch_program: what `to_executorch` or `edgewise.compile` gave; or pte_file_path: a file.
    EmitError for calls that do not fit the methods.
    """

    def __init__(
        self,
        executorch_program: Any,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | Path | None = None,
    ) -> None:
        if (executorch_program is None) == (pte_file_path is None):
            raise ValueError(
                "[bundled program] one of executorch_program and pte_file_path must be given; got "
                f"{'none' if pte_file_path is None else 'both'}"
            )
        self.executorch_program = executorch_program
        self._program: bytes = (
            executorch_program.buffer if pte_file_path is None else Path(pte_file_path).read_bytes()
        )
        self.method_test_suites = sorted(method_test_suites, key=lambda one: one.method_name)
        self._plans = {p.name: p for p in pte.read(self._program).program.execution_plan}
        _check(self._plans, self.method_test_suites)

    def serialize_to_schema(self) -> bundled.BundledProgram:
        """The file as dataclasses. Tensors lie as the method takes and gives them."""
        suites = [
            bundled.BundledMethodTestSuite(
                suite.method_name,
                [_case(self._plans[suite.method_name], case) for case in suite.test_cases],
            )
            for suite in self.method_test_suites
        ]
        return bundled.BundledProgram(bundled.VERSION, suites, self._program)

    @property
    def buffer(self) -> bytes:
        """The file's bytes."""
        return bundled.to_bytes(self.serialize_to_schema())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file (`.bpte`), whole or not at all."""
        write_whole({path: [self.buffer]})


def _leaves(given: Any, name: str) -> list[Any]:
    leaves = [] if given is None else pytree.tree_leaves(given)
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, int, float)):
            raise TypeError(
                f"[bundled program] {name} must be tensors and numbers; got {type(leaf).__name__}"
            )
    return leaves


def _case(plan: Any, case: MethodTestCase) -> bundled.BundledMethodTestCase:
    inputs = [_value(x, plan.values[i].val) for x, i in zip(case.inputs, plan.inputs, strict=True)]
    outputs = zip(case.expected_outputs, plan.outputs, strict=False)  # or none is expected
    return bundled.BundledMethodTestCase(
        inputs, [_value(y, plan.values[i].val) for y, i in outputs]
    )


def _value(leaf: Any, like: Any) -> bundled.Value:
    """like: the method's own value."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu()
        order = list(like.dim_order or range(leaf.dim()))
        data = bytes(tensor_bytes(leaf.permute(order).contiguous()))
        made = bundled.Tensor(scalar_type(leaf.dtype), list(leaf.shape), data, bytes(order))
        return bundled.Value(made)
    if isinstance(leaf, bool):
        return bundled.Value(bundled.Bool(leaf))
    if isinstance(leaf, int):
        return bundled.Value(bundled.Int(leaf))
    return bundled.Value(bundled.Double(leaf))


def _check(plans: Mapping[str, Any], suites: Sequence[MethodTestSuite]) -> None:
    for suite in suites:
        plan = plans.get(suite.method_name)
        if plan is None:
            raise EmitError(
                f"[bundled program] a suite must be of a method of the program; got "
                f"{suite.method_name!r}; try one of {', '.join(sorted(plans))}"
            )
        for index, case in enumerate(suite.test_cases):
            where = f"case {index} of {suite.method_name!r}"
            _check_values(plan, plan.inputs, case.inputs, f"{where}: inputs")
            if case.expected_outputs:
                outputs = plan.outputs
                _check_values(plan, outputs, case.expected_outputs, f"{where}: expected_outputs")


def _check_values(plan: Any, indices: Sequence[int], leaves: Sequence[Any], where: str) -> None:
    wanted = list(_kinds(plan, indices))
    given = [_kind(leaf) for leaf in leaves]
    if wanted != given:
        raise EmitError(
            f"[bundled program] {where} must be {', '.join(wanted) or 'none'}; "
            f"got {', '.join(given) or 'none'}"
        )


_NAMES = {schema.Int: "int", schema.Double: "float", schema.Bool: "bool"}


def _kinds(plan: Any, indices: Sequence[int]) -> Iterator[str]:
    """What a method takes or gives, in words: types of tensors, and of numbers."""
    for index in indices:
        value = plan.values[index].val
        if isinstance(value, schema.Tensor):
            yield _tensor_of(value.scalar_type, len(value.sizes or ()))
        else:
            yield _NAMES.get(type(value), type(value).__name__)


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return _tensor_of(scalar_type(leaf.dtype), leaf.dim())
    return type(leaf).__name__


def _tensor_of(number: int, rank: int) -> str:
    return f"a {SCALAR_TYPES.get(number, ('unknown', 0))[0]} tensor of {rank} dimensions"


__all__ = ["BundledProgram", "MethodTestCase", "MethodTestSuite"]
