"""What a graph's values are like on given data: ranges and means by channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

Batches = Iterable[Sequence[Any]]
Tensor = torch.Tensor


def watch(
    model: GraphModule, watched: Mapping[Node, Callable[[Tensor], None]], batches: Batches
) -> None:
    """Runs the graph on each batch and hands the values of the watched nodes on, but for those
    without elements, of which data that choose have left nothing."""
    runner = _Watching(model, watched)
    with torch.no_grad():
        for batch in batches:
            runner.run(*pytree.tree_leaves(tuple(batch)), enable_io_processing=False)


def largest_by_channel(
    model: GraphModule, axes: Mapping[Node, int], batches: Batches
) -> dict[Node, Tensor]:
    """Of each node the largest magnitude along the channels of its axis: [channels]. Those that
    no batch leaves any elements of are missing."""
    found: dict[Node, Tensor] = {}

    def look(node: Node, value: Tensor) -> None:
        largest = value.detach().abs().transpose(0, axes[node]).flatten(1).amax(1)
        found[node] = torch.maximum(found[node], largest) if node in found else largest

    watch(model, {node: _bound(look, node) for node in axes}, batches)
    return found


def mean_by_channel(
    model: GraphModule, axes: Mapping[Node, int], batches: Batches, magnitudes: bool = False
) -> dict[Node, Tensor]:
    """Of each node the mean (of magnitudes) along the channels of its axis, in float64. Those that
    no batch leaves any elements of are missing."""
    sums: dict[Node, Tensor] = {}
    counts: dict[Node, int] = dict.fromkeys(axes, 0)

    def look(node: Node, value: Tensor) -> None:
        rows = value.detach().transpose(0, axes[node]).flatten(1).double()
        rows = rows.abs() if magnitudes else rows
        sums[node] = sums.get(node, torch.zeros((), dtype=torch.float64)) + rows.sum(1)
        counts[node] += rows.shape[1]

    watch(model, {node: _bound(look, node) for node in axes}, batches)
    return {node: total / counts[node] for node, total in sums.items()}


def _bound(look: Callable[[Node, Tensor], None], node: Node) -> Callable[[Tensor], None]:
    return lambda value: look(node, value)


class _Watching(Interpreter):
    def __init__(
        self, module: GraphModule, watched: Mapping[Node, Callable[[Tensor], None]]
    ) -> None:
        super().__init__(module)
        self._watched = watched

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        look = self._watched.get(n)
        if look is not None and isinstance(value, Tensor) and value.numel() > 0:
            look(value)
        return value


__all__ = ["largest_by_channel", "mean_by_channel", "watch"]
