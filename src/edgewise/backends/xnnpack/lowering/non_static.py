"""Weights of floating-point linear layers that stay with the program.

XNNPACK packs a weight that it owns once, for itself. A program whose weights somebody changes
between runs, or shares with others, hands them over with each call instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls, fake
from edgewise.edge.program import Constants

aten = torch.ops.aten

PRODUCTS = (aten.mm.default, aten.addmm.default)
"""What a linear layer becomes that nobody keeps whole."""

_OPERANDS: dict[Any, tuple[str, ...]] = {
    aten.linear.default: ("weight", "bias"),
    aten.addmm.default: ("mat2", "self"),
    aten.mm.default: ("mat2",),
}
"""Weight, and bias."""


def non_static_weights(program: ExportedProgram, constants: Constants) -> Iterator[Node]:
    """The parameters, buffers and constants that linear layers of floats read as they are."""
    found: dict[Node, None] = {}
    for node in calls(program.graph):
        names = _OPERANDS.get(node.target)
        if names is None or not fake(node).is_floating_point():
            continue
        named = arguments(node)
        read = [named[name] for name in names]
        if _is_held(read[0], constants):  # else computed, or dequantized
            found.update(dict.fromkeys(source for source in read if _is_held(source, constants)))
    return iter(list(found))


RECURRENT = (
    aten.lstm.input,
    aten.lstm_cell.default,
    aten.gru.input,
    aten.gru_cell.default,
)
"""Layers with linear ones inside, which their delegate owns."""


def _is_held(source: object, constants: Constants) -> bool:
    return isinstance(source, Node) and source.op == "placeholder" and source in constants
