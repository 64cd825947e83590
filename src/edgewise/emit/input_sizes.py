"""Which sizes of a method's inputs are fixed, and which are equal, where its shapes are dynamic.

The format says of a tensor as a whole that its shape may vary. An export often leaves one size open
and computes with the others as numbers; a runtime that takes other numbers there computes something
that no model does. So the file says more, in named data, which runtimes that do not know it ignore.
"""

from __future__ import annotations

import struct
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

KEY = "edgewise.input_sizes/"
"""Followed by the method's name. For each input a byte with its rank, or 0 if there is nothing to
say of it, and 64 bits (little-endian) for each dimension: the size if it is fixed, ANY, or a
smaller number, which stands for a size: equal numbers for equal sizes."""

ANY = -1


def describe_input_sizes(program: ExportedProgram) -> bytes | None:
    """None if the format says it all."""
    numbers: dict[Any, int] = {}
    rows = [_symbols(value, numbers) for value in _inputs(program)]
    found = [symbol for row in rows for symbol in row]
    if all(symbol < 0 and (symbol == ANY or found.count(symbol) == 1) for symbol in found):
        return None
    return b"".join(struct.pack(f"<B{len(row)}q", len(row), *row) for row in rows)


def _inputs(program: ExportedProgram) -> list[Any]:
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    names = [
        getattr(spec.arg, "name", "")
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    return [nodes[name].meta.get("val") for name in names if name in nodes]


def _symbols(value: Any, numbers: dict[Any, int]) -> list[int]:
    """Of a tensor of a dynamic shape; else empty."""
    if not isinstance(value, torch.Tensor) or all(isinstance(s, int) for s in value.shape):
        return []
    return [_symbol(size, numbers) for size in value.shape]


def _symbol(size: Any, numbers: dict[Any, int]) -> int:
    expression = getattr(getattr(size, "node", None), "expr", size)
    if isinstance(expression, int) or expression.is_Integer:
        return int(expression)
    if not expression.is_Symbol:
        return ANY
    return numbers.setdefault(expression, ANY - 1 - len(numbers))
