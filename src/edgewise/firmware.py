"""A `.pte` file as part of a program without a file system: C arrays, and which kernels to link.

`link` is `edgewise link`: NAME.h and NAME.c (the program, for `Program::load_in_place`),
kernels.txt (for `-DEDGEWISE_KERNELS_LIST`, so that a build has those kernels and no others),
README.md. See docs/microcontrollers.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgewise.files import write_whole
from edgewise.inspect.contents import Contents
from edgewise.inspect.reading import read_contents
from edgewise.runtime import Runtime

_PER_LINE = 16
_C_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while
"""
ALIGNMENT, PADDING = 64, 128
"""Bytes; kBufferAlignment and kReadPadding of edgewise/tensor.h."""
MAX_DIMS = 8
"""kMaxDims of edgewise/tensor.h where there is no operating system."""


# ---- C


def checked_name(name: str | None, stem: str, where: str) -> str:
    """`name`, or one made of a file's stem; ValueError if it is no C identifier."""
    if name is None:
        made = re.sub(r"\W", "_", stem, flags=re.ASCII)
        if not made or made[0].isdigit() or made in _C_WORDS.split():
            made = f"model_{made}"
        return made
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _C_WORDS.split():
        raise ValueError(f"[{where}] the name must be a C identifier; got {name!r}; try 'model'")
    return name


def c_header(title: str, name: str, lines: list[str]) -> str:
    """A header for C and C++ that declares `lines`."""
    upper = name.upper()
    guard = [f"#ifndef {upper}_H_", f"#define {upper}_H_", "", "#include <stdint.h>", ""]
    begin = ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    end = ["", "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {upper}_H_ */", ""]
    return "\n".join([f"/* {title} */", *guard, *begin, *lines, *end])


def c_bytes(data: bytes) -> Iterator[str]:
    """The inside of an array's braces."""
    for start in range(0, len(data), _PER_LINE):
        yield "    " + " ".join(f"{byte}," for byte in data[start : start + _PER_LINE]) + "\n"


# ---- programs of kernels


@dataclass(frozen=True)
class LinkedProgram:
    """A program of kernels alone. name: the C identifier that all names begin with."""

    name: str
    data: bytes
    contents: Contents
    kernels: list[str]
    """Names of out-variants, sorted: "aten::add.out"."""

    @property
    def planned(self) -> int:
        """Bytes of planned memory, of the method that takes most."""
        return max(sum(method.arenas) for method in self.contents.methods)


def read_linked(path: str | Path, name: str | None = None) -> LinkedProgram:
    """Of a file. OSError, or ValueError if it is no program, or one that microcontrollers do not
    run: with delegates, tensors of more than MAX_DIMS dimensions, or data in another file.
    """
    path = Path(path)
    data = path.read_bytes()
    contents = read_contents(data)
    backends = sorted({d.backend for method in contents.methods for d in method.delegates})
    if backends:
        raise ValueError(
            f"[link] a microcontroller runs programs of kernels alone; got delegates of "
            f"{', '.join(backends)} in {path}; try compiling with backend='none', or edgewise "
            f"ethosu package for an Ethos-U"
        )
    for method in contents.methods:
        for value in method.values:
            where = f"value {value.index} of {method.name}"
            if len(value.shape) > MAX_DIMS:
                raise ValueError(
                    f"[link] tensors have at most {MAX_DIMS} dimensions there; got "
                    f"{len(value.shape)} in {where}; try reshaping it"
                )
            if value.place == "data file":
                raise ValueError(
                    f"[link] constants must be in the program; got another file's in {where}; try "
                    f"saving without external_constants"
                )
    kernels = sorted({step for method in contents.methods for step in method.kernels})
    missing = sorted({*kernels} - Runtime.get().operator_registry.operator_names)
    if missing:
        raise ValueError(
            f"[link] every operator needs a kernel of the runtime; got none for "
            f"{', '.join(missing)}; try another operator, or a kernel of your own "
            f"(docs/custom-operators.md)"
        )
    return LinkedProgram(checked_name(name, path.stem, "link"), data, contents, kernels)


def link(program: LinkedProgram, folder: str | Path) -> list[Path]:
    """Writes all files, or none of them. Makes the folder. Returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name, upper = program.name, program.name.upper()
    array = f"const uint8_t {name}_pte[{upper}_PTE_BYTES + {PADDING}u]"
    header = [
        f"#define {upper}_PTE_BYTES {len(program.data)}u",
        "/* Followed by bytes that kernels may read. */",
        f"extern {array};",
    ]
    source = f'#include "{name}.h"\n\n__attribute__((aligned({ALIGNMENT})))\n{array} = {{\n'
    files = {
        folder / f"{name}.h": c_header(f"{name}.pte. Written by edgewise link.", name, header),
        folder / f"{name}.c": "".join([source, *c_bytes(program.data), "};\n"]),
        folder / "kernels.txt": "\n".join([*program.kernels, ""]),
        folder / "README.md": _readme(program),
    }
    write_whole({path: [text.encode()] for path, text in files.items()})
    return list(files)


def _readme(program: LinkedProgram) -> str:
    name, upper = program.name, program.name.upper()
    lines = [
        f"# {name}",
        "",
        f"Compile `{name}.c`, build edgewise with `-DEDGEWISE_KERNELS_LIST=kernels.txt`, and load",
        f"the program where it lies: `Program::load_in_place({{{name}_pte, {upper}_PTE_BYTES}}, "
        f"{{}})`.",
        "",
        "| what | bytes |",
        "| --- | --- |",
        f"| program, read-only | {len(program.data):,} |",
        f"| planned memory of its largest method | {program.planned:,} |",
        "",
        "## Kernels",
        "",
        *(f"- `{kernel}`" for kernel in program.kernels),
    ]
    return "\n".join([*lines, ""])
