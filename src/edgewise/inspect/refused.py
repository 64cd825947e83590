"""What no backend took, by cause: the operators that are refused by the same rules together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgewise.inspect.record import MethodRecord, NodeRecord, RefusalRecord


@dataclass
class Cause:
    """Nodes that are refused by the same rules."""

    refusals: tuple[RefusalRecord, ...]
    """Of the first node; of others "got" and "hint" may differ."""
    nodes: list[NodeRecord] = field(default_factory=list)

    @property
    def splits(self) -> bool:
        """Whether one of them stands between two delegates."""
        return any(node.splits for node in self.nodes)

    @property
    def follows(self) -> bool:
        """Whether the nodes are outside only because of what is beside them."""
        return bool(self.refusals) and all(r.follows for r in self.refusals)

    @property
    def bytes(self) -> int:
        """That the nodes read and write."""
        return sum(node.bytes for node in self.nodes)

    @property
    def operators(self) -> Mapping[str, int]:
        """How many of each, as the user wrote them: the pieces of one layer norm are one."""
        pieces: dict[str, list[NodeRecord]] = {}
        for node in self.nodes:
            pieces.setdefault(node.decomposed_from.split(" ")[0] or node.operator, []).append(node)
        counts = Counter[str]()
        for name, nodes in pieces.items():
            kinds = Counter(node.operator for node in nodes)
            if len(kinds) == 1:  # one kind of piece, or the operator itself
                counts.update(kinds)
            else:
                counts[name] += len({(node.module, node.source) for node in nodes})
        return counts

    @property
    def locations(self) -> list[tuple[str, str]]:
        """[module, source line], each once."""
        found = dict.fromkeys((node.module, node.source) for node in self.nodes)
        return [one for one in found if any(one)]

    @property
    def hints(self) -> list[str]:
        """What to change, each once."""
        return list(dict.fromkeys(r.hint for node in self.nodes for r in node.refusals if r.hint))

    def got(self, index: int) -> list[str]:
        """What a rule found that names no operator of the cause, each once."""
        found = dict.fromkeys(node.refusals[index].got for node in self.nodes)
        return [text for text in found if text and text not in self.operators]


def causes(method: MethodRecord) -> list[Cause]:
    """What stands between two delegates first, then what moves most; consequences last.

    Arithmetic on sizes, which the runtime does itself, is left out.
    """
    found: dict[tuple[object, ...], Cause] = {}
    for node in method.nodes:
        if node.kind != "call" or node.delegate is not None or not (node.refusals or node.outputs):
            continue
        rules = [(r.backend, r.rule) for r in node.refusals] or [("", node.operator)]
        found.setdefault(tuple(rules), Cause(node.refusals)).nodes.append(node)
    return sorted(found.values(), key=lambda c: (c.follows, not c.splits, -c.bytes))
