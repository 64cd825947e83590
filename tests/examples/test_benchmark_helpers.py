"""What benchmarks need of no framework: figures, tables, reading a file's calls."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _common
import _pte
import flatbuffers


def program(operators: list[tuple[str, str]], backends: list[str], calls: list[tuple[int, int]]):
    """Bytes of a program with one method; `calls` are (instruction kind, index)."""
    b = flatbuffers.Builder()

    def table(**fields: tuple[str, int]) -> int:
        b.StartObject(10)
        for key, (kind, value) in fields.items():
            slot = int(key[1:])
            if kind == "offset":
                b.PrependUOffsetTRelativeSlot(slot, value, 0)
            elif kind == "byte":
                b.PrependUint8Slot(slot, value, 0)
            else:
                b.PrependInt32Slot(slot, value, 0)
        return b.EndObject()

    def vector(offsets: list[int]) -> tuple[str, int]:
        b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            b.PrependUOffsetTRelative(offset)
        return "offset", b.EndVector()

    def string(text: str) -> tuple[str, int]:
        return "offset", b.CreateString(text)

    instructions = []
    for kind, index in calls:
        call = table(f0=("int", index))
        instructions.append(table(f0=("byte", kind), f1=("offset", call)))
    chain = table(f2=vector(instructions))
    names = [table(f0=string(name), f1=string(overload)) for name, overload in operators]
    delegates = [table(f0=string(backend)) for backend in backends]
    plan = table(f5=vector([chain]), f6=vector(names), f7=vector(delegates))
    b.Finish(table(f1=vector([plan])), file_identifier=b"ET12")
    return bytes(b.Output())


def test_calls_are_counted_by_name() -> None:
    data = program(
        [("aten::add", "out"), ("aten::copy_", "")],
        ["XnnpackBackend", "Other"],
        [(1, 0), (2, 1), (1, 1), (1, 0), (5, 0), (2, 0)],
    )
    contents = _pte.read(data)
    assert contents.size == len(data)
    assert contents.operators == {"aten::add.out": 2, "aten::copy_": 1}
    assert contents.delegates == {"XnnpackBackend": 1, "Other": 1}
    assert (contents.operator_count, contents.delegate_count) == (3, 2)


def test_other_files_are_refused() -> None:
    with pytest.raises(ValueError, match="starts with ET"):
        _pte.read(b"\0\0\0\0TFL3")


def test_quantile_is_linear() -> None:
    assert [_common.quantile([4, 1, 3, 2], q) for q in (0, 0.5, 1)] == [1, 2.5, 4]


def test_ratio_is_the_median_of_pairs() -> None:
    # Of the medians it would be 2 / 4.
    assert _common.ratio([1, 2, 9], [4, 5, 3]) == 0.4
    assert _common.ratio([], [1.0]) is None


def test_table_aligns_numbers_to_the_right() -> None:
    rows = [{"name": "a", "ms": 1.5}, {"name": "long", "ms": 10.25, "error": 1e-6}]
    assert _common.table(rows).splitlines() == [
        "name     ms    error",
        "----  -----  -------",
        "a     1.500        -",
        "long  10.25  1.0e-06",
    ]


def test_machine_names_the_cpu_and_the_versions() -> None:
    where = _common.machine()
    assert where["cpu"]
    assert where["cores"] >= 1
    assert set(where["versions"]) > {"python", "torch", "edgewise"}
