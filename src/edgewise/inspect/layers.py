"""What an NPU program is expected to take, layer by layer, at the nodes of the model.

A layer is an operation of the NPU's compiler: it may compute several nodes, and a node may need
several. Nothing here was measured: "cycles" are the compiler's, "model cycles" those of edgewise's
own model of the command stream, where there is one.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from edgewise.inspect.record import EstimateRecord, MethodRecord, NodeRecord
from edgewise.inspect.simplify import Simplified, simplify

T = TypeVar("T")

_PRODUCTS = ("Conv", "FullyConnected", "MatMul")
_MOVES = ("Transpose", "Reshape", "Memcpy", "Identity", "Slice", "Concat", "Gather", "Scatter")
_MOVED = ("view", "permute", "squeeze", "unsqueeze", "reshape", "transpose")
_ENDINGS = ("clamp", "relu", "hardtanh", "quantize", "dequantize", "view", "permute", "squeeze",
            "unsqueeze", "reshape", "transpose")  # fmt: skip
"""What a product may end with, by the beginning of its operator's name."""


class LayersByCommand(Generic[T]):
    """Which layer a command of the stream is of: the first one that does not end before it.

    ends: offsets of the layers' last commands, with what stands for the layer.
    """

    def __init__(self, ends: Iterable[tuple[int, T]]) -> None:
        by_offset = sorted(ends, key=lambda end: end[0])
        self._offsets = [offset for offset, _ in by_offset]
        self._layers = [layer for _, layer in by_offset]

    def of(self, offset: float) -> T | None:
        """None for a command behind the last layer."""
        at = bisect_left(self._offsets, offset)
        return self._layers[at] if at < len(self._layers) else None


@dataclass(frozen=True)
class Layer:
    """A layer of a delegate. Cycles are the NPU's."""

    delegate: int
    number: int
    """In the order of execution."""
    operator: str
    """The compiler's name."""
    node: NodeRecord | None
    """The node that it is for; None if the compiler made it up."""
    cycles: int
    model_cycles: int | None = None
    """With `waiting`; None where there is no model."""
    waiting: int = 0
    """For transfers."""
    bound: str = ""
    """What the kernel's time is by our model: "MAC", "output", or a memory."""
    macs: int = 0
    utilization: float = 0.0
    """Multiply-accumulates by those that could be done in `cycles`; 0 where there are none."""
    staging_bytes: int = 0
    memories: Mapping[str, int] = field(default_factory=dict)
    """Cycles of access, by memory."""
    commands: tuple[int, ...] = ()
    """Offsets of its last commands in the stream, one for each stripe."""

    @property
    def module(self) -> str:
        """Qualified name of the node's innermost module; "" without one."""
        return self.node.module if self.node is not None else ""

    @property
    def source(self) -> str:
        """`file.py:12` of the node; "" where it is not known."""
        return self.node.source if self.node is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the node's name."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "node": self.node.name if self.node is not None else "",
            "module": self.module,
            "source": self.source,
            "memories": dict(self.memories),
            "commands": list(self.commands),
        }


def layers(method: MethodRecord) -> list[Layer]:
    """Of all delegates, each in the order of execution; empty without estimates."""
    if not any(d.estimates and d.estimates.layers for d in method.delegates):
        return []
    finder = NodeFinder(simplify(method))
    found = []
    for index, delegate in enumerate(method.delegates):
        told = delegate.estimates.layers if delegate.estimates else ()
        for number, row in enumerate(told):
            model = row.get("model cycles")
            found.append(
                Layer(
                    index,
                    number,
                    str(row.get("operator", "")),
                    finder.of(row),
                    _count(row.get("cycles")),
                    None if model is None else _count(model),
                    _count(row.get("model waiting")),
                    str(row.get("bound", "")),
                    _count(row.get("MACs")),
                    _figure(row.get("MAC utilization")),
                    _count(row.get("staging bytes")),
                    {
                        name.removesuffix(" cycles"): _count(value)
                        for name, value in row.items()
                        if name.endswith(" cycles") and name not in ("NPU cycles", "model cycles")
                    },
                    tuple(int(at) for at in str(row.get("commands", "")).split() if at.isdigit()),
                )
            )
    return found


