"""What partitioners and backends say to each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from edgewise.errors import EdgewiseError, PartitionError
from edgewise.inspect.record import EstimateRecord
from edgewise.releases import Target

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

TAG = "delegation_tag"
"""Key of `node.meta` under which a partitioner names the partition of a node."""


DELEGATE_INPUT = "delegate_input"
"""Key of a constant's `node.meta`: partitions read it as an input, and do not own it."""


DEBUG_HANDLE = "debug_handle"
"""Key of `node.meta`: the node's number in its program (`PreprocessResult.debug_handle_map`)."""


REFUSED = "delegation_refused"
"""Key of `node.meta`: what a backend had against the node while compiling (`PartitionRefused`)."""


@dataclass(frozen=True)
class CompileSpec:
    """An option for a backend: written to the program, and seen by its runtime."""

    key: str
    value: bytes


@dataclass(frozen=True)
class DelegationSpec:
    """Which backend compiles a partition, and with which options."""

    backend_id: str
    compile_specs: list[CompileSpec] = field(default_factory=list)

    def backend(self) -> type[BackendDetails]:
        """What compiles. PartitionError if no backend of that id was imported."""
        return BackendDetails.find(self.backend_id)


@dataclass(frozen=True)
class Refusal:
    """Why a node is not delegated: the rule that it breaks, what was found, what to do."""

    rule: str
    got: str = ""
    hint: str = ""

    def __str__(self) -> str:
        text = self.rule
        if self.got:
            text += f"; got {self.got}"
        if self.hint:
            text += f"; try {self.hint}"
        return text


class PartitionRefused(EdgewiseError):
    """Raised by `BackendDetails.preprocess`: the compiler behind it does not take the partition.

    Lowering goes on, and the nodes stay undelegated with the reason in the report. `reason` is
    against the partition. `nodes` (by name) says what is against some of its nodes: then the
    partitioner is asked again, to tag the others without those (see `refused_before`).
    """

    def __init__(self, reason: Refusal, nodes: Mapping[str, Refusal] | None = None) -> None:
        super().__init__(f"[partition] {reason}")
        self.reason = reason
        self.nodes: Mapping[str, Refusal] = dict(nodes or {})


def refused_before(node: torch.fx.Node) -> Sequence[Refusal]:
    """What the partitioner's backend had against the node when it compiled a partition with it.
    A partitioner does not tag such a node again; the report has the reasons without its help."""
    found: Sequence[Refusal] = node.meta.get(REFUSED, ())
    return found


@dataclass
class PartitionResult:
    """A program whose nodes carry `meta["delegation_tag"]`, and what each tag stands for.

    `refusals` says for nodes (by name) that are not tagged why not.
    """

    tagged_exported_program: ExportedProgram
    partition_tags: dict[str, DelegationSpec]
    refusals: Mapping[str, Sequence[Refusal]] = field(default_factory=dict)


class Partitioner(ABC):
    """Decides which nodes of an edge program go to which backend."""

    takes_untagged_constants: ClassVar[bool] = True
    """Whether a partition owns the constants that it reads. False: those alone that carry its tag;
    it is given the others as inputs."""

    upcasts_bfloat16: ClassVar[bool] = False
    """Whether programs for it are lowered with float32 in the place of bfloat16 (`edge.upcast`)."""

    @abstractmethod
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags nodes of `exported_program` (in place) with `meta["delegation_tag"]`."""

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """Operators that must reach `partition` whole, and a filter on their nodes.

        A node of such an operator is kept if the filter is None or answers True.
        """
        return [], None

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program to lower instead of this one, a copy of what was exported, before anything
        of it is decomposed. Several partitioners transform it in turn."""
        return exported_program

    def reasons_to_decompose(
        self, ep: ExportedProgram
    ) -> Callable[[torch.fx.Node], Sequence[Refusal]] | None:
        """Why a node of these operators is not kept, for the report; None: nothing to say."""
        return None

    def __call__(self, exported_program: ExportedProgram) -> PartitionResult:
        """The same as `partition`."""
        return self.partition(exported_program)


NamedBlobs = Mapping[str, "memoryview | bytes"]


@dataclass(frozen=True)
class Estimates:
    """What a backend's compiler expects of its program. Nothing of it was measured."""

    source: str
    """The compiler, with its version."""
    figures: Mapping[str, float]
    layers: Sequence[Mapping[str, str | int | float]] = ()
    """In the order in which they run; the compiler's names."""
    memory: Sequence[Mapping[str, str | int | float]] = ()
    """Blocks of the memory that it computes in: "memory", "address", "bytes", "name", "node",
    and "first" and "last", numbers of layers."""

    def to_record(self) -> EstimateRecord:
        """As the record of a program holds them."""
        return EstimateRecord(
            self.source,
            dict(self.figures),
            tuple(map(dict, self.layers)),
            tuple(map(dict, self.memory)),
        )


@dataclass(frozen=True)
class PreprocessResult:
    """What a backend made of a partition.

    `named_data` are blobs that the payload refers to by key (weights). A key names a
    content: the same key in two partitions is the same blob, written once. `data_files` says of
    keys in which file beside the program the blob lies (`.ptd`, by its name). `notes` are
    for the delegation report, of nodes by name; `estimates` are of the whole
    partition.

    `is_read_while_running`: the runtime reads the payload not only to make the delegate. It is
    written into the file's flatbuffer, which stays for as long as the program; a segment of
    its own may be freed once the delegate is made.

    `for_target`: makes it again for another runtime than every release of ExecuTorch; None if
    it would be the same.
    """

    processed_bytes: bytes
    named_data: NamedBlobs = field(default_factory=dict)
    debug_handle_map: Mapping[int, Sequence[int]] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    estimates: Estimates | None = None
    is_read_while_running: bool = False
    for_target: Callable[[Target], PreprocessResult] | None = None
    data_files: Mapping[str, str] = field(default_factory=dict)


class BackendDetails(ABC):
    """A backend's ahead-of-time half. The subclass's name, or `backend_id`, is its id."""

    backend_id: ClassVar[str] = ""
    _known: ClassVar[dict[str, type[BackendDetails]]] = {}

    def __init_subclass__(cls, registered: bool = True) -> None:
        if registered:
            BackendDetails._known[cls.backend_id or cls.__name__] = cls

    @staticmethod
    @abstractmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compiles a partition; its inputs and outputs are the delegate call's arguments.

        PartitionRefused if the compiler does not take it; any other error ends the lowering.
        """

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: Mapping[str, Sequence[ExportedProgram]],
        compile_specs: Mapping[str, Sequence[list[CompileSpec]]],
    ) -> Mapping[str, Sequence[PreprocessResult]]:
        """Compiles the partitions of all methods, by the methods' names, when all are known: for
        backends whose methods have something in common. One that does not override it is asked for
        each partition as it is cut out."""
        return {
            method: [
                cls.preprocess(program, specs)
                for program, specs in zip(programs, compile_specs[method], strict=True)
            ]
            for method, programs in edge_programs.items()
        }

    @staticmethod
    def find(backend_id: str) -> type[BackendDetails]:
        """The backend with that id. PartitionError if none was imported."""
        try:
            return BackendDetails._known[backend_id]
        except KeyError:
            known = ", ".join(sorted(BackendDetails._known)) or "none"
            raise PartitionError(
                f"[to_backend] a DelegationSpec must name an imported backend; got {backend_id!r}; "
                f"try one of: {known}, or import the module that defines it"
            ) from None
