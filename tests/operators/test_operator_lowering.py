"""What lowers a partition by definitions, whatever the backend: arguments, calls, the law."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import Node

from edgewise.edge.program import Constants
from edgewise.errors import InternalError, InvalidGraphError, PartitionError
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.operators.arguments import beyond_padding, pair, reduced_dims
from edgewise.operators.lowering import Lowering, Refused
from edgewise.operators.verify import verify_calls
from edgewise.partition.spec import Refusal
from support import Fn, export

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("dims", "rank", "found"),
    [
        (None, 3, [0, 1, 2]),
        ([], 3, [0, 1, 2]),
        (0, 3, [0]),
        (-1, 3, [2]),
        ([2, -3, 0], 3, [0, 2]),
        (-1, 0, []),
        (None, 0, []),
    ],
)
def test_reduced_dims(dims: Any, rank: int, found: list[int]) -> None:
    assert reduced_dims(dims, rank) == found


@pytest.mark.parametrize(
    ("value", "default", "found"),
    [
        (2, (1, 1), (2, 2)),
        ([2], (1, 1), (2, 2)),
        ([2, 3], (1, 1), (2, 3)),
        ([], (5, 6), (5, 6)),
        (None, (5, 6), (5, 6)),
        (0, (5, 6), (0, 0)),
    ],
)
def test_pair(value: Any, default: tuple[int, int], found: tuple[int, int]) -> None:
    assert pair(value, default) == found


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), [(7, 3, 2, 1), (8, 3, 2, 0)])
def test_beyond_padding(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> None:
    """With so much more padding behind, the same result is that of ceil_mode=False."""
    image = torch.zeros(1, 1, size, size)
    how = {"kernel_size": kernel, "stride": stride}
    result = torch.nn.AvgPool2d(**how, padding=padding, ceil_mode=ceil_mode)(image)
    more = beyond_padding(
        image.shape[2:], result.shape[2:], (kernel,) * 2, (stride,) * 2, (padding,) * 2
    )
    padded = torch.nn.functional.pad(
        image, (padding, padding + more[1], padding, padding + more[0])
    )
    assert torch.nn.AvgPool2d(**how)(padded).shape == result.shape


@pytest.mark.parametrize(
    ("calls", "outputs", "wrong"),
    [
        ([("ADD", "ab", "c"), ("MUL", "cc", "d")], "d", None),
        ([], "a", None),
        ([("ADD", "ac", "d")], "d", "operator 0, ADD, .* got <c>, not computed before"),
        ([("ADD", "ab", "c"), ("SUB", "ab", "c")], "c", "operator 1, SUB, .* got <c> once more"),
        ([("ADD", "ab", "a")], "a", "operator 0, ADD, .* got <a> once more"),
        ([("ADD", "ab", "c")], "d", "outputs must be computed; got <d>"),
    ],
)
def test_the_law(calls: list[tuple[str, str, str]], outputs: str, wrong: str | None) -> None:
    def check() -> None:
        verify_calls("here", calls, "ab", outputs, "<{}>".format)

    if wrong is None:
        check()
    else:
        with pytest.raises(InvalidGraphError, match=rf"^\[here\] {wrong}$"):
            check()


class Texts(Lowering[list[str], Constants, str]):
    """Nodes become their texts; the builder is a list of the calls."""

    backend = "Texts"
    partitioner = "TextsPartitioner"

    def input(self, node: Node) -> str:
        return node.name

    def begin(self, number: int, node: Node) -> None:
        self.b.append(f"{number} {node.name}")

    def difference(self, value: Any, made: str) -> str:
        return f"text; got {made}" if made == "wrong" else ""


def _raise(error: Exception) -> Any:
    raise error


LOWERED: dict[str, tuple[Any, str | tuple[type[Exception], str]]] = {
    "a definition": (lambda to, node, args: f"({to.computed(args['self'])})", "(inputs_0)"),
    "what cannot be lowered": (
        lambda to, node, args: _raise(Refused(Refusal("a rule", "this", "that"))),
        (PartitionError, r"^\[relu: .*\] a rule; got this; try that; try a partitioner that tags"),
    ),
    "a fault in it": (
        lambda to, node, args: _raise(KeyError("x")),
        (InternalError, r"^\[relu: .*\] lowering relu for Texts: must not fail; got KeyError"),
    ),
    "a wrong result": (
        lambda to, node, args: "wrong",
        (
            PartitionError,
            r"^\[relu: .*\] a definition must lower to the operator's text; got wrong",
        ),
    ),
}


@pytest.mark.parametrize("name", LOWERED)
def test_lowering(name: str) -> None:
    lower, expected = LOWERED[name]
    program = export(Fn(torch.relu), (torch.ones(2),))
    table: OperatorTable[..., Any] = OperatorTable(OperatorDefinition)
    to = Texts([], Constants(program))
    table.define("relu", (aten.relu.default,), lower)
    if isinstance(expected, str):
        (result,) = to.lower_all(program, table)
        assert to.computed(result) == expected
        assert to.b == ["1 relu"]
    else:
        with pytest.raises(expected[0], match=expected[1]):
            to.lower_all(program, table)


@pytest.mark.parametrize(
    ("made", "expected"), [(("a", "b"), "b"), (("a",), "item 1"), ("a", "item 1")]
)
def test_items_of_results(made: Any, expected: str) -> None:
    program = export(Fn(lambda x: torch.max(x, 1)[1]), (torch.ones(2, 3),))
    table: OperatorTable[..., Any] = OperatorTable(OperatorDefinition)
    table.define("max", (aten.max.dim,), lambda to, node, args: made)
    to = Texts([], Constants(program))
    if expected in made:
        (result,) = to.lower_all(program, table)
        assert to.computed(result) == expected
    else:
        with pytest.raises(PartitionError, match=f"a result that is delegated; got {expected}"):
            to.lower_all(program, table)


def test_an_operator_without_a_definition() -> None:
    program = export(Fn(torch.relu), (torch.ones(2),))
    with pytest.raises(PartitionError, match=r"an operator of the Texts table; got aten\.relu"):
        Texts([], Constants(program)).lower_all(program, OperatorTable(OperatorDefinition))