def slowest(rows: Sequence[Layer]) -> list[Layer]:
    """By our model's cycles where there are some, else by the compiler's."""
    return sorted(rows, key=lambda one: -(one.model_cycles or one.cycles))


def table_of(rows: Sequence[Layer], all_rows: Sequence[Layer]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of layers, for text; columns in which no row has anything are left out.

    Headings that begin with ">" are of figures. Shares are of all_rows.
    """
    model = sum(one.model_cycles or 0 for one in all_rows)
    whole = sum(one.cycles for one in all_rows)
    heads = [">model", ">share", ">compiler", ">share", ">MACs used", "limited by", "layer"]
    heads += ["module", "line"]
    cells = [
        [
            f"{one.model_cycles:,}" if one.model_cycles else "",
            _percent(one.model_cycles or 0, model),
            f"{one.cycles:,}",
            _percent(one.cycles, whole),
            _percent(one.utilization, 1),
            one.bound,
            one.operator,
            one.module,
            os.path.basename(one.source),
        ]
        for one in rows
    ]
    kept = [i for i in range(len(heads)) if any(line[i] for line in cells)]
    return [heads[i] for i in kept], [[line[i] for i in kept] for line in cells]


def summary_of(rows: Sequence[Layer], estimates: EstimateRecord) -> str:
    """What a table of a delegate's layers is of, in a line."""
    model, waiting = sum(one.model_cycles or 0 for one in rows), sum(one.waiting for one in rows)
    whole = _count(estimates.figures.get("cycles")) or sum(one.cycles for one in rows)
    ours = f"{model:,} by edgewise's model ({_percent(waiting, model) or '0 %'} waiting), "
    return (
        f"NPU cycles by layer: {ours if model else ''}{whole:,} by {estimates.source}; "
        f"none was measured"
    )


def _percent(part: float, whole: float) -> str:
    share = 100 * part / whole if whole else 0.0
    if not share:
        return ""
    return "<0.1 %" if share < 0.1 else f"{share:.1f} %"


class NodeFinder:
    """The node that a layer, or a block of memory, is for."""

    def __init__(self, simple: Simplified) -> None:
        self._nodes, self._stands_for = simple.method.by_name, simple.stands_for
        self._makers = {edge.target: edge.source for edge in reversed(simple.method.edges)}

    def of(self, row: Mapping[str, Any]) -> NodeRecord | None:
        """A layer that multiplies is named for the clamp, table or quantization that ends it: it is
        for the node before that multiplies, if only such stand between, or the work fits."""
        name = str(row.get("node") or "")
        named = node = self._nodes.get(self._stands_for.get(name, name))
        operator = str(row.get("operator", ""))
        if not any(part in operator for part in _PRODUCTS):
            return named if operator.startswith(_MOVES) else self._behind_moves(named)
        ended = True
        for _ in range(4):
            if node is None or node.macs:
                break
            ended = ended and _short(node).startswith(_ENDINGS)
            before = self._nodes.get(self._makers.get(node.name, ""))
            if before is None or before.delegate != node.delegate:
                break
            node = before
        fits = node is not None and node.macs and (ended or node.macs == _count(row.get("MACs")))
        return node if fits else named

    def _behind_moves(self, node: NodeRecord | None) -> NodeRecord | None:
        """What is moved, where a layer that computes is named for the move behind it."""
        found = node
        for _ in range(4):
            if found is None or not _short(found).startswith(_MOVED):
                break
            before = self._nodes.get(self._makers.get(found.name, ""))
            if before is None or before.delegate != found.delegate:
                return node
            found = before
        return found


def _short(node: NodeRecord) -> str:
    return node.operator.partition(".")[2].lstrip("_")


def _figure(value: Any) -> float:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else 0.0


def _count(value: Any) -> int:
    return int(_figure(value))
