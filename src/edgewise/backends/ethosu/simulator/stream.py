"""Command streams: driver actions, then commands of one or two 32-bit words."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from edgewise.backends.ethosu.simulator import commands_all, commands_u55, commands_u85
from edgewise.backends.ethosu.simulator.errors import NpuError

_CONFIG, _STREAM, _NOP = 1, 2, 5
_TWO_WORDS = 0x4000


@dataclass(frozen=True)
class Field:
    """Bits of a command's value, whose lowest 16 are the first word's, the rest the second's."""

    name: str
    bit: int
    bits: int
    enum: dict[int, str] | None
    prefix: str

    def of(self, value: int) -> int:
        if self.name == "addr":
            return (value & 0xFF) << 32 | value >> 16
        return value >> self.bit & (1 << self.bits) - 1

    def text(self, value: int) -> str:
        number = self.of(value)
        if self.name == "addr":
            return f"addr = {number:#x}"
        if self.enum is None:
            return f"{self.name} = {number}"
        return f"{self.name} = {self.prefix}{self.enum.get(number, f'?{number}')}"


@dataclass(frozen=True)
class Opcode:
    code: int
    name: str
    fields: dict[str, Field]
    mask: int
    """The bits of a value that belong to a field."""


@dataclass(frozen=True)
class Target:
    """An NPU, as a program's configuration word names it."""

    name: str
    family: str
    """"u55", "u65" or "u85"."""
    macs: int
    """Of all cores."""
    cores: int
    """Of U65; weight decoders of U85."""
    internal_bytes: int
    """Of the memory inside that a transfer reaches."""
    opcodes: dict[int, Opcode]

    @property
    def max_outstanding_dma(self) -> int:
        return {"u55": 1, "u65": 2, "u85": 4}[self.family]

    @property
    def max_outstanding_kernels(self) -> int:
        return 2


@dataclass(frozen=True)
class Command:
    offset: int
    """In bytes from the first command."""
    opcode: Opcode
    value: int

    @property
    def name(self) -> str:
        return self.opcode.name

    def field(self, name: str) -> int:
        return self.opcode.fields[name].of(self.value)

    def mode(self, name: str) -> str:
        """The name of what a field says."""
        enum = self.opcode.fields[name].enum
        assert enum is not None
        return enum[self.field(name)]

    def __str__(self) -> str:
        fields = ", ".join(field.text(self.value) for field in self.opcode.fields.values())
        return f"{self.name} {fields}".rstrip()


def parse(stream: bytes) -> tuple[Target, list[Command]]:
    """The target and all commands. Raises NpuError where the stream is malformed."""
    if len(stream) % 4 or stream[:4] not in (b"COP1", b"COP2"):
        raise NpuError(
            f"[command stream] driver actions are words, the first b'COP1' or b'COP2'; "
            f"got {bytes(stream[:4])!r} in {len(stream)} bytes"
        )
    words = struct.unpack(f"<{len(stream) // 4}I", stream)
    if stream[:4] == b"COP2":
        named, commands = _second_format(words)
        return named, list(_commands(named, commands))
    target: Target | None = None
    position = 1
    while position < len(words):
        action = words[position] & 0xFF
        if action == _CONFIG and position + 2 < len(words):
            target = _target(words[position + 1])
            position += 3
        elif action == _NOP:
            position += 1
        elif action == _STREAM and target is not None:
            count = words[position] >> 16 | (words[position] >> 8 & 0xFF) << 16
            body = words[position + 1 :]
            if count != len(body):
                raise NpuError(
                    f"[command stream] all {len(body)} words to the end are commands; got {count}"
                )
            return target, list(_commands(target, body))
        else:
            raise NpuError(
                f"[command stream] driver actions are a configuration, then commands; "
                f"got {words[position]:#010x} at byte {4 * position}"
            )
    raise NpuError("[command stream] commands follow the driver actions; got none")


_HEADER = 16
"""Words before the commands in the second format."""
_MODEL = int.from_bytes(b"VEUM", "little")


def _second_format(words: tuple[int, ...]) -> tuple[Target, tuple[int, ...]]:
    """The target, and the words of the commands.

    COP2, version, bytes behind the first four words, 0; one record: its kind, bytes behind these
    two words; bytes of its header, which is VEUM, version, bytes of what follows up to the
    configuration's end, configuration, product; then memory that the driver reads. Read off
    what Vela writes.
    """
    size = 4 * len(words)
    wanted = {
        1: 1, 2: size - 16, 3: 0, 4: 1, 5: size - 24, 6: 4 * (_HEADER - 7), 7: _MODEL, 8: 1,
    }  # fmt: skip
    for index, value in wanted.items():
        found = words[index] if index < len(words) else None
        if found != value or len(words) < _HEADER:
            raise NpuError(
                f"[command stream] word {index} of the driver actions is {value:#x}; "
                f"got {'the end' if found is None else hex(found)} in {size} bytes"
            )
    return _target(words[10]), words[_HEADER:]


