"""What edge programs were lowered from: to lower them again once a partitioner is known.

`to_edge` decomposes everything, for nobody has said yet what to keep. While its programs are as
it made them, `to_backend` can do what `to_edge_transform_and_lower` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule

from edgewise.edge.snapshot import Snapshot
from edgewise.partition.spec import Partitioner

ByMethod = Mapping[str, Sequence[Partitioner]]


@dataclass(frozen=True, eq=False)
class LoweredFrom:
    """Exported programs, the partitioners asked since, and both sides as they were then."""

    programs: Mapping[str, ExportedProgram]
    asked: ByMethod
    before: Mapping[str, Snapshot]
    after: Mapping[str, Snapshot]

    @classmethod
    def of(
        cls,
        programs: Mapping[str, ExportedProgram],
        asked: ByMethod,
        made: Mapping[str, ExportedProgram],
    ) -> LoweredFrom:
        """Remembers both sides as they are now."""
        return cls(programs, asked, _snapshots(programs), _snapshots(made))

    def explains(self, made: Mapping[str, ExportedProgram]) -> bool:
        """Whether lowering again gives `made`: neither they nor the exported ones were changed."""
        return self._hold(self.before, self.programs) and self._hold(self.after, made)

    def and_then(self, asked: ByMethod) -> dict[str, list[Partitioner]]:
        """The partitioners of each method, these after those that were asked before."""
        return {
            name: [*self.asked.get(name, ()), *asked.get(name, ())]
            for name in self.programs
            if name in asked or name in self.asked
        }

    def is_worth_it(self, asked: ByMethod) -> bool:
        """Whether a partitioner may find more in programs that are lowered again.

        Backends that have compiled partitions already would do so once more.
        """
        if not any(self.asked.values()):
            return True
        return any(
            {*one.ops_to_not_decompose(self.programs[name])[0]} & set(_targets(self.programs[name]))
            for name, several in asked.items()
            for one in several
        )

    @staticmethod
    def _hold(known: Mapping[str, Snapshot], now: Mapping[str, ExportedProgram]) -> bool:
        return known.keys() == now.keys() and all(known[name].holds(now[name]) for name in known)


def _snapshots(programs: Mapping[str, ExportedProgram]) -> dict[str, Snapshot]:
    return {name: Snapshot.of(program) for name, program in programs.items()}


def _targets(program: ExportedProgram) -> Iterator[Any]:
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            yield from (node.target for node in module.graph.nodes if node.op == "call_function")
