"""`edgewise diff`: what differs between two files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import table

if TYPE_CHECKING:
    from edgewise.inspect.contents import Contents, MethodContents

Facts = dict[str, int | str]


def command(
    first: Annotated[Path, typer.Argument(metavar="A.pte")],
    second: Annotated[Path, typer.Argument(metavar="B.pte")],
    same: Annotated[
        bool, typer.Option("--all", "-a", help="Also what is the same in both.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 4 if the files differ.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What differs between two files: sizes, methods, delegates and their operators, kernels,
    memory, weights.

    Files of ExecuTorch, too. Weights are compared by what they hold, whatever they are called.
    """
    from edgewise.inspect.reading import read_contents

    out = Output(json=json, quiet=quiet)
    one, other = _facts(read_contents(first)), _facts(read_contents(second))
    weights = _weights(first), _weights(second)
    identical = first.read_bytes() == second.read_bytes()
    rows = [
        (what, one.get(what), other.get(what))
        for what in _merged(one, other)
        if same or one.get(what) != other.get(what)
    ]
    told = {
        "files": [str(first), str(second)],
        "identical": identical,
        "differences": [{"what": w, "a": a, "b": b} for w, a, b in rows if a != b],
        "shared_weights": {
            "same": (weights[0] & weights[1]).total(),
            "only_a": (weights[0] - weights[1]).total(),
            "only_b": (weights[1] - weights[0]).total(),
        },
    }
    out.result(told, lambda console: _show(console, first, second, rows, told))
    if exit_code and not identical:
        out.fail(f"[--exit-code] {first} and {second} must be the same; got different bytes")


def _weights(file: Path) -> Counter[str]:
    """Hashes of the data that delegates share."""
    from edgewise.format.data_file import read_named
    from edgewise.format.file import read

    data = memoryview(file.read_bytes())
    if bytes(data[4:6]) == b"FT":
        blobs = list(read_named(data).values())
    else:
        held = read(data)
        blobs = [held.segments[n.segment_index] for n in held.program.named_data or []]
    return Counter(sha256(blob).hexdigest() for blob in blobs)


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What either has, each file's in its order, what belongs together side by side."""
    names = list(one)
    for index, name in enumerate(other):
        if name not in one:
            before = list(other)[:index]
            after = next((n for n in reversed(before) if n in names), None)
            names.insert(names.index(after) + 1 if after else 0, name)
    return names


def _facts(contents: Contents) -> Facts:
    facts: Facts = {"bytes": contents.nbytes}
    for name, count in contents.sizes.items():
        facts[f"bytes for {name}"] = count
    if not contents.methods:
        facts |= {f"data {key}": size for key, size in contents.named_data.items()}
    for method in contents.methods:
        facts |= _of_method(method, f"{method.name}: " if len(contents.methods) > 1 else "")
    return facts


def _of_method(method: MethodContents, name: str) -> Facts:
    facts: Facts = {}
    for role, values in (("input", method.inputs), ("output", method.outputs)):
        for index, value in enumerate(values):
            facts[f"{name}{role} {index}"] = str(value)
    facts[f"{name}steps"] = len(method.instructions)
    facts[f"{name}bytes of planned memory"] = sum(method.arenas)
    for backend, count in Counter(d.backend for d in method.delegates).items():
        facts[f"{name}delegates, {backend}"] = count
    inside: Counter[str] = Counter()
    constants: Counter[str] = Counter()
    for delegate in method.delegates:
        if delegate.graph is not None:
            inside.update(f"{delegate.backend} {node.kind}" for node in delegate.graph.nodes)
            constants.update(t.dtype for t in delegate.graph.tensors if t.role == "constant")
    for kind, count in sorted(inside.items()):
        facts[f"{name}{kind}"] = count
    for dtype, count in sorted(constants.items()):
        facts[f"{name}constants in {dtype}"] = count
    for kernel, count in method.kernels.items():
        facts[f"{name}kernel {kernel}"] = count
    return facts


def _show(
    console: Console,
    first: Path,
    second: Path,
    rows: list[tuple[str, Any, Any]],
    told: dict[str, Any],
) -> None:
    if told["identical"]:
        console.print("the files are the same, byte by byte")
    elif not told["differences"]:
        console.print("nothing that is shown here differs; the bytes do")
    cells = []
    for what, one, other in rows:
        change = Text("")
        if isinstance(one, int) and isinstance(other, int) and one and one != other:
            change = Text(f"{other - one:+,} ({100 * (other - one) / one:+.1f} %)")
        elif one is None or other is None:
            change = Text("only in B", "green") if one is None else Text("only in A", "red")
        cells.append((what, one, other, change))
    if cells:
        console.print(table(["", f">{first.name}", f">{second.name}", ">change"], cells))
    weights = told["shared_weights"]
    if any(weights.values()):
        console.print(
            f"weights of delegates: {weights['same']} the same in both, "
            f"{weights['only_a']} only in A, {weights['only_b']} only in B"
        )
