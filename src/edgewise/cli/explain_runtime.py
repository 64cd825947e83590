"""`edgewise explain --runtime`: which kernels run a file's delegates here, and why not others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from edgewise.cli.errors import CliError
from edgewise.cli.files import open_method
from edgewise.cli.output import Output
from edgewise.cli.tables import table

if TYPE_CHECKING:
    from edgewise.runtime import DelegateOperation


def show_kernels(
    out: Output,
    file: str,
    method: str | None,
    threads: int | None,
    data: Sequence[Path] | None,
    find: str | None,
) -> None:
    """Loads the file, and runs nothing. With `find`: operations that have the text somewhere."""
    if Path(file).suffix != ".pte":
        raise CliError(f"[--runtime] SOURCE must be a .pte file; got {file}; try edgewise compile")
    loaded = open_method(Path(file), method, threads, data)
    delegates = loaded.delegate_operations()
    names = [one.backend for one in loaded.metadata.delegates]
    found = [
        [one for one in operations if find is None or find.lower() in _text_of(one).lower()]
        for operations in delegates
    ]
    if find is not None and not any(found):
        raise CliError(
            f"[--find] must be part of an operation, its sizes, kernel or a rule; got {find!r}"
        )

    def show(console: Console) -> None:
        if not delegates:
            console.print("no delegates: every operator is run by a portable kernel")
        for index, (name, operations) in enumerate(zip(names, delegates, strict=True)):
            console.print(f"delegate {index}, {name}", style="bold")
            if not operations:
                console.print("  this backend does not tell what it runs", style="dim")
            elif found[index]:
                console.print(table(["operation", "kernel", "not"], map(_row, found[index])))

    rows: list[dict[str, Any]] = [
        {"backend": name, "operations": [asdict(one) for one in operations]}
        for name, operations in zip(names, found, strict=True)
    ]
    out.result({"source": file, "method": loaded.metadata.name(), "delegates": rows}, show)


def _text_of(one: DelegateOperation) -> str:
    rules = " ".join(f"{kernel} {rule}" for kernel, rule in one.refused)
    return f"{one.operation} {one.sizes} {one.kernel} {rules}"


def _row(one: DelegateOperation) -> tuple[Text, Text, Text]:
    operation = Text(one.operation)
    operation.append(f"\n{one.sizes}" if one.sizes else "", "dim")
    style = "green" if one.kernel.startswith("edgewise ") else ""
    refused = Text("\n").join(
        Text.assemble(f"{kernel}: ", (f"asks for {rule}", "dim")) for kernel, rule in one.refused
    )
    return operation, Text(one.kernel, style), refused
