"""How much work a node is: multiply-accumulates and bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from edgewise.edge.graph import size_hint, value_of

aten = torch.ops.aten


def _shape(node: Any) -> list[int]:
    return [size_hint(s) for s in node.meta["val"].shape]


def _output(node: Node) -> list[int]:
    value = value_of(node)
    first = value[0] if isinstance(value, (tuple, list)) else value
    return [size_hint(s) for s in first.shape]


_CONVOLUTIONS = {
    getattr(getattr(aten, f"conv{rank}d"), overload)
    for rank in (1, 2, 3)
    for overload in ("default", "padding")
}
"""Which partitioners may keep whole."""
_TRANSPOSED = {
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
}


def _convolution(node: Node) -> int:
    weight = _shape(node.args[1])
    transposed = node.target in _TRANSPOSED
    if node.target is aten.convolution.default:
        transposed = bool(node.args[6])
    outputs = _shape(node.args[0]) if transposed else _output(node)
    return math.prod(outputs) * math.prod(weight[1:])


def _linear(node: Node) -> int:
    return math.prod(_output(node)) * _shape(node.args[1])[-1]


def _product(left: int) -> Callable[[Node], int]:
    return lambda node: math.prod(_output(node)) * _shape(node.args[left])[-1]


def _attention(node: Node) -> int:
    query, key, value = (_shape(node.args[i]) for i in range(3))
    scores = math.prod(query[:-1]) * key[-2]
    return scores * (query[-1] + value[-1])


def _sequence(node: Node) -> int:
    """Each matrix of a recurrent layer once for each step of each sequence."""
    steps = math.prod(_shape(node.args[0])[:-1])
    params: Any = node.args[2]
    return steps * sum(math.prod(shape) for shape in map(_shape, params) if len(shape) == 2)


def _cell(node: Node) -> int:
    rows = math.prod(_shape(node.args[0])[:-1])
    return rows * sum(math.prod(_shape(node.args[i])) for i in (2, 3))


_MACS: dict[Any, Callable[[Node], int]] = {
    **dict.fromkeys({aten.convolution.default, *_CONVOLUTIONS, *_TRANSPOSED}, _convolution),
    aten.linear.default: _linear,
    aten.mm.default: _product(0),
    aten.bmm.default: _product(0),
    aten.matmul.default: _product(0),
    aten.addmm.default: _product(1),
    aten.baddbmm.default: _product(1),
    aten.scaled_dot_product_attention.default: _attention,
    **dict.fromkeys(
        (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input), _sequence
    ),
    **dict.fromkeys(
        (
            aten.lstm_cell.default,
            aten.gru_cell.default,
            aten.rnn_tanh_cell.default,
            aten.rnn_relu_cell.default,
        ),
        _cell,
    ),
}


def macs(node: Node) -> int:
    """Multiply-accumulates of matrix-like operators; 0 for all others."""
    count = _MACS.get(node.target)
    return count(node) if count else 0


def traffic(node: Node) -> int:
    """Bytes of the tensors that the node reads and writes, those of the export where dynamic."""
    total = 0
    for value in [value_of(n) for n in node.all_input_nodes] + [value_of(node)]:
        for tensor in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(tensor, torch.Tensor):
                total += math.prod(size_hint(s) for s in tensor.shape) * tensor.element_size()
    return total
