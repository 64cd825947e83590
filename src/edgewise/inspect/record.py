"""The record of a compiled program: what the file no longer tells, for tools to read.

A record says of one `.pte` file which nodes of the user's model each of its instructions
computes, with shapes, module, source line, backend or reasons against it, work and weights. It
is a file of its own beside the `.pte`, since it holds paths and names of the user's that a
shipped file has no use for:

    program.save("model.pte", record=True)      # model.pte, model.record.json.gz
    record = find_record("model.pte")           # None if there is none for these bytes

Reading and writing one takes neither torch nor numpy.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from edgewise.files import read_json, write_whole
from edgewise.inspect.plain_data import from_plain, to_plain

FORMAT = "edgewise-record"
VERSION = 1
"""Raised by one when a reader of the former version would misread the file."""

MOST_BYTES = 256 << 20
"""Of a record's text; one of a model with 100,000 nodes has a fifth of it."""

RUNTIME = "runtime"
"""The backend of what no backend took: the runtime's own kernels."""


@dataclass(frozen=True)
class TensorRecord:
    """A tensor's type. dtype: as in torch ("float32"). shape: numbers; symbols as text."""

    dtype: str
    shape: tuple[int | str, ...]
    bytes: int
    """Of the elements; where the shape is dynamic, of the export's example."""


@dataclass(frozen=True)
class WeightRecord:
    """A constant that a node reads."""

    name: str
    """Qualified, as in the module: `features.0.0.weight`."""
    tensor: TensorRecord


@dataclass(frozen=True)
class ModuleRecord:
    """A step from the model to the module that a node comes from."""

    path: str
    """Qualified name: `features.0`."""
    type: str
    """Class: `torch.nn.modules.conv.Conv2d`."""


@dataclass(frozen=True)
class RefusalRecord:
    """What a backend has against a node: the rule, what it found, what to change (or "")."""

    backend: str
    rule: str
    got: str = ""
    hint: str = ""
    follows: bool = False
    """Whether it is a consequence of what is beside the node, which has the cause."""

    def __str__(self) -> str:
        got = f"; got {self.got}" if self.got else ""
        hint = f"; try {self.hint}" if self.hint else ""
        return f"{self.backend}: {self.rule}{got}{hint}"


@dataclass(frozen=True)
class NodeRecord:
    """One node of the compiled method; those inside of delegates too."""

    name: str
    """Unique in the method; in a branch or loop after its path: "true_graph_0/add"."""
    kind: str
    """"input", "state" (a buffer that the method writes), "call" or "output"."""
    operator: str = ""
    """As in torch (`aten.add.Tensor`); of a file without a record the kernel's or payload's."""
    inputs: tuple[TensorRecord, ...] = ()
    """Types of the tensors that it computes from, without weights, in order."""
    outputs: tuple[TensorRecord, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are no tensors, as text: `stride` -> "[2, 2]"."""
    modules: tuple[ModuleRecord, ...] = ()
    """From the outermost; the last one's `forward` calls the operator."""
    source: str = ""
    """`file.py:12` of the user's model."""
    backend: str = RUNTIME
    delegate: int | None = None
    """Index into the method's delegates."""
    refusals: tuple[RefusalRecord, ...] = ()
    """Why no backend took it; empty for a delegated node and where none was asked."""
    decomposed_from: str = ""
    """Operator of the user's that this is a piece of."""
    splits: bool = False
    """Whether it stands between two delegates."""
    notes: tuple[str, ...] = ()
    folded_into: str = ""
    """Inside a delegate: the node whose operation also computes this one."""
    macs: int = 0
    bytes: int = 0
    """Of the tensors that it reads and writes."""
    weights: tuple[WeightRecord, ...] = ()

    @property
    def module(self) -> str:
        """Qualified name of the innermost module."""
        return self.modules[-1].path if self.modules else ""


@dataclass(frozen=True)
class EdgeRecord:
    """Output number `output` of node `source` is input number `input` of node `target`."""

    source: str
    output: int
    target: str
    input: int


@dataclass(frozen=True)
class InstructionRecord:
    """An instruction of the method's, in the file's order."""

    kind: str
    """"kernel", "delegate", "move", "jump" or "free"."""
    operator: str = ""
    """A kernel's name with overload, as in the file: `aten::add.out`."""
    delegate: int | None = None
    nodes: tuple[str, ...] = ()
    """What it computes; of a delegate the nodes inside."""


@dataclass(frozen=True)
class PayloadNodeRecord:
    """An operation inside a delegate's payload, in the payload's order."""

    kind: str
    """The backend's name for it: `Conv2d`."""
    nodes: tuple[str, ...] = ()
    """Nodes of the method that it computes."""
    handle: int = -1
    """The payload's debug handle, by which the backend's own profile names it."""


@dataclass(frozen=True)
class EstimateRecord:
    """What a backend's compiler expects. Nothing of it was measured."""

    source: str
    figures: Mapping[str, float]
    layers: tuple[Mapping[str, str | int | float], ...] = ()
    """In the order in which they run; see `edgewise.inspect.layers`."""
    memory: tuple[Mapping[str, str | int | float], ...] = ()
    """Blocks of the memory that it computes in: "memory", "address", "bytes", "name", "node",
    and "first" and "last", numbers of layers."""


@dataclass(frozen=True)
class DelegateRecord:
    """A part of the method that a backend compiled."""

    backend: str
    partition: str
    """The partition's tag in the delegation report."""
    payload_bytes: int
    """Without the weights, which are named data where the backend shares them."""
    weight_bytes: int
    payload: tuple[PayloadNodeRecord, ...] = ()
    """Empty if the payload cannot be opened."""
    estimates: EstimateRecord | None = None


@dataclass(frozen=True)
class BlockRecord:
    """A block of an arena, taken from instruction `first` to `last`, both included."""

    nodes: tuple[str, ...]
    """Whose results lie there; several where branches or copies share it."""
    arena: int
    """The file's memory_id: 1 is the method's own, 2 what methods share."""
    offset: int
    size: int
    first: int
    """-1: before the method starts (inputs, state)."""
    last: int


@dataclass(frozen=True)
class MethodRecord:
    """One method of the program."""

    name: str
    nodes: tuple[NodeRecord, ...] = ()
    """In the order of execution."""
    edges: tuple[EdgeRecord, ...] = ()
    instructions: tuple[InstructionRecord, ...] = ()
    delegates: tuple[DelegateRecord, ...] = ()
    memory: tuple[BlockRecord, ...] = ()
    arenas: Mapping[str, int] = field(default_factory=dict)
    """Bytes by memory_id."""

    @cached_property
    def by_name(self) -> Mapping[str, NodeRecord]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}