def disassemble(stream: bytes) -> str:
    """A line a command: offset, words, name, fields. Raises NpuError as `parse` does."""
    target, commands = parse(stream)
    lines = [f"{target.name}: {len(commands)} commands"]
    for command in commands:
        second = f"{command.value >> 16:08x}" if command.opcode.code & _TWO_WORDS else " " * 8
        first = f"{command.value & 0xFFFF:04x} {command.opcode.code:04x}"
        lines.append(f"0x{command.offset:06x}: {second} {first} - {command}")
    return "\n".join(lines) + "\n"


def _commands(target: Target, words: tuple[int, ...]) -> Iterator[Command]:
    position = 0
    while position < len(words):
        offset, word = 4 * position, words[position]
        code, value = word & 0xFFFF, word >> 16
        opcode = target.opcodes.get(code)
        where = f"[{target.name}, {offset:#08x}]"
        if opcode is None:
            raise NpuError(f"{where} a command has a known opcode; got {word:#010x}")
        position += 1
        if code & _TWO_WORDS:
            if position == len(words):
                raise NpuError(f"{where} {opcode.name} has two words; got the end of the stream")
            value |= words[position] << 16
            position += 1
        command = Command(offset, opcode, value)
        # STOP ends a stream with any mask; all others leave unused bits zero.
        if value & ~opcode.mask:
            raise NpuError(
                f"{where} {opcode.name} has bits {opcode.mask:#x} only; got {value:#x} ({command})"
            )
        for field in opcode.fields.values():
            if field.enum is not None and field.of(value) not in field.enum:
                raise NpuError(
                    f"{where} {opcode.name}.{field.name} is one of "
                    f"{', '.join(field.enum.values())}; got {field.of(value)}"
                )
        yield command
    if not words or command.name != "NPU_OP_STOP":
        raise NpuError(f"[{target.name}] the last command is NPU_OP_STOP; got {words[-1:]}")


def _target(config: int) -> Target:
    product, log2_macs, shram = config >> 28, config & 0xF, (config >> 8 & 0xFF) << 10
    valid = {0: range(5, 9), 1: range(8, 10), 2: range(7, 12)}
    if log2_macs not in valid.get(product, ()):
        raise NpuError(
            f"[command stream] the configuration names Ethos-U55, U65 or U85; got {config:#010x}"
        )
    family = ("u55", "u65", "u85")[product]
    macs = 1 << log2_macs
    cores = 2 if (family, macs) == ("u65", 512) else 1
    internal = shram // cores
    if family == "u85":
        cores, internal = 1 << (config >> 12 & 3), 2048
    return Target(f"ethos-{family}-{macs}", family, macs, cores, internal, _opcodes(family))


_U65_ONLY = (
    "NPU_SET_PARALLEL_MODE",
    "NPU_SET_WEIGHT1_BASE",
    "NPU_SET_WEIGHT1_LENGTH",
    "NPU_SET_SCALE1_BASE",
    "NPU_SET_SCALE1_LENGTH",
)


@functools.cache
def _opcodes(family: str) -> dict[int, Opcode]:
    own = commands_u85 if family == "u85" else commands_u55
    enums = commands_all.ENUMS | own.ENUMS
    opcodes = {}
    for line in (commands_all.COMMANDS + own.COMMANDS).replace("\n    ", " ").split("\n"):
        if not line:
            continue
        code, name, *specs = line.split()
        if family == "u55" and name in _U65_ONLY:
            continue
        fields = {}
        for spec in specs:
            field = _field(name, spec, enums)
            fields[field.name] = field
        mask = 0
        for field in fields.values():
            mask |= 0xFFFFFFFF00FF if field.name == "addr" else ((1 << field.bits) - 1) << field.bit
        opcodes[int(code, 16)] = Opcode(int(code, 16), name, fields, mask)
    return opcodes


def _field(command: str, spec: str, enums: dict[str, dict[int, str]]) -> Field:
    if spec == "addr":
        return Field("addr", 0, 40, None, "")
    named, _, size = spec.partition(":")
    bits, has_enum, enum = size.partition("=")
    name, _, bit = named.partition("@")
    start = int(bit or 0)
    if name.startswith("+"):
        name, start = name[1:], start + 16
    kind = (enum or name) if has_enum else ""
    return Field(name, start, int(bits), enums[kind] if kind else None, f"{kind}_".upper())
