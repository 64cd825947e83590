"""Which nodes a method's instructions and values come from. Written for records of programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node

from edgewise.emit.memory import Block


@dataclass
class Origins:
    """Names of nodes; those of branches and loops after their path: "true_graph_0/add"."""

    graph: Graph
    instructions: list[str] = field(default_factory=list)
    """For each instruction; "" for one that updates state at the method's end."""
    values: dict[int, list[str]] = field(default_factory=dict)
    """By the value's number: the nodes that computed it first, and those that it stands for."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Those that values were noted for."""
    homes: dict[int, int] = field(default_factory=dict)
    """Values that share another's memory, and that one's number."""
    blocks: Sequence[Block] = ()
    """What the memory plan was made for."""
    paths: dict[Graph, str] = field(default_factory=dict)
    """Of bodies of control flow."""

    def name(self, node: Node) -> str:
        """The node's name after the path of the body that it is in."""
        return self.paths.get(node.graph, "") + node.name

    def made(self, node: Node, end: int) -> None:
        """The instructions up to `end`, without those noted before, are the node's."""
        missing = end - len(self.instructions)
        self.instructions += [self.name(node)] * missing

    def entered(self, node: Node, body: Node, graph: Graph) -> None:
        """`graph` is what the call of control flow `node` names as `body`."""
        self.paths[graph] = f"{self.paths.get(node.graph, '')}{body.target}/"

    def finish(self, end: int, values: Mapping[Node, Any]) -> None:
        """All is emitted: `end` instructions, and values (numbers, or lists of them) by node."""
        self.instructions += [""] * (end - len(self.instructions))
        for node, found in values.items():
            self.nodes[self.name(node)] = node
            for index in found if isinstance(found, list) else [found]:
                if isinstance(index, int):
                    self.values.setdefault(index, []).append(self.name(node))
