"""Constants of a program, with those that are stored quantized."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.edge.graph import arguments, op_name
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import DEQUANTIZE, is_dequantize


@dataclass(frozen=True, eq=False)
class Weight:
    """Integers, and a scale for each index of `axis` (one scale for all: `axis` is None)."""

    data: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor
    axis: int | None


class IntegerConstants(Constants):
    """A call that dequantizes a constant counts as a constant itself."""

    def __contains__(self, node: object) -> bool:
        if super().__contains__(node):
            return True
        return (
            isinstance(node, Node)
            and is_dequantize(node)
            and all(super(IntegerConstants, self).__contains__(n) for n in node.all_input_nodes)
        )

    def tensor(self, node: Node) -> torch.Tensor:
        """The real numbers, or the constant as it is stored if it is not dequantized."""
        if node.op == "placeholder":
            return super().tensor(node)
        read = super().tensor
        args = torch.fx.node.map_arg(node.args, read)
        kwargs = torch.fx.node.map_arg(node.kwargs, read)
        with torch.no_grad():
            real: torch.Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
        return real

    def weight(self, node: Node) -> Weight | None:
        """The integers behind a dequantized constant; None for one in floating point."""
        if node.op == "placeholder":
            return None
        args = arguments(node)
        data = super().tensor(args["input"])
        if op_name(node) == DEQUANTIZE:
            quant = Quant.of(node)
            scales = torch.tensor([quant.scale], dtype=torch.float64)
            return Weight(data, scales, torch.tensor([quant.zero_point]), None)
        scales = super().tensor(args["scales"]).double()
        zeros = args["zero_points"]
        points = torch.zeros(len(scales)) if zeros is None else super().tensor(zeros)
        return Weight(data, scales, points, int(args["axis"]) % max(data.dim(), 1))
