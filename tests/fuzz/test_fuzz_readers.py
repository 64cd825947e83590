"""Damaged files are errors of the readers' own: the corpus, and some damage of each file that is
the same in every run. `make fuzz` goes on from there."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import fuzz

from edgewise.flatbuffer import unpack
from edgewise.inspect.delegate_graphs import read_payload as read_delegate
from edgewise.inspect.plain_data import from_plain
from edgewise.inspect.record import EstimateRecord, load_record
from edgewise.llm.config import read_config
from edgewise.llm.text import load_tokenizer
from edgewise.profiling import read_profile
from edgewise.profiling.etdump_file import ETDump
from edgewise.scale.checked import PlanError
from edgewise.scale.plan_file import make_plan, read_plan

COUNTS = {
    "config": 500,
    "contents": 300,
    "etdump": 300,
    "ethosu": 200,
    "plan": 150,
    "record": 500,
}


@pytest.mark.parametrize("name", COUNTS)
def test_damage(name: str, tmp_path: Path) -> None:
    report = fuzz(name, tmp_path, count=COUNTS[name])
    assert report.executions == COUNTS[name]
    assert report.outcomes["read"]
    assert len(report.outcomes) > 5
    assert {what: failure.told for what, failure in report.failures.items()} == {}


def test_damaged_tokenizers(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    report = fuzz("tokenizer", tmp_path, count=100)
    assert len(report.outcomes) > 5
    assert {what: failure.told for what, failure in report.failures.items()} == {}


DEEP = b"[" * 100_000
READERS: dict[str, Callable[[Path], Any]] = {
    "record": load_record,
    "profile": read_profile,
    "config": lambda path: read_config(str(path)),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("data", "told"), [(DEEP, "nested too deeply"), (b"\xff", "bytes that are no text")]
)
def test_json_that_is_none(name: str, data: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"^\[{name}\] .*{told}"):
        READERS[name](path)


BOMB = "a0: &a0 [1, 2]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (DEEP, "more than 32 levels"),
        (BOMB.encode(), "more than 100000 values"),
        (b"x: &a [*a]", "an alias of what is not there: a"),
        (b"\xff\xfe\xff", "must be YAML"),
        (b"x: " + b"a" * (1 << 20), "more than 1024 KiB"),
        (b"x: 2001-99-99", "must be YAML"),
        (b"!!python/object/apply:os.system [x]", "could not determine a constructor"),
    ],
)
def test_plans_that_are_none(text: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(text)
    with pytest.raises(PlanError, match=told):
        read_plan(path)


def test_aliases_of_a_plan_are_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("models: {a: &net {source: 'm.py:net'}, b: *net}\n")
    assert [model.name for model in read_plan(path).models] == ["a", "b"]


@pytest.mark.parametrize("size", ["1.2.3", "1e5", "99999999999999999999 GB", ".", "0"])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(PlanError, match=r"^\[limits.memory\] must be a size"):
        make_plan({"models": {"a": "m.py:net"}, "limits": {"memory": size}})


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EstimateRecord, {"source": "s", "figures": {}, "layers": {"x": {}}}),
        (EstimateRecord, {"source": "s", "figures": {"x": 10**400}}),
    ],
)
def test_plain_data_of_another_kind(kind: type, data: Any) -> None:
    with pytest.raises(ValueError, match=r"^\[x\] .* must hold"):
        from_plain(kind, data, "[x]")


def test_offsets_that_all_lead_to_one_place() -> None:
    """Blocks that are one block, of events that are one event: the file stands for 3.6 million."""
    count = 1900
    # A vtable of 12 bytes with a vector in slot 1 (ETDump) or 3 (RunData), then the tables.
    data = bytearray(struct.pack("<I4s", 32, b"ED00"))
    data += struct.pack("<6H", 12, 8, 0, 4, 0, 4) + bytes(12)
    root = len(data)
    assert root == 32
    data += struct.pack("<iI", root - 8, 4)  # its vector follows
    block = len(data) + 4 + 4 * count
    data += struct.pack("<I", count)
    data += b"".join(struct.pack("<I", block - (len(data) + 4 * i)) for i in range(count))
    data += struct.pack("<iI", block - 8, 4)
    event = len(data) + 4 + 4 * count
    data += struct.pack("<I", count)
    data += b"".join(struct.pack("<I", event - (len(data) + 4 * i)) for i in range(count))
    data += struct.pack("<i", event - 8) + bytes(4)
    with pytest.raises(ValueError, match="more than 16 times its size"):
        unpack(ETDump, bytes(data))


@pytest.mark.parametrize("size", range(30))
def test_a_header_of_a_delegate_that_is_cut_off(size: int) -> None:
    whole = bytes(4) + b"XH00" + bytes(22)
    with pytest.raises(ValueError, match=r"^\[xnnpack\] "):
        read_delegate("XnnpackBackend", memoryview(whole)[:size], {})


@pytest.mark.parametrize("vocabulary", [{"a": 4_000_000_000}, {"a": -1}, {"": 0}])
def test_tokenizers_that_are_none(vocabulary: dict[str, int], tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "Unigram", "vocab": vocabulary}}))
    with pytest.raises(ValueError, match=r"^\[tokenizer\]"):
        load_tokenizer(path)
