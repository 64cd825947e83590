"""Which operator of the user's a node is a piece of, once that was decomposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from edgewise.edge.graph import op_name

DECOMPOSED_FROM = "decomposed_from"
"""Key of `node.meta`; `graph.inherit_meta` hands it on to every piece."""


@dataclass(frozen=True)
class Whole:
    """An operator before it was decomposed."""

    name: str
    """The node's name then."""
    operator: str
    refusals: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """For each backend that keeps such operators whole, why not this one."""


def note(node: Node, refusals: Mapping[str, Sequence[Any]] | None = None) -> None:
    """Marks a node that is about to be decomposed. The outermost mark stays."""
    if DECOMPOSED_FROM not in node.meta:
        node.meta[DECOMPOSED_FROM] = Whole(node.name, op_name(node), refusals or {})


def forget(node: Node) -> None:
    """Takes the mark off a node that is rewritten rather than decomposed."""
    node.meta.pop(DECOMPOSED_FROM, None)


def whole_of(node: Node) -> Whole | None:
    found = node.meta.get(DECOMPOSED_FROM)
    return found if isinstance(found, Whole) else None
