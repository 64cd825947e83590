"""What a program was at one moment, to tell later whether somebody changed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from edgewise.edge.bodies import graphs_within


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Calls, what is noted on them, the signature, and the tensors with their versions."""

    text: tuple[str, ...]
    meta: tuple[dict[str, Any], ...]
    tensors: dict[str, tuple[Any, int]]

    @classmethod
    def of(cls, program: ExportedProgram) -> Snapshot:
        nodes = list(_nodes(program.graph_module))
        signature = program.graph_signature
        held: dict[str, Any] = {**program.state_dict, **program.constants}
        children = program.graph_module.named_children()
        held |= {name: m for name, m in children if not isinstance(m, GraphModule)}
        return cls(
            (*map(_line, nodes), *map(repr, [*signature.input_specs, *signature.output_specs])),
            tuple(dict(node.meta) for node in nodes),
            {name: (value, _version(value)) for name, value in held.items()},
        )

    def holds(self, program: ExportedProgram) -> bool:
        """Whether the program is what it was: the same calls, by name, of the same tensors."""
        now = Snapshot.of(program)
        return (
            self.text == now.text
            and self.tensors.keys() == now.tensors.keys()
            and all(_same(pair, now.tensors[name]) for name, pair in self.tensors.items())
            and all(_same_meta(a, b) for a, b in zip(self.meta, now.meta, strict=True))
        )


def _nodes(module: GraphModule) -> Iterator[Node]:
    yield from module.graph.nodes
    for _, body in graphs_within(module):
        yield from body.graph.nodes


def _line(node: Node) -> str:
    # Nodes among the arguments are written by their names.
    return f"{node.op} {node.name} {node.target} {node.args!r} {node.kwargs!r}"


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def _same(before: tuple[Any, int], now: tuple[Any, int]) -> bool:
    return before[0] is now[0] and before[1] == now[1]


def _same_meta(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return before.keys() == now.keys() and all(before[key] is now[key] for key in before)
