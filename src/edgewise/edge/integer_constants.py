"""Constants of a program, with those that are stored quantized."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments, op_name
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import DEQUANTIZE, Quantized, is_dequantize


@dataclass(frozen=True, eq=False)
class Integers:
    """Integers, and a scale for each index of `axis` (one scale for all: `axis` is None)."""

    data: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor
    axis: int | None


class IntegerConstants(Constants):
    """A call that dequantizes a constant counts as a constant itself."""

    def __contains__(self, node: object) -> bool:
        return super().__contains__(node) or (isinstance(node, Node) and self.is_dequantized(node))

    def is_dequantized(self, node: Node) -> bool:
        """Whether it is such a call."""
        return self.dequantizes(node) and all(map(super().__contains__, node.all_input_nodes))

    def dequantizes(self, node: Node) -> bool:
        """Whether it is a call that may dequantize constants."""
        return is_dequantize(node)

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

    def integers(self, node: Node) -> Integers | None:
        """What is dequantized; None if the constant is in floating point."""
        if node.op == "placeholder":
            return None
        args = arguments(node)
        data = super().tensor(args["input"])
        if op_name(node) == DEQUANTIZE:
            quant = Quantized.of(node)
            scales = torch.tensor([quant.scale], dtype=torch.float64)
            return Integers(data, scales, torch.tensor([quant.zero_point]), None)
        scales = super().tensor(args["scales"]).double()
        zeros = args["zero_points"]
        points = torch.zeros(len(scales)) if zeros is None else super().tensor(zeros)
        return Integers(data, scales, points, int(args["axis"]) % max(data.dim(), 1))
