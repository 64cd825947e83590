"""What is in a `.pte` or `.ptd` file, as plain dataclasses. `read_contents` fills them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from edgewise.inspect.delegate_graphs import DelegateGraph


@dataclass(frozen=True)
class ValueContents:
    """A value of a method: a tensor, a number, a list, None."""

    index: int
    kind: str
    """"Tensor", "Int", "Double", "Bool", "String", "Null", or a list of these."""
    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    dynamism: str = "static"
    dim_order: list[int] = field(default_factory=list)
    nbytes: int = 0
    place: str = ""
    """Of a tensor: "planned", "state", "constant", "data file", "argument" (given or found).
    State that starts as zeros looks like any other planned tensor in a file."""
    name: str = ""
    """The tensor's in the model, where the file says it."""
    value: Any = None
    """Of what is no tensor; lists of tensors and computed integers are indices of values."""

    def __str__(self) -> str:
        if self.kind != "Tensor":
            return f"{self.value}" if self.kind != "Null" else "None"
        sizes = "x".join(map(str, self.shape)) or "scalar"
        return f"{self.dtype} {'at most ' * (self.dynamism == 'bounded')}{sizes}"


@dataclass(frozen=True)
class Instruction:
    """A step. kind: "kernel", "delegate", "move", "jump if false" or "free"."""

    kind: str
    what: str
    """The operator, the delegate's number and backend, or where to jump."""
    arguments: list[int]
    """Indices of values; of a kernel also those that it writes."""


@dataclass(frozen=True)
class Placement:
    """A tensor in planned memory: bytes [offset, offset + nbytes) of an arena, in use from
    instruction `first` to `last`, both included."""

    value: int
    arena: int
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class DelegateContents:
    """A delegate. graph: its payload, read; None where `problem` says why it is not."""

    backend: str
    payload_bytes: int
    options: dict[str, str]
    graph: DelegateGraph | None
    problem: str = ""


@dataclass(frozen=True)
class MethodContents:
    """A method. arenas: bytes of each block of planned memory."""

    name: str
    inputs: list[ValueContents]
    outputs: list[ValueContents]
    values: list[ValueContents]
    instructions: list[Instruction]
    delegates: list[DelegateContents]
    arenas: list[int]
    plan: list[Placement]

    @property
    def kernels(self) -> dict[str, int]:
        """How often each operator of the runtime's own is called."""
        found: dict[str, int] = {}
        for step in self.instructions:
            if step.kind == "kernel":
                found[step.what] = found.get(step.what, 0) + 1
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))

    @property
    def constants(self) -> list[ValueContents]:
        """Tensors that the runtime's own kernels read from the file or a data file."""
        return [v for v in self.values if v.place in ("constant", "data file")]


@dataclass(frozen=True)
class Contents:
    """A file. sizes: its bytes by what they are for, together `nbytes`."""

    identifier: str
    nbytes: int
    sizes: dict[str, int]
    methods: list[MethodContents]
    named_data: dict[str, int]
    """Bytes of data that delegates share, by key; in a `.ptd` all of its data."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, all of it."""
        return asdict(self)
