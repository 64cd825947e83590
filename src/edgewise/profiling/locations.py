"""From instructions and parts to the user's modules and source lines, by the program's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgewise.inspect.layers import Layer, LayersByCommand, layers
from edgewise.profiling.runs import Part

if TYPE_CHECKING:
    from edgewise.inspect.record import MethodRecord, NodeRecord

_OFFSET = "offset"
"""What a simulator counts beside the time of a command: where it is in the stream."""


@dataclass(frozen=True)
class Location:
    """Where in the user's model something comes from; empty where it is not known."""

    nodes: tuple[str, ...] = ()
    """Of the record, in the order of execution."""
    modules: tuple[str, ...] = ()
    """Paths from the outermost module to the innermost."""
    type: str = ""
    """Class of the innermost module: `Conv2d`."""
    source: str = ""
    """`file.py:12`."""

    @property
    def module(self) -> str:
        """Path of the innermost module."""
        return self.modules[-1] if self.modules else ""


class Locations:
    """Locations of one method. Without a record all of them are empty."""

    def __init__(self, record: MethodRecord | None) -> None:
        self._record = record
        self._known: dict[tuple[str, ...], Location] = {}
        self._layers: dict[int, LayersByCommand[Layer]] | None = None

    def of_instruction(self, index: int) -> Location:
        """Of a whole instruction; a delegate's is what all its nodes have in common."""
        if self._record is None or index >= len(self._record.instructions):
            return Location()
        return self._of(self._record.instructions[index].nodes)

    def of_part(self, index: int, part: Part) -> Location:
        """Of a part of the delegate that instruction `index` calls."""
        if self._record is None or index >= len(self._record.instructions):
            return Location()
        delegate = self._record.instructions[index].delegate
        if delegate is None or delegate >= len(self._record.delegates):
            return Location()
        payload = self._record.delegates[delegate].payload
        layer = self.layer_of(index, part)
        if layer is not None:
            return self._of(() if layer.node is None else (layer.node.name,))
        names: dict[str, None] = {}
        for position in part.payload:
            if position < len(payload):
                names.update(dict.fromkeys(payload[position].nodes))
        return self._of(tuple(names))

    def layer_of(self, index: int, part: Part) -> Layer | None:
        """The layer of an NPU's compiler that a part of the delegate belongs to, by its command."""
        if self._record is None or _OFFSET not in part.counters:
            return None
        if index >= len(self._record.instructions):
            return None
        if self._layers is None:
            ends: dict[int, list[tuple[int, Layer]]] = {}
            for layer in layers(self._record):
                ends.setdefault(layer.delegate, []).extend((at, layer) for at in layer.commands)
            self._layers = {delegate: LayersByCommand(of) for delegate, of in ends.items()}
        known = self._layers.get(self._record.instructions[index].delegate or 0)
        return None if known is None else known.of(part.counters[_OFFSET])

    def _of(self, names: tuple[str, ...]) -> Location:
        assert self._record is not None
        if names not in self._known:
            by_name = self._record.by_name
            self._known[names] = _location([by_name[name] for name in names if name in by_name])
        return self._known[names]


def _location(nodes: list[NodeRecord]) -> Location:
    """One location for several nodes: the module that has all of them, or, of a few, the one that
    does most of the work (a convolution with its activation counts as the convolution)."""
    if not nodes:
        return Location()
    names = tuple(node.name for node in nodes)
    with_work = [node for node in nodes if node.macs > 0]
    main = with_work[0] if len(with_work) == 1 else None
    if main is None and len({node.modules for node in nodes}) == 1:
        main = nodes[0]
    if main is not None:
        modules = tuple(module.path for module in main.modules)
        kind = main.modules[-1].type.rpartition(".")[2] if main.modules else ""
        return Location(names, modules, kind, main.source)
    shared = _shared([[(m.path, m.type) for m in node.modules] for node in nodes])
    sources = {node.source for node in nodes}
    return Location(
        names,
        tuple(path for path, _ in shared),
        shared[-1][1].rpartition(".")[2] if shared else "",
        sources.pop() if len(sources) == 1 else "",
    )


def _shared(paths: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """The longest common beginning."""
    result = []
    for level in zip(*paths, strict=False):
        if len(set(level)) != 1:
            break
        result.append(level[0])
    return result
