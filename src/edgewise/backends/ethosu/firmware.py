"""What firmware needs of a `.pte` file: its bytes as a C array, sizes of memory, operators.

Files: NAME.h, NAME.c (the program, aligned to 16 bytes, in a section of its own), NAME_memory.c
(planned memory and the NPU's scratch memory, aligned to 16 bytes, in another section; leave it out
if the firmware has pools of its own), NAME.ld (both sections for a linker script), operators.txt
(for ExecuTorch's EXECUTORCH_SELECT_OPS_LIST), README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.backends.ethosu.disassemble import STREAM, programs
from edgewise.backends.ethosu.payload import NpuProgram
from edgewise.files import write_whole
from edgewise.firmware import c_bytes, c_header, checked_name
from edgewise.inspect.contents import Contents
from edgewise.inspect.reading import read_contents
from edgewise.inspect.record import EstimateRecord, ProgramRecord, find_record

ALIGNMENT = 16
"""Bytes; Ethos-U reads its command stream and weights at multiples of it."""


@dataclass(frozen=True)
class Firmware:
    """A program and what it needs. Sizes are bytes."""

    name: str
    """The C identifier that all names begin with."""
    data: bytes
    contents: Contents
    delegates: list[NpuProgram]
    record: ProgramRecord | None = None
    operators: list[str] = field(default_factory=list)
    """Of the runtime's own kernels, such as "quantized_decomposed::quantize_per_tensor.out"."""

    @property
    def arenas(self) -> dict[int, int]:
        """Planned memory by the number of the buffer: of each the most that a method takes."""
        found: dict[int, int] = {}
        for method in self.contents.methods:
            for index, nbytes in enumerate(method.arenas):
                if nbytes:
                    found[index] = max(found.get(index, 0), nbytes)
        return found

    @property
    def scratch(self) -> int:
        """What the NPU works in: delegates run one after another, so the largest one's."""
        return max((one.scratch_size for one in self.delegates), default=0)


def read_firmware(path: str | Path, name: str | None = None) -> Firmware:
    """Of a file. name: of the C arrays; None: made from the file's.

    OSError, or ValueError if it is no program, has no Ethos-U delegate, or the name is none of C's.
    """
    path = Path(path)
    data = path.read_bytes()
    contents = read_contents(data)
    delegates = list(programs(data))
    if not delegates:
        raise ValueError(
            f"[package] {path} must have an Ethos-U delegate; got none; try compiling it with "
            f"backend='ethos-u55-128' and quantize='int8'"
        )
    if data.find(STREAM) % ALIGNMENT:
        raise ValueError(
            f"[package] NPU programs must lie at multiples of {ALIGNMENT} bytes; got "
            f"{data.find(STREAM)} in {path}; try to_executorch() without "
            f"extract_delegate_segments=False"
        )
    found = {step for method in contents.methods for step in method.kernels}
    chosen = checked_name(name, path.stem, "package")
    return Firmware(chosen, data, contents, delegates, find_record(path), sorted(found))


def write_firmware(firmware: Firmware, folder: str | Path) -> list[Path]:
    """Writes all files, or none of them. Makes the folder. Returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = firmware.name
    files: Mapping[Path, list[bytes]] = {
        folder / f"{name}.h": [_header(firmware).encode()],
        folder / f"{name}.c": [part.encode() for part in _source(firmware)],
        folder / f"{name}_memory.c": [_memory(firmware).encode()],
        folder / f"{name}.ld": [_LINKER.replace("NAME", name).encode()],
        folder / "operators.txt": [",".join(firmware.operators).encode() + b"\n"],
        folder / "README.md": [_readme(firmware).encode()],
    }
    write_whole(files)
    return list(files)


def _header(firmware: Firmware) -> str:
    name, upper = firmware.name, firmware.name.upper()
    lines = [
        f"#define {upper}_PTE_BYTES {len(firmware.data)}u",
        f"extern const uint8_t {name}_pte[{upper}_PTE_BYTES];",
    ]
    for arena, nbytes in firmware.arenas.items():
        lines += [
            "",
            f"/* Buffer {arena} of the planned memory that a method is given. */",
            f"#define {upper}_PLANNED_{arena}_BYTES {nbytes}u",
            f"extern uint8_t {name}_planned_{arena}[{upper}_PLANNED_{arena}_BYTES];",
        ]
    lines += [
        "",
        "/* What the NPU works in: the least that a method's temporary allocator must have. */",
        f"#define {upper}_NPU_SCRATCH_BYTES {firmware.scratch}u",
        f"extern uint8_t {name}_npu_scratch[{upper}_NPU_SCRATCH_BYTES];",
    ]
    return c_header(f"{name}.pte for firmware. Written by edgewise ethosu package.", name, lines)


def _source(firmware: Firmware) -> Iterator[str]:
    name, upper = firmware.name, firmware.name.upper()
    yield (
        f'#include "{name}.h"\n\n'
        f"#ifndef {upper}_SECTION\n"
        f'#define {upper}_SECTION ".edgewise_model"\n'
        f"#endif\n\n"
        f"__attribute__((aligned({ALIGNMENT}), section({upper}_SECTION)))\n"
        f"const uint8_t {name}_pte[{upper}_PTE_BYTES] = {{\n"
    )
    yield from c_bytes(firmware.data)
    yield "};\n"


def _memory(firmware: Firmware) -> str:
    name, upper = firmware.name, firmware.name.upper()
    arrays = [
        (f"{name}_planned_{arena}", f"{upper}_PLANNED_{arena}_BYTES") for arena in firmware.arenas
    ]
    arrays.append((f"{name}_npu_scratch", f"{upper}_NPU_SCRATCH_BYTES"))
    lines = [
        f'#include "{name}.h"',
        "",
        f"#ifndef {upper}_MEMORY_SECTION",
        f'#define {upper}_MEMORY_SECTION ".bss.edgewise_memory"',
        "#endif",
    ]
    for array, size in arrays:
        lines += [
            "",
            f"__attribute__((aligned({ALIGNMENT}), section({upper}_MEMORY_SECTION)))",
            f"uint8_t {array}[{size}];",
        ]
    return "\n".join([*lines, ""])


_LINKER = """\
/* For the SECTIONS of a linker script: INCLUDE NAME.ld
 * The program may lie in flash or external memory that the NPU reads; the memory must be writable,
 * not initialized, and reachable by the NPU (SRAM, or DRAM in the Dedicated_Sram mode). Put the
 * regions of your board behind the braces: } > FLASH, } > SRAM */
