"""An XNNPACK subgraph as plain values and nodes, before it is written.

The passes in `passes/` edit it; `serialize.serialize` turns it into a payload and named data.
Shapes here are physical: in the order in which elements lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from edgewise.backends.xnnpack.lowering.quant import Quant
from edgewise.edge.graph import Dim
from edgewise.edge.sizes import at

FP32, FP16 = 1, 2
DATATYPES = {torch.float32: FP32, torch.float16: FP16}

QDINT8 = 9

EXTERNAL_INPUT, EXTERNAL_OUTPUT = 1, 2
TRANSPOSE_B = 1
KEEP_DIMS = 0x40


@dataclass(eq=False)
class Value:
    """A tensor of the subgraph: external, constant or internal."""

    dims: tuple[Dim, ...]
    dtype: torch.dtype
    data: torch.Tensor | None = None
    """The constant's contents, contiguous, of shape `dims`."""
    input_index: int | None = None
    output_index: int | None = None
    quant: Quant | None = None
    """What stored integers mean; `dtype` of a quantized constant is that of the real numbers."""

    def number(self) -> float | None:
        """Of a constant in floating point: the number that all of its elements are."""
        if self.data is None or self.quant is not None or self.data.numel() == 0:
            return None
        first = self.data.reshape(-1)[0]
        return float(first) if bool((self.data == first).all()) else None


@dataclass(eq=False)
class Node:
    """One operation. `params` are the fields of its kind in the payload."""

    kind: str
    inputs: list[Value | None]
    outputs: list[Value]
    params: dict[str, Any] = field(default_factory=dict)
    clamp: tuple[float, float] | None = None
    origin: int = 0
    """Number of the edge node that it comes from (the payload's debug handle)."""


@dataclass(eq=False)
class Graph:
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    symbols: Mapping[Any, int] = field(default_factory=dict)
    """A number for each symbol of the sizes: what is written stands for that program."""
    sources: Sequence[torch.fx.Node] = ()
    """The edge nodes, by the numbers that are origins."""
    data_files: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    """By origin: the data files that filter and bias belong into; None: the program."""
    expands: set[int] = field(default_factory=set)
    """Origins of nodes whose weights may be integers although they compute in floating point."""
    plain: set[int] = field(default_factory=set)
    """Origins of nodes whose weights were integers, and are written as floating point."""
    padded: set[int] = field(default_factory=set)
    """Origins of nodes whose groups of weights are filled with zeros."""

    def is_possible(self) -> bool:
        """Whether the symbols' numbers are sizes that a runtime could plan for: none is below one,
        and what is reshaped keeps its elements. At the bounds that an export gives, parts of a
        tensor may be empty, or a number of rows no multiple of what it is divided by."""

        def sizes(value: Value) -> list[int]:
            return [at(size, self.symbols) for size in value.dims]

        if any(size < 1 for value in self.values() for size in sizes(value)):
            return False
        reshapes = [node for node in self.nodes if node.kind == "StaticReshape"]
        return all(
            math.prod(sizes(node.inputs[0])) == math.prod(sizes(node.outputs[0]))
            for node in reshapes
            if node.inputs[0] is not None
        )

    def users(self) -> dict[Value, list[Node]]:
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value is not None:
                    found.setdefault(value, []).append(node)
        return found

    def producers(self) -> dict[Value, Node]:
        return {value: node for node in self.nodes for value in node.outputs}

    def values(self) -> Iterable[Value]:
        seen = dict.fromkeys(self.inputs)
        seen.update(dict.fromkeys(self.outputs))
        for node in self.nodes:
            seen.update(dict.fromkeys(v for v in node.inputs if v is not None))
            seen.update(dict.fromkeys(node.outputs))
        return seen
