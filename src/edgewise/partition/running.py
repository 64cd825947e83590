"""One partitioner's turn on a program, with its backend's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.node_errors import users_code
from edgewise.edge.program import Constants
from edgewise.errors import PartitionError
from edgewise.partition.delegate import lower_partitions
from edgewise.partition.report import ReportBuilder
from edgewise.partition.spec import (
    DELEGATE_INPUT,
    REFUSED,
    TAG,
    DelegationSpec,
    Partitioner,
    PartitionRefused,
    Refusal,
)


def run_partitioner(
    partitioner: Partitioner, program: ExportedProgram, builder: ReportBuilder, path: str
) -> None:
    """Cuts out, in place, what the partitioner tags. It is asked again for the other nodes of a
    partition of which its backend refuses some."""
    tags: set[str] = set()
    refused: dict[Node, list[Refusal]] = {}
    again = True
    while again:
        with whose_code(partitioner):
            result = partitioner.partition(program)
        if result.tagged_exported_program is not program:
            raise PartitionError(
                f"[{type(partitioner).__name__}] partition must return the program that it was "
                f"given, tagged; got another one"
            )
        takes_all = getattr(partitioner, "takes_untagged_constants", True)
        inputs = [] if takes_all else _untagged_constants(program, result.partition_tags)
        for node in inputs:
            node.meta[DELEGATE_INPUT] = True
        specs = _with_new_tags(program, result.partition_tags, tags)
        backend = next((spec.backend_id for spec in specs.values()), None)
        name = backend or backend_name(partitioner)
        reasons = {**result.refusals, **{node.name: given for node, given in refused.items()}}
        builder.asked(list(program.graph.nodes), specs, reasons, name, path)
        known = len(refused)

        def refuse(nodes: list[Node], refusal: PartitionRefused, name: str = name) -> None:
            builder.gave_back({node.name: [refusal.reason] for node in nodes}, name, path)
            blamed = {n: [refusal.nodes[n.name]] for n in nodes if n.name in refusal.nodes}
            # A partitioner that tags what was refused gets no further answer than that.
            if all(n in refused for n in blamed):
                blamed = {n: [refusal.reason] for n in nodes if n not in refused}
            refused.update(blamed)
            builder.gave_back({n.name: refused[n] for n in nodes if n in refused}, name, path)

        for tag, module in lower_partitions(program, specs, refuse).items():
            builder.noted(module.notes, path)
            if module.estimates is not None:
                builder.estimated(path + tag, module.estimates)
        for node in inputs:  # those of other partitioners may own them
            node.meta.pop(DELEGATE_INPUT)
        for node, given in refused.items():
            node.meta[REFUSED] = given
        again = len(refused) > known
    for node in program.graph.nodes:
        node.meta.pop(REFUSED, None)


def _untagged_constants(program: ExportedProgram, tags: Collection[str]) -> list[Node]:
    """Those that are not inputs of partitions anyway."""
    constants = Constants(program)
    return [
        node
        for node in program.graph.nodes
        if node in constants and node.meta.get(TAG) not in tags and DELEGATE_INPUT not in node.meta
    ]


def _with_new_tags(
    program: ExportedProgram, given: Mapping[str, DelegationSpec], used: set[str]
) -> dict[str, DelegationSpec]:
    """The tags, renamed on the nodes where they are in use. Adds them to `used`."""
    renamed: dict[str, str] = {}
    for tag in given:
        new, number = tag, 0
        while new in used:
            new, number = f"{tag}_{number}", number + 1
        renamed[tag] = new
        used.add(new)
    for node in program.graph.nodes:
        if node.meta.get(TAG) in renamed:
            node.meta[TAG] = renamed[node.meta[TAG]]
    return {renamed[tag]: spec for tag, spec in given.items()}


def whose_code(one: object) -> AbstractContextManager[None]:
    """What a partitioner of the user's own raises is no defect of edgewise."""
    return nullcontext() if is_ours(one) else users_code()


def is_ours(partitioner: object) -> bool:
    return type(partitioner).__module__.startswith("edgewise.")


def backend_name(partitioner: Partitioner) -> str:
    spec = getattr(partitioner, "delegation_spec", None)
    return getattr(spec, "backend_id", None) or type(partitioner).__name__
