"""Quantized programs as Neutron sees them: operators between dequantizations and quantizations.

Around every operator of a statically quantized program its operands are dequantized and its
result is quantized. What lies between, connected by floating-point values, is a cluster; the
NPU computes it in integers, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from edgewise.edge.graph import dtype_name, is_call, is_size, tensors_of
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.quantized_decomposed import Quantized, is_dequantize, is_quantize


@dataclass(frozen=True)
class Quant(Quantized):
    """As TFLite's tensors store them."""

    def stored(self, real: float) -> int:
        """The number that stands for a real one, the nearest there is."""
        low, high = self.low - self.zero_point, self.high - self.zero_point
        return round(max(low, min(high, real / self.scale))) + self.zero_point

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)} {self.scale:g} ({self.zero_point})"


@dataclass(eq=False)
class Cluster:
    """Operators connected by floating-point values, in the order of the program.

    inputs: the dequantizations of computed tensors. constants: those of parameters. outputs: the
    quantizations. floats: values that come or go without either.
    """

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    constants: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    floats: list[Node] = field(default_factory=list)

    @property
    def all_nodes(self) -> list[Node]:
        """With the quantizations around."""
        return [*self.constants, *self.inputs, *self.nodes, *self.outputs]


def clusters(nodes: Sequence[Node], constants: IntegerConstants) -> list[Cluster]:
    """All calls but the quantizations around them, by cluster, in the order of first nodes; then
    those of none, that only quantize anew what was dequantized."""
    found: dict[Node, Cluster] = {}
    inner = [
        n for n in nodes if is_call(n) and not (is_quantize(n) or is_dequantize(n) or is_size(n))
    ]
    for node in inner:
        mine = found.setdefault(node, Cluster([node]))
        for source in node.all_input_nodes:
            other = found.get(source)
            if other is not None and other is not mine:
                other.nodes += mine.nodes
                found.update(dict.fromkeys(mine.nodes, other))
                mine = other
    position = {node: i for i, node in enumerate(nodes)}
    whole = list(dict.fromkeys(found[node] for node in inner))
    for cluster in whole:
        cluster.nodes.sort(key=position.__getitem__)
        _surround(cluster, constants)
    pairs = [n for n in nodes if is_quantize(n) and is_dequantize(n.args[0])]
    return whole + [Cluster(inputs=[n.args[0]], outputs=[n]) for n in pairs]  # type: ignore[list-item]


def _surround(cluster: Cluster, constants: IntegerConstants) -> None:
    members = set(cluster.nodes)
    for node in cluster.nodes:
        for source in node.all_input_nodes:
            if source in members or is_size(source):
                continue
            if source in constants:
                if is_call(source):
                    _append(cluster.constants, source)
            elif is_dequantize(source):
                _append(cluster.inputs, source)
            elif any(t.is_floating_point() for t in tensors_of(source)):
                _append(cluster.floats, source)
        for user in node.users:
            if user not in members:
                _append(cluster.outputs if is_quantize(user) else cluster.floats, user)


def _append(to: list[Node], node: Node) -> None:
    if node not in to:
        to.append(node)


def results(cluster: Cluster) -> list[Node]:
    """The nodes that others than the cluster's read."""
    members = set(cluster.nodes)
    return [n for n in cluster.nodes if any(u not in members for u in n.users)]


__all__ = ["Cluster", "Quant", "clusters", "results"]