@dataclass(frozen=True)
class ProgramRecord:
    """All methods of one file."""

    sha256: str
    """Of the `.pte` file's bytes."""
    bytes: int
    """Of the `.pte` file."""
    methods: tuple[MethodRecord, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of edgewise and torch, as they were at the lowering."""
    quantization: Mapping[str, str] = field(default_factory=dict)
    """Options of `edgewise.compile` that quantized the program, each as JSON."""
    tried: tuple[str, ...] = ()
    """Lines of the table of what `quantize="auto"` tried."""
    complete: bool = True
    """False if this was read from the `.pte` alone: no modules, lines or reasons then."""

    def method(self, name: str = "forward") -> MethodRecord:
        """KeyError if there is none of that name."""
        for method in self.methods:
            if method.name == name:
                return method
        known = ", ".join(m.name for m in self.methods) or "none"
        raise KeyError(f"[record] a method must be one of {known}; got {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the format's name and version."""
        return {"format": FORMAT, "version": VERSION, **to_plain(self)}

    def save(self, path: str | Path) -> Path:
        """Writes JSON, compressed if the name ends in `.gz`; the same bytes for the same record."""
        target = Path(path)
        write_whole({target: [contents(self, compressed=target.suffix == ".gz")]})
        return target


def contents(record: ProgramRecord, compressed: bool) -> bytes:
    """The file's bytes: JSON, or gzip of it."""
    text = json.dumps(record.to_dict(), separators=(",", ":")).encode()
    return gzip.compress(text, mtime=0) if compressed else text


def load_record(path: str | Path) -> ProgramRecord:
    """What `save` wrote. ValueError if it is something else; OSError if it cannot be read."""
    data = Path(path).read_bytes()
    try:
        found = read_json(_text(data))
    except (OSError, EOFError, ValueError, zlib.error) as cause:
        raise ValueError(
            f"[record] {path} must be JSON, or gzip of it; got {cause}; "
            f"try the file that program.save('model.pte', record=True) writes beside model.pte"
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(
            f"[record] {path} must have the format {FORMAT!r}; "
            f"try the file that program.save('model.pte', record=True) writes"
        )
    if found.get("version") != VERSION:
        raise ValueError(
            f"[record] {path} must have version {VERSION}; got {found.get('version')}; "
            f"try to compile the program again, or another version of edgewise"
        )
    return from_plain(ProgramRecord, found, "[record]")


def _text(data: bytes) -> bytes:
    """The JSON. ValueError if it is larger than records are: little gzip holds any amount."""
    if data[:2] == b"\x1f\x8b":
        with gzip.open(io.BytesIO(data)) as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB of text")
    return data


def record_path(pte: str | Path) -> Path:
    """Where the record of a file lies: `model.record.json.gz` beside `model.pte`."""
    return Path(pte).with_suffix(".record.json.gz")


def find_record(pte: str | Path) -> ProgramRecord | None:
    """The record beside a `.pte` file; None if there is none, or none for these bytes.

    ValueError if there is a file of that name that is no record.
    """
    path = record_path(pte)
    if not path.exists():
        return None
    record = load_record(path)
    with Path(pte).open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return record if digest.hexdigest() == record.sha256 else None
