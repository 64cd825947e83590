"""Which nodes XNNPACK takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.xnnpack.backend import XnnpackBackend
from edgewise.backends.xnnpack.rows import all_rows, row_of
from edgewise.edge.graph import is_call, is_getitem, op_name
from edgewise.edge.program import Constants
from edgewise.partition.delegate import is_delegate_call
from edgewise.partition.grouping import group
from edgewise.partition.spec import TAG, DelegationSpec, Partitioner, PartitionResult, Refusal

logger = logging.getLogger(__name__)


class ConfigPrecisionType(Enum):
    """What a node computes in."""

    FP32 = auto()
    STATIC_QUANT = auto()
    DYNAMIC_QUANT = auto()


class XnnpackPartitioner(Partitioner):
    """Gives XNNPACK as much of a program as it can run, in as few partitions as possible.

    configs: names of rows of the operator table ("conv2d", "linear", ...) to delegate;
    None for all. config_precisions: one or several `ConfigPrecisionType`; None for all.
    per_op_mode: one partition for every operator. verbose: log what is refused and why.
    """

    def __init__(
        self,
        configs: Sequence[str] | None = None,
        config_precisions: ConfigPrecisionType | Sequence[ConfigPrecisionType] | None = None,
        per_op_mode: bool = False,
        verbose: bool = False,
    ) -> None:
        known = {row.name for row in all_rows()}
        unknown = sorted(set(configs or ()) - known)
        if unknown:
            raise ValueError(
                f"[XnnpackPartitioner] configs must be names of the operator table; "
                f"got {', '.join(unknown)}; try some of: {', '.join(sorted(known))}"
            )
        if config_precisions is None:
            config_precisions = list(ConfigPrecisionType)
        elif isinstance(config_precisions, ConfigPrecisionType):
            config_precisions = [config_precisions]
        for precision in config_precisions:
            if not isinstance(precision, ConfigPrecisionType):
                raise TypeError(
                    f"[XnnpackPartitioner] config_precisions must be of ConfigPrecisionType; "
                    f"got {precision!r}"
                )
        self.configs = None if configs is None else frozenset(configs)
        self.config_precisions = frozenset(config_precisions)
        self.per_op_mode = per_op_mode
        self.verbose = verbose
        self.delegation_spec = DelegationSpec(XnnpackBackend.backend_id, [])

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Composite operators with a row of their own, where the row accepts the node."""
        keep = [target for row in all_rows() if row.keep for target in row.targets]
        constants = Constants(ep)
        return keep, lambda node: not self.refusals(node, constants)

    def refusals(self, node: Node, constants: Constants) -> list[Refusal]:
        """Why XNNPACK does not take the node; empty if it does."""
        row = row_of(node)
        if row is None:
            return [Refusal("an operator of the XNNPACK table", op_name(node))]
        if self.configs is not None and row.name not in self.configs:
            return [Refusal("an operator that `configs` names", row.name)]
        if ConfigPrecisionType.FP32 not in self.config_precisions:
            return [Refusal("a precision of `config_precisions`", "FP32")]
        return row.refusals(node, constants)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags what the rows accept; says for everything else why not."""
        nodes = [n for n in exported_program.graph.nodes if is_call(n)]
        constants = Constants(exported_program)
        refused: dict[str, list[Refusal]] = {}
        supported: set[Node] = set()
        glued: dict[Node, Node] = {}
        for node in nodes:
            if is_delegate_call(node) or TAG in node.meta:
                continue
            if is_getitem(node):
                owner = node.args[0]
                assert isinstance(owner, Node)
                if owner in supported:
                    supported.add(node)
                    glued[node] = owner
                continue
            reasons = self.refusals(node, constants)
            if reasons:
                refused[node.name] = reasons
            else:
                supported.add(node)
        if self.per_op_mode:
            groups = [
                [n, *(g for g, owner in glued.items() if owner is n)]
                for n in nodes
                if n in supported and n not in glued
            ]
        else:
            groups = group(nodes, lambda n: n.all_input_nodes, supported.__contains__, glued)
        tags: dict[str, DelegationSpec] = {}
        for members in groups:
            if all(_moves_nothing(n) for n in members):
                for node in members:
                    refused[node.name] = [
                        Refusal("a partition must compute something", "shape operators only")
                    ]
                continue
            tag = f"xnnpack_{len(tags)}"
            tags[tag] = self.delegation_spec
            for node in members:
                node.meta[TAG] = tag
        if self.verbose:
            for name, reasons in refused.items():
                logger.warning("%s: %s", name, "; ".join(map(str, reasons)))
        return PartitionResult(exported_program, tags, refused)


_RENAMES = {
    torch.ops.aten.view_copy.default,
    torch.ops.aten.squeeze_copy.dims,
    torch.ops.aten.unsqueeze_copy.default,
    torch.ops.aten.clone.default,
    torch.ops.aten._to_copy.default,
}


def _moves_nothing(node: Node) -> bool:
    return node.target in _RENAMES or is_getitem(node)
