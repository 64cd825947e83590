"""The NPU's registers: what the commands set, by name and field."""

from __future__ import annotations

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.stream import Command, Target

_PREFIX = "NPU_SET_"


class Registers:
    """Names are those of the commands without "NPU_SET_"."""

    def __init__(self, target: Target) -> None:
        self._opcodes = {
            opcode.name[len(_PREFIX) :]: opcode
            for opcode in target.opcodes.values()
            if opcode.name.startswith(_PREFIX)
        }
        self._values: dict[str, int] = {}

    def set(self, command: Command) -> None:
        self._values[command.name[len(_PREFIX) :]] = command.value

    def get(self, register: str, field: str) -> int:
        value = self._values.get(register)
        if value is None:
            raise NpuError(f"register {register} is set before it is used; got no value")
        return self._opcodes[register].fields[field].of(value)

    def get_or(self, register: str, field: str, default: int) -> int:
        return self.get(register, field) if register in self._values else default

    def has_field(self, register: str, field: str) -> bool:
        return field in self._opcodes[register].fields

    def enum(self, register: str, field: str) -> str:
        enum = self._opcodes[register].fields[field].enum
        assert enum is not None
        return enum[self.get(register, field)]

    def signed(self, register: str, field: str, bits: int) -> int:
        """The low `bits` of a field as a two's complement number."""
        value = self.get(register, field) & (1 << bits) - 1
        return value - (value >> bits - 1 << bits)

    def address(self, register: str) -> int:
        return self.get(register, "addr")

    def stride(self, register: str) -> int:
        """Negative where a feature map is written backwards."""
        return self.signed(register, "addr", 40)
