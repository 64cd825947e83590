"""The table of nodes that stay outside of the NPU, as users of ExecuTorch know it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from torch.fx import Node

from edgewise.edge.graph import op_name
from edgewise.partition.spec import Refusal

_HEAD = ("Node name", "Target", "Torch func", "Reason")
_WIDTH = 35


def rejections(backend: str, spec: str, refused: Mapping[Node, Sequence[Refusal]]) -> str:
    """The first reason against each node."""
    title = f"Partitioning for {backend}: {spec}\n"
    if not refused:
        return f"{title}No nodes rejected."
    rows = [
        (node.name, op_name(node), str(node.meta.get("torch_fn", "")), str(reasons[0]))
        for node, reasons in refused.items()
    ]
    return (
        f"{title}The following nodes were rejected for {spec}:\n{_grid(rows)}\n"
        "(Placeholders and outputs are not included in this list)"
    )


def _grid(rows: Sequence[Sequence[str]]) -> str:
    cells = [[_wrapped(text) for text in row] for row in [_HEAD, *rows]]
    widths = [max(len(line) for row in cells for line in row[i]) for i in range(len(_HEAD))]
    lines = [_rule(widths, "╒═╤╕")]
    for number, row in enumerate(cells):
        if number:
            lines.append(_rule(widths, "╞═╪╡" if number == 1 else "├─┼┤"))
        for i in range(max(map(len, row))):
            texts = [
                (cell[i] if i < len(cell) else "").ljust(width)
                for cell, width in zip(row, widths, strict=True)
            ]
            lines.append("│ " + " │ ".join(texts) + " │")
    return "\n".join([*lines, _rule(widths, "╘═╧╛")])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH) or [""]


def _rule(widths: Sequence[int], marks: str) -> str:
    left, line, cross, right = list(marks)
    return left + cross.join(line * (width + 2) for width in widths) + right
