"""What is in a .pte file, read without either framework's library.

Only what a comparison needs: which delegates and which operators a program calls. Field numbers
are those of the program schema in `schema/`.
"""

import struct
from collections import Counter
from dataclasses import dataclass

from flatbuffers import number_types
from flatbuffers.table import Table

_KERNEL_CALL, _DELEGATE_CALL = 1, 2


@dataclass(frozen=True)
class Contents:
    """Calls in all methods of one file."""

    size: int
    delegates: Counter[str]
    operators: Counter[str]

    @property
    def delegate_count(self) -> int:
        return self.delegates.total()

    @property
    def operator_count(self) -> int:
        return self.operators.total()


def read(data: bytes) -> Contents:
    """Count the calls in a .pte; raises ValueError for other bytes."""
    if data[4:6] != b"ET":
        raise ValueError(f"[pte] the identifier starts with ET; got {data[4:8]!r}")
    program = Table(data, struct.unpack_from("<I", data)[0])
    delegates: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for plan in _tables(program, 1):
        names = [_operator_name(operator) for operator in _tables(plan, 6)]
        backends = [_string(delegate, 0) for delegate in _tables(plan, 7)]
        for chain in _tables(plan, 5):
            for instruction in _tables(chain, 2):
                kind = _scalar(instruction, 0, number_types.Uint8Flags)
                if kind not in (_KERNEL_CALL, _DELEGATE_CALL):
                    continue
                index = _scalar(_union(instruction, 1), 0, number_types.Int32Flags)
                if kind == _KERNEL_CALL:
                    operators[names[index]] += 1
                else:
                    delegates[backends[index]] += 1
    return Contents(len(data), delegates, operators)


def _operator_name(operator: Table) -> str:
    name, overload = _string(operator, 0), _string(operator, 1)
    return f"{name}.{overload}" if overload else name


def _offset(table: Table, field: int) -> int:
    """Position of a field in the file, 0 if it is absent."""
    offset = int(table.Offset(4 + 2 * field))
    return table.Pos + offset if offset else 0


def _tables(table: Table, field: int) -> list[Table]:
    if not _offset(table, field):
        return []
    start = table.Vector(_offset(table, field) - table.Pos)
    count = table.VectorLen(_offset(table, field) - table.Pos)
    return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]


def _string(table: Table, field: int) -> str:
    position = _offset(table, field)
    return table.String(position).decode() if position else ""


def _scalar(table: Table, field: int, kind: type) -> int:
    position = _offset(table, field)
    return int(table.Get(kind, position)) if position else 0


def _union(table: Table, field: int) -> Table:
    return Table(table.Bytes, table.Indirect(_offset(table, field)))
