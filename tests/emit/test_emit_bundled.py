"""Bundled programs: written here and checked by ExecuTorch, and the other way round."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.emit import BundledProgram, MethodTestCase, MethodTestSuite
from edgewise.errors import EmitError
from edgewise.format import bundled_program as schema
from edgewise.inspect import check_bundled_program

LAST = torch.channels_last


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()


@pytest.fixture(scope="module")
def program(net: nn.Module) -> edgewise.ExecutorchProgramManager:
    return edgewise.compile(net, (torch.zeros(1, 3, 6, 6),), verbose=False)


@torch.no_grad()
def cases(net: nn.Module) -> list[MethodTestCase]:
    """Right; laid channels last; nothing expected; wrong."""
    torch.manual_seed(1)
    x = torch.randn(1, 3, 6, 6)
    return [
        MethodTestCase((x,), net(x)),
        MethodTestCase([x.to(memory_format=LAST)], {"y": net(x)}),
        MethodTestCase((x,)),
        MethodTestCase((x,), net(2 * x)),
    ]


@pytest.fixture(scope="module")
def bundle(program: Any, net: nn.Module) -> bytes:
    return BundledProgram(program, [MethodTestSuite("forward", cases(net))]).buffer


WITHIN = {"rtol": 1e-4, "atol": 1e-5}


def test_checked_here(bundle: bytes) -> None:
    found = check_bundled_program(bundle, **WITHIN)
    assert [one.matches for one in found] == [True, True, None, False]
    assert [one.index for one in found] == [0, 1, 2, 3]
    assert found[3].problem == "output 0: 5 of 5 elements differ"
    assert found[0].difference < 1e-5 < found[3].difference


@pytest.mark.peer
def test_checked_by_executorch(bundle: bytes) -> None:
    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_bundled_program_from_buffer(bundle)
    for index in (0, 1):
        module.verify_result_with_bundled_expected_output("forward", index, *WITHIN.values())
    with pytest.raises(RuntimeError):
        module.verify_result_with_bundled_expected_output("forward", 3, *WITHIN.values())


@pytest.mark.peer
def test_written_by_executorch(program: Any, net: nn.Module, tmp_path: Path) -> None:
    from executorch.devtools import BundledProgram as Theirs
    from executorch.devtools.bundled_program.config import MethodTestCase as Case
    from executorch.devtools.bundled_program.config import MethodTestSuite as Suite
    from executorch.devtools.bundled_program.serialize import (
        serialize_from_bundled_program_to_flatbuffer as serialize,
    )

    program.save(tmp_path / "a.pte")
    same = [one for i, one in enumerate(cases(net)) if i != 1]  # which they write as it lies
    given = [Case(one.inputs, one.expected_outputs) for one in same]
    theirs = serialize(Theirs(None, [Suite("forward", given)], str(tmp_path / "a.pte")))
    assert [one.matches for one in check_bundled_program(theirs, **WITHIN)] == [True, None, False]
    ours = BundledProgram(None, [MethodTestSuite("forward", same)], tmp_path / "a.pte")
    assert schema.read(theirs) == ours.serialize_to_schema()


class Kinds(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x * n, x > 0, (x * 100).to(torch.int16), x.to(torch.float16)


def test_types_and_numbers() -> None:
    x = torch.tensor([math.nan, -1.5, math.inf, 0.25])
    model, inputs = Kinds(), (x, 3)
    made = edgewise.compile(model, inputs, backend="none", verbose=False)
    expected = [y.nan_to_num(7) if y.dtype == torch.int16 else y for y in model(*inputs)]
    expected[2] = torch.as_tensor(edgewise.load(made.buffer)(*inputs)[2])  # of NaN: undefined
    suite = [MethodTestSuite("forward", [MethodTestCase(inputs, expected)])]
    (one,) = check_bundled_program(BundledProgram(made, suite).buffer)
    assert (one.matches, one.difference) == (True, 0)
    expected[2] = expected[2] + 1
    suite = [MethodTestSuite("forward", [MethodTestCase(inputs, expected)])]
    (one,) = check_bundled_program(BundledProgram(made, suite).buffer, rtol=1, atol=1)
    assert one.problem == "output 2: 4 of 4 elements differ"


X = torch.zeros(1, 3, 6, 6)
MISFITS: dict[str, tuple[Any, str]] = {
    "another method": (MethodTestSuite("other", []), "got 'other'; try one of forward"),
    "another type": (
        MethodTestSuite("forward", [MethodTestCase((X.double(),))]),
        "inputs must be a float32 tensor of 4 dimensions; got a float64 tensor",
    ),
    "an input more": (
        MethodTestSuite("forward", [MethodTestCase((X, 3))]),
        "got a float32 tensor of 4 dimensions, int",
    ),
    "another result": (
        MethodTestSuite("forward", [MethodTestCase((X,), (X, X))]),
        "case 0 of 'forward': expected_outputs must be a float32 tensor of 2 dimensions; got",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits(program: Any, name: str) -> None:
    suite, message = MISFITS[name]
    with pytest.raises(EmitError, match=message):
        BundledProgram(program, [suite])


def test_what_is_given(program: Any) -> None:
    with pytest.raises(ValueError, match="one of executorch_program and pte_file_path"):
        BundledProgram(None, [])
    with pytest.raises(TypeError, match="inputs must be tensors and numbers; got str"):
        MethodTestCase(("a",))


def test_another_size_is_told(program: Any) -> None:
    suite = [MethodTestSuite("forward", [MethodTestCase((torch.zeros(1, 3, 9, 9),))])]
    (one,) = check_bundled_program(BundledProgram(program, suite).buffer)
    assert one.matches is False
    assert "[1, 3, 6, 6]" in one.problem


def test_damage(bundle: bytes) -> None:
    with pytest.raises(ValueError, match="must have 'BP08' at byte 4"):
        check_bundled_program(bundle[8:])
    with pytest.raises(ValueError, match="which is a bundled program's; try edgewise run"):
        edgewise.load(bundle)
    held = schema.read(bundle)
    held.method_test_suites[0].test_cases[0].inputs[0].val.data = b"1234"
    with pytest.raises(ValueError, match=r"must have 432 bytes; got 4"):
        check_bundled_program(schema.to_bytes(held))
    rng = np.random.default_rng(0)
    for _ in range(200):
        wrong = bytearray(bundle)
        wrong[int(rng.integers(len(bundle) - 3000, len(bundle)))] ^= 1 << int(rng.integers(8))
        with suppress(ValueError, edgewise.runtime.Error):
            check_bundled_program(bytes(wrong))


@pytest.mark.peer
def test_a_method_that_takes_channels_last(net: nn.Module) -> None:
    from executorch.extension.pybindings import portable_lib

    x = torch.randn(1, 3, 6, 6)
    made = edgewise.compile(net, (X.to(memory_format=LAST),), verbose=False)
    with torch.no_grad():
        suite = MethodTestSuite("forward", [MethodTestCase((x,), net(x))])
    data = BundledProgram(made, [suite]).buffer
    assert schema.read(data).method_test_suites[0].test_cases[0].inputs[0].val.dim_order == (
        b"\0\2\3\1"
    )
    assert check_bundled_program(data, **WITHIN)[0].matches
    module = portable_lib._load_bundled_program_from_buffer(data)
    module.verify_result_with_bundled_expected_output("forward", 0, *WITHIN.values())
