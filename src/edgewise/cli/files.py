"""Programs that commands are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgewise.cli.errors import CliError

if TYPE_CHECKING:
    from edgewise.inspect.contents import Contents, MethodContents
    from edgewise.runtime import Method, Program


def chosen_methods(contents: Contents, wanted: str | None) -> list[MethodContents]:
    """The method of that name, or all."""
    if wanted is None:
        return contents.methods
    found = [method for method in contents.methods if method.name == wanted]
    if not found:
        names = ", ".join(method.name for method in contents.methods) or "none"
        raise CliError(f"[--method] must be one of the file's: {names}; got {wanted!r}")
    return found


def open_program(
    file: Path,
    threads: int | None,
    data: Sequence[Path] | None,
    max_memory: int | None = None,
) -> Program:
    """The program, loaded. Raises as `Runtime.load_program`."""
    from edgewise.runtime import Runtime

    if ".py:" in str(file) or file.suffix in (".py", ".pt2"):
        raise CliError(
            f"[FILE] must be a .pte file; got {file}; try edgewise compile {file} -o model.pte, "
            f"then model.pte"
        )
    return Runtime.get().load_program(
        file, threads=threads, data_path=list(data or []), max_memory=max_memory
    )


def open_method(
    file: Path,
    wanted: str | None,
    threads: int | None,
    data: Sequence[Path] | None,
    max_memory: int | None = None,
) -> Method:
    """A program's method, ready to run; the only one, or "forward", if none is named."""
    program = open_program(file, threads, data, max_memory)
    return program.load_method(method_name(program.method_names, wanted))


def method_name(names: set[str], wanted: str | None) -> str:
    """CliError if there is no such method, or none is named and several are there."""
    if wanted is None and len(names) == 1:
        return next(iter(names))
    if (wanted or "forward") not in names:
        told = ", ".join(sorted(names)) or "none"
        raise CliError(f"[--method] must be one of the file's: {told}; got {wanted or 'none'}")
    return wanted or "forward"
