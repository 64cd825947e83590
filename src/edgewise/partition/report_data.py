"""What a delegation report holds: nodes, refusals, what was left in floating point."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgewise.files import write_text
from edgewise.partition.spec import Estimates, Refusal

KERNEL = "runtime"
"""The name for what no backend took: the runtime's own kernels."""


@dataclass(frozen=True)
class RefusalReport:
    """What a backend has against a node: the rule, what it found, what to change (or "")."""

    backend: str
    rule: str
    got: str
    hint: str

    def __str__(self) -> str:
        return str(Refusal(self.rule, self.got, self.hint))


@dataclass(frozen=True)
class WholeReport:
    """The operator that a node is a piece of, and why that was not kept whole."""

    name: str
    operator: str
    refusals: list[RefusalReport]


@dataclass(frozen=True)
class NodeReport:
    """One node of the edge program, before partitions were cut out."""

    name: str
    """The node's; in a branch or loop after its path: "true_graph_0/add"."""
    operator: str
    shapes: list[list[int]]
    backend: str
    """The backend's id, or "runtime"."""
    partition: str
    """The partition's tag; empty for the runtime's kernels."""
    refusals: list[RefusalReport]
    """Why not elsewhere; empty for a delegated node, and where no backend was asked."""
    decomposed_from: WholeReport | None
    splits: bool
    """Whether it reads from one delegate and feeds another, directly or not."""
    module: str
    source: str
    macs: int
    bytes: int
    notes: list[str] = field(default_factory=list)
    """What keeps other runtimes from running it; empty if nothing does."""
    inputs: list[str] = field(default_factory=list)
    """Names of the nodes that compute its operands, without inputs and constants of the method."""
    types: list[str] = field(default_factory=list)
    """Data types of what it computes, one for each of `shapes`: "float32"."""

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The refusals as text, by backend."""
        found: dict[str, list[str]] = {}
        for refusal in self.refusals:
            found.setdefault(refusal.backend, []).append(str(refusal))
        return found


@dataclass(frozen=True)
class Unquantized:
    """An operator of the model that a quantization scheme leaves in floating point."""

    name: str
    """The node's, in the program that was quantized."""
    operator: str
    reason: str
    has_weights: bool
    """Whether it is a layer with weights, such as a linear layer or a convolution."""
    module: str
    source: str


@dataclass
class ReportData:
    """Every node of a method: its backend or the reasons against it, its source, its work."""

    method: str
    nodes: list[NodeReport] = field(default_factory=list)
    estimates: dict[str, Estimates] = field(default_factory=dict)
    """What compilers of NPU programs expect of them, by partition. Nothing was measured."""
    scheme: str = ""
    """What `edgewise.compile` was asked to quantize to; empty if it was not."""
    unquantized: list[Unquantized] = field(default_factory=list)
    """What the scheme leaves in floating point."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Options of `edgewise.compile` that quantize so again; empty if nothing was quantized."""
    choice: dict[str, Any] | None = None
    """What `quantize="auto"` tried and took (`edgewise.tuning.Choice`); None without it."""
    tried: list[str] = field(default_factory=list)
    """The same as a table."""
    missing_kernels: dict[str, str] = field(default_factory=dict)
    """By node's name, kernels that the program calls and that were not there when it was made."""
    runs_on: str = ""
    """In words, which releases of ExecuTorch run the program; empty before it is written."""
    uses: list[str] = field(default_factory=list)
    """What not every release has, with the first that has it."""
    cost_of_target: str = ""
    """What it took to run on the releases that were asked for."""
    upcast: bool = False
    """Whether bfloat16 is computed in float32."""
    others: tuple[ReportData, ...] = ()
    """Of the program's other methods, which are printed, too, where no method was asked for."""

    @property
    def delegates(self) -> list[str]:
        """Tags of the partitions, in order of appearance."""
        return list(dict.fromkeys(n.partition for n in self.nodes if n.partition))

    @property
    def refused(self) -> list[NodeReport]:
        return [n for n in self.nodes if not n.partition]

    def share(self, quantity: str = "nodes") -> float:
        """Delegated part of "nodes", "macs" or "bytes", from 0 to 1; 1 if there is none."""

        def amount(nodes: Iterable[NodeReport]) -> int:
            return sum(1 if quantity == "nodes" else getattr(n, quantity) for n in nodes)

        total = amount(self.nodes)
        return amount(n for n in self.nodes if n.partition) / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "delegates": len(self.delegates),
            "share": {q: self.share(q) for q in ("nodes", "macs", "bytes")},
            "estimates": {tag: asdict(found) for tag, found in self.estimates.items()},
            "scheme": self.scheme,
            "unquantized": [asdict(found) for found in self.unquantized],
            "settings": dict(self.settings),
            "choice": self.choice,
            "missing_kernels": dict(self.missing_kernels),
            "runs_on": self.runs_on,
            "uses": list(self.uses),
            "cost_of_target": self.cost_of_target,
            "upcast": self.upcast,
            "nodes": [asdict(n) for n in self.nodes],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The whole report; also written to `path` if given."""
        text = json.dumps(self.to_dict(), indent=1)
        if path is not None:
            write_text(path, text)
        return text
