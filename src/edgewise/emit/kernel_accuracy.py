"""What native/kernels/accuracy.txt declares: the types that each kernel of the runtime takes and
how exact it is. For documentation and tests; the file is in the sources only."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).resolve().parents[3] / "native" / "kernels" / "accuracy.txt"


@dataclass(frozen=True)
class Bound:
    """How far an element may be from the exact result, rounded to its type.

    count: of units in the last place; with `terms`, of epsilons of the type in which it is
    computed (float32 for halves), times the sum of the terms' magnitudes, and one unit more.
    0: the same.
    """

    count: float = 0
    terms: bool = False

    def __str__(self) -> str:
        if not self.count:
            return "exact"
        return f"{self.count:g} {'eps' if self.terms else 'ulp'}"


@dataclass(frozen=True)
class Accuracy:
    """A row: types by the names of set or type, as written and one by one; bounds of float32,
    float64, and of float16 and bfloat16."""

    listed: str
    types: frozenset[str]
    single: Bound
    double: Bound
    half: Bound

    @property
    def exact(self) -> bool:
        return not (self.single.count or self.double.count or self.half.count)

    def of(self, type_: str) -> Bound:
        """The bound of a type by the file's name: `f32`, `i8`, ..."""
        return {"f32": self.single, "f64": self.double, "f16": self.half, "bf16": self.half}.get(
            type_, Bound()
        )


def _bound(text: str) -> Bound:
    if text == "exact":
        return Bound()
    count, kind = text.split()
    if kind not in ("ulp", "eps"):
        raise ValueError(f'[{PATH.name}] a bound is "exact", "n ulp" or "n eps"; got {text!r}')
    return Bound(float(count), kind == "eps")


@functools.cache
def _read() -> tuple[dict[str, Accuracy], dict[str, list[str]]]:
    rows: dict[str, Accuracy] = {}
    named: dict[str, list[str]] = {}
    for line in PATH.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if "=" in line:
            name, _, members = line.partition("=")
            named[name.strip()] = [t for m in members.split() for t in named.get(m, [m])]
            continue
        listed, single, double, half, names = (part.strip() for part in line.split("|"))
        types = frozenset(t for m in listed.split() for t in named.get(m, [m]))
        row = Accuracy(listed, types, _bound(single), _bound(double), _bound(half))
        rows.update(dict.fromkeys(names.split(), row))
    return rows, named


def sets() -> dict[str, list[str]]:
    """The named sets of types, with their members."""
    return _read()[1]


def accuracy(kernel: str) -> Accuracy | None:
    """The row of a kernel as registered, `aten::exp.out`."""
    rows, _ = _read()
    return rows.get(kernel) or rows.get(kernel.partition(".")[0])


def rows_of_operator(name: str) -> list[Accuracy]:
    """The rows of all kernels of an operator, `aten::exp`."""
    rows, _ = _read()
    return [row for kernel, row in rows.items() if kernel.partition(".")[0] == name]
