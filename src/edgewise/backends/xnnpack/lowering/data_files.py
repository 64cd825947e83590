"""Weights that belong into data files of their own, as their constants are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.fx import Node

from edgewise.edge.constant_files import file_of
from edgewise.edge.graph import fake, is_call
from edgewise.edge.integer_constants import IntegerConstants


def marked_constants(
    nodes: Sequence[Node], constants: IntegerConstants
) -> dict[int, tuple[str | None, str | None]]:
    """For the number of each call that reads marked constants: the file of its filter (a constant
    of two dimensions or more), and that of its bias."""
    if not any(node.op == "placeholder" and file_of(node) for node in nodes):
        return {}
    found = {}
    for number, node in enumerate(nodes):
        if not is_call(node):
            continue
        read = [source for source in node.all_input_nodes if source in constants]
        filters = [mark for one in read if fake(one).dim() > 1 for mark in _marks(one)]
        biases = [mark for one in read if fake(one).dim() <= 1 for mark in _marks(one)]
        if filters or biases:
            found[number] = (_first(filters), _first(biases))
    return found


def _marks(constant: Node) -> Iterator[str | None]:
    """Of a constant, or of what is dequantized."""
    if constant.op == "placeholder":
        yield file_of(constant)
    for source in constant.all_input_nodes:
        yield from _marks(source)


def _first(marks: Sequence[str | None]) -> str | None:
    return next((mark for mark in marks if mark is not None), None)
