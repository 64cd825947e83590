"""A runtime takes no size that the exported program would refuse."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
import torch
from torch.export import Dim

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.emit.input_sizes import KEY
from edgewise.runtime import InvalidArgumentError, InvalidProgramError
from support import Fn, assert_close, eager, run_peer

N, M = Dim("n", max=8), Dim("m")


def lower(function: Any, inputs: Any, shapes: Any, delegated: bool = False) -> bytes:
    program = torch.export.export(Fn(function), inputs, dynamic_shapes=(shapes,))
    partitioner = [XnnpackPartitioner()] if delegated else []
    return (
        edgewise.to_edge_transform_and_lower(program, partitioner=partitioner)
        .to_executorch()
        .buffer
    )


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


MEAN = (lambda x: x.mean((2, 3)) * math.sqrt(x.shape[2]), (ones(2, 3, 4, 4),))
# function, example, dynamic shapes; what is taken; what is refused, and why.
CASES: dict[str, tuple[Any, Any, Any, list[Any], list[tuple[Any, str]]]] = {
    "one open size": (
        lambda x: x / math.sqrt(x.shape[-1]),
        (ones(2, 6),),
        ({0: M},),
        [(ones(5, 6),), (ones(2, 6),)],
        [((ones(2, 7),), r"float32\[\?, 6\]; got float32\[2, 7\]; dimension 1 is static")],
    ),
    "one bounded size": (
        *MEAN,
        ({0: N},),
        [(ones(8, 3, 4, 4),), (ones(2, 3, 4, 4),)],
        [
            ((ones(2, 3, 3, 4),), r"float32\[<=8, 3, 4, 4\]; got .*dimension 2 is static"),
            ((ones(9, 3, 4, 4),), r"dimension 0 is too large"),
        ],
    ),
    "equal sizes of two inputs": (
        lambda x, y: x.sum() * x.shape[0] + y.sum(),
        (ones(3), ones(3)),
        ({0: M}, {0: M}),
        [(ones(4), ones(4))],
        [((ones(4), ones(5)), r"dimension 0 of input 1 must equal dimension 0 of input 0.*\[5\]")],
    ),
    "equal sizes of one input": (
        lambda x: x.sum() / x.shape[0],
        (ones(3, 3),),
        ({0: M, 1: M},),
        [(ones(4, 4),)],
        [((ones(4, 5),), r"dimension 1 of input 0 must equal dimension 0 of input 0")],
    ),
    "sizes that have nothing to do with each other": (
        lambda x, y: x.sum() + y.sum(),
        (ones(3), ones(4)),
        ({0: M}, {0: Dim("k")}),
        [(ones(7), ones(5)), (ones(5), ones(5))],
        [],
    ),
    "a multiple": (
        lambda x, y: x.sum() + y.sum(),
        (ones(3), ones(6)),
        ({0: M}, {0: 2 * M}),
        [(ones(5), ones(10))],
        [],
    ),
    "a static input between": (
        lambda x, s, y: x.sum() + s.sum() + y.sum(),
        (ones(3, 2), ones(2), ones(3, 1)),
        ({0: M}, None, {0: M}),
        [(ones(5, 2), ones(2), ones(5, 1))],
        [((ones(5, 2), ones(2), ones(5, 2)), r"input 2 must be float32\[\?, 1\]")],
    ),
}


@pytest.mark.parametrize("delegated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sizes(name: str, delegated: bool) -> None:
    function, example, shapes, taken, refused = CASES[name]
    model = edgewise.load(lower(function, example, shapes, delegated))
    for inputs in taken:
        assert_close([model(*inputs)], eager(Fn(function), inputs), 1e-6)
    for inputs, why in refused:
        with pytest.raises(InvalidArgumentError, match=why):
            model(*inputs)
    for inputs in taken:
        model(*inputs)


@pytest.mark.peer
def test_the_peer_takes_the_file() -> None:
    function, example, shapes, taken, _ = CASES["one bounded size"]
    for inputs in taken:
        (got,) = run_peer(lower(function, example, shapes), inputs)
        assert_close(got, eager(Fn(function), inputs), 1e-6)


def test_static_programs_have_no_such_data() -> None:
    program = torch.export.export(Fn(lambda x: x + 1), (ones(2, 3),))
    assert KEY.encode() not in edgewise.to_edge(program).to_executorch().buffer


@pytest.mark.parametrize("rank", [1, 3, 255])
def test_damaged_data_are_refused(rank: int) -> None:
    file = lower(lambda x: x + 1, (ones(3, 2),), ({0: M},))
    whole = struct.pack("<Bqq", 2, -2, 2)
    assert file.count(whole) == 1
    with pytest.raises(InvalidProgramError, match="sizes of input"):
        edgewise.load(file.replace(whole, bytes([rank]) + whole[1:]))