.edgewise_model : ALIGN(16)
{
  KEEP(*(.edgewise_model))
}
.edgewise_memory (NOLOAD) : ALIGN(16)
{
  *(.bss.edgewise_memory)
}
"""


def _readme(firmware: Firmware) -> str:
    name, upper = firmware.name, firmware.name.upper()
    lines = [f"# {name}", "", f"A `.pte` file of {len(firmware.data):,} bytes for firmware.", ""]
    lines += _files(firmware)
    lines += ["## Memory", "", "| what | bytes |", "| --- | --- |"]
    lines += [f"| program, `{upper}_PTE_BYTES` | {len(firmware.data):,} |"]
    for arena, nbytes in firmware.arenas.items():
        lines += [f"| planned memory {arena}, `{upper}_PLANNED_{arena}_BYTES` | {nbytes:,} |"]
    lines += [f"| NPU scratch memory, `{upper}_NPU_SCRATCH_BYTES` | {firmware.scratch:,} |", ""]
    for method in firmware.contents.methods:
        lines += [f"## Method `{method.name}`", "", "| | shape |", "| --- | --- |"]
        lines += [f"| input {i} | {value} |" for i, value in enumerate(method.inputs)]
        lines += [f"| output {i} | {value} |" for i, value in enumerate(method.outputs)]
        lines += [""]
    lines += ["## Operators", ""]
    lines += [f"- `{operator}`" for operator in firmware.operators] or ["None but the NPU's."]
    lines += ["", "## NPU programs", ""]
    lines += ["| delegate | commands | weights | scratch |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {i} | {len(one.commands):,} | {len(one.weights):,} | {one.scratch_size:,} |"
        for i, one in enumerate(firmware.delegates)
    ]
    return "\n".join([*lines, "", *_estimates(firmware.record), ""])


def _files(firmware: Firmware) -> list[str]:
    name = firmware.name
    return [
        f"Compile `{name}.c`, and `{name}_memory.c` unless the firmware has pools of its own;",
        f"include `{name}.ld` in the linker script's `SECTIONS`. With ExecuTorch's runtime:",
        "",
        "```sh",
        f"cmake ... -DEXECUTORCH_SELECT_OPS_LIST={','.join(firmware.operators)}",
        "```",
        "",
        f"and load the program from `{name}_pte`, which must stay aligned to {ALIGNMENT} bytes.",
        "",
    ]


def _estimates(record: ProgramRecord | None) -> list[str]:
    found: list[EstimateRecord] = []
    for method in record.methods if record is not None else ():
        found += [d.estimates for d in method.delegates if d.estimates is not None]
    if not found:
        return [
            "Vela's estimates are in the record of a program: save it with "
            "`program.save(path, record=True)`."
        ]
    lines = ["## Estimates", "", f"Of {found[0].source}; nothing of it was measured.", ""]
    lines += ["| delegate | figure | value |", "| --- | --- | --- |"]
    for i, one in enumerate(found):
        lines += [f"| {i} | {figure} | {value:,g} |" for figure, value in one.figures.items()]
    return lines
