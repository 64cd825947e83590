"""Figures, tables, JSON and traces of runs that are known."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from recorded import method, run

from edgewise.inspect.record import (
    DelegateRecord,
    EstimateRecord,
    InstructionRecord,
    MethodRecord,
    ModuleRecord,
    NodeRecord,
    PayloadNodeRecord,
    ProgramRecord,
)
from edgewise.profiling import Event, Instruction, MethodRuns, Part, Profile, read_profile
from edgewise.profiling.locations import Locations
from edgewise.profiling.runs import numbered
from edgewise.profiling.summary import Stats, summarize
from edgewise.profiling.trace import trace


def node(name: str, path: str, kind: str, line: int, macs: int = 0) -> NodeRecord:
    steps = ["", *(path[:i] for i in range(len(path) + 1) if path[i : i + 1] in ("", "."))]
    modules = tuple(ModuleRecord(step, f"torch.nn.{kind}") for step in dict.fromkeys(steps))
    return NodeRecord(name, "call", modules=modules, source=f"m.py:{line}", macs=macs)


RECORD = ProgramRecord(
    sha256="",
    bytes=0,
    methods=(
        MethodRecord(
            "forward",
            nodes=(
                node("add", "head", "Head", 3),
                node("pad", "body.0", "Conv2d", 7),
                node("conv", "body.0", "Conv2d", 8, macs=900),
                node("relu", "body.1", "ReLU", 9),
                node("clamp", "body.2", "Hardtanh", 10),
            ),
            instructions=(
                InstructionRecord("kernel", "aten::add.out", nodes=("add",)),
                InstructionRecord("delegate", delegate=0, nodes=("pad", "conv", "relu", "clamp")),
            ),
            delegates=(
                DelegateRecord(
                    "Npu",
                    "p0",
                    0,
                    0,
                    payload=(
                        PayloadNodeRecord("Conv2d", ("conv", "pad")),
                        PayloadNodeRecord("Clamp", ("relu",)),
                        PayloadNodeRecord("Clamp", ("clamp",)),
                    ),
                ),
            ),
        ),
    ),
)


def profile(*methods: MethodRuns, record: ProgramRecord | None = RECORD) -> Profile:
    return Profile(lambda: list(methods or [method()]), record)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], Stats(0, 0, 0, 0, 0, 0)),
        ([5000], Stats(5, 5, 5, 5, 5, 5)),
        ([3000, 1000], Stats(2, 1, 2, 2.8, 2.98, 3)),
        (list(range(0, 101_000, 1000)), Stats(50, 0, 50, 90, 99, 100)),
    ],
)
def test_stats(times: list[int], expected: Stats) -> None:
    found = Stats.of(times)
    for name in ("mean", "min", "p50", "p90", "p99", "max"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name


def test_rows_have_their_times_and_places() -> None:
    (summary,) = profile().summaries()
    rows = {row.name: row for row in summary.leaves}
    assert {name: row.totals for name, row in rows.items()} == {
        "aten::add.out": [2000, 4000],
        "Convolution": [5000, 10000],
        "Clamp": [1000, 2000],
        "(Npu: outside its operators)": [2000, 4000],
    }
    assert sum(sum(row.totals) for row in summary.leaves) == summary.total == 30_000
    # A convolution with its activation is where the convolution is.
    location = rows["Convolution"].location
    assert (location.nodes, location.module, location.type, location.source) == (
        ("conv", "pad", "relu"),
        "body.0",
        "Conv2d",
        "m.py:8",
    )
    assert rows["Clamp"].location.source == "m.py:10"
    assert rows["aten::add.out"].location.module == "head"
    assert summary.by_node()["relu"] == (7.5, ("conv", "pad", "relu"))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("kind", {"Convolution": 15, "aten::add.out": 6, "Clamp": 3, "(Npu: outside": 6}),
        ("module", {"body.0": 15, "head": 6, "body.2": 3, "": 6}),
        ("line", {"m.py:8": 15, "m.py:3": 6, "m.py:10": 3, "": 6}),
    ],
)
def test_groups(by: Any, expected: dict[str, float]) -> None:
    (summary,) = profile().summaries()
    rows = summary.grouped(by)
    assert [sum(row.totals) for row in rows] == sorted(
        (sum(row.totals) for row in rows), reverse=True
    )

    def key(row: Any) -> str:
        texts = {"module": row.location.module, "line": row.location.source}
        return texts.get(by, row.name.split(" its")[0])

    assert {key(row): sum(row.totals) / 1e3 for row in rows} == expected


def test_commands_of_an_npu_are_rows_of_their_layers() -> None:
    """Several operations of one layer are one row, with the place of the layer's node."""

    def command(begin: int, name: str, offset: int) -> Event:
        return Event(begin, begin + 10, 0, Part(name, counters={"offset": offset}))

    rows = [
        {"operator": "Conv2D", "node": "conv", "cycles": 9, "MACs": 900, "commands": "80"},
        {"operator": "Transpose", "node": "", "cycles": 3, "commands": "210 270"},
        {"operator": "MatMul", "node": "relu", "cycles": 3, "commands": "350"},
    ]
    known = RECORD.methods[0]
    npu = dataclasses.replace(
        known.delegates[0], payload=(), estimates=EstimateRecord("Vela", {}, tuple(rows))
    )
    record = dataclasses.replace(known, delegates=(npu,), instructions=(known.instructions[1],))
    events = numbered(
        [
            command(0, "NPU_OP_DMA_START", 16),
            command(10, "NPU_OP_CONV", 80),
            command(20, "NPU_OP_POOL", 210),
            command(30, "NPU_OP_POOL", 270),
            command(40, "NPU_OP_ELEMENTWISE", 310),
            command(50, "NPU_OP_POOL", 350),
            command(60, "NPU_OP_POOL", 400),  # behind any layer's last command
            Event(0, 80, 0),
        ]
    )
    runs = MethodRuns("forward", "", [Instruction("delegate", "Npu", 0)], [run([*events])])
    found = summarize(runs, Locations(record)).parts[0]
    assert [(r.name, r.totals, r.events, r.location.source) for r in found] == [
        ("Conv2D (NPU_OP_DMA_START)", [10], 1, "m.py:8"),
        ("Conv2D (NPU_OP_CONV)", [10], 1, "m.py:8"),
        ("Transpose (NPU_OP_POOL)", [20], 2, ""),
        ("MatMul (NPU_OP_ELEMENTWISE)", [10], 1, "m.py:9"),
        ("MatMul (NPU_OP_POOL)", [10], 1, "m.py:9"),
        ("NPU_OP_POOL", [10], 1, ""),
    ]


def test_what_runs_several_times_or_not_at_all() -> None:
    events = [Event(0, 10, 0), Event(10, 30, 1), Event(30, 40, 0), Event(40, 70, 1)]
    runs = method()
    runs.runs = [run(events), run([Event(0, 8, 0)])]
    summary = summarize(runs, Locations(None))
    assert [(row.totals, row.events) for row in summary.instructions] == [
        ([20, 8], 3),
        ([50, 0], 2),
    ]


def test_parts_that_look_the_same_are_told_apart_within_a_call() -> None:
    same = Part("Conv")
    events = [Event(0, 1, 0, same), Event(1, 2, 0, same), Event(0, 2, 0), Event(2, 3, 0, same)]
    parts = [event.part for event in numbered(events)]
    assert [part and part.occurrence for part in parts] == [0, 1, None, 0]


def test_table() -> None:
    text = profile().table(top=2)
    lines = text.splitlines()
    assert lines[0].startswith("forward: 2 runs, 15.0 us each (p90 19.0 us, p99 19.9 us); 15.2 us")
    assert lines[1].split() == ["p50", "p90", "share", "calls", "what", "module", "line"]
    assert lines[2].split() == ["7.50", "us", "9.50", "us", "50.0%", "1", "Convolution", "body.0",
                                "m.py:8"]  # fmt: skip
    assert lines[4] == "  and 2 more, 30.0%"
    assert "recording adds about" in lines[5]
    assert "module" not in profile(record=None).table()  # nobody has one
    assert "nothing was recorded" in str(Profile(lambda: []))


def test_json_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    profile().save(path)
    (found,) = read_profile(path)["methods"]
    assert found["runs"] == 2
    assert found["execute"]["p50"] == 15.0
    kernel, delegate = found["instructions"]
    assert (kernel["kind"], kernel["name"], kernel["share"]) == ("kernel", "aten::add.out", 0.2)
    assert [part["name"] for part in delegate["parts"]] == ["Convolution", "Clamp"]
    assert delegate["parts"][0]["payload"] == [0, 1]
    assert delegate["rest"]["mean"] == 3.0
    assert found["nodes"]["conv"] == {"time": 7.5, "with": ["pad", "relu"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "must be JSON"),
        ("[]", "must have the format"),
        ('{"format": "edgewise-record"}', "must have the format"),
        ('{"format": "edgewise-profile", "version": 99}', "must have version 1; got 99"),
    ],
)
def test_refuses_other_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_profile(path)


def test_a_record_that_does_not_fit_is_not_used() -> None:
    runs = method()
    runs.instructions.append(runs.instructions[0])
    assert all(not row.location.nodes for row in profile(runs).summaries()[0].leaves)


def assert_is_trace(document: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Checks against the Trace Event Format, and that Perfetto's demand holds: slices of a track
    are disjoint or inside one another. Returns the slices of each track."""
    json.dumps(document, allow_nan=False)
    assert document["displayTimeUnit"] in ("ms", "ns")
    tracks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            known = {
                "process_name": "name",
                "thread_name": "name",
                "thread_sort_index": "sort_index",
            }
            assert list(event["args"]) == [known[event["name"]]]
            continue
        assert event["ph"] == "X"
        assert event["cat"]
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        tracks[event["tid"]].append(event)
    for slices in tracks.values():
        stack: list[int] = []
        for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], event
            stack.append(end)
    return tracks


def test_trace_nests() -> None:
    record = RECORD.method()
    tracks = assert_is_trace(trace([(method(), Locations(record))]))
    ran, modules = (tracks[track] for track in sorted(tracks))
    assert [(e["cat"], e["name"]) for e in ran[:5]] == [
        ("call", "forward"),
        ("kernel", "aten::add.out"),
        ("operator", "Convolution"),
        ("operator", "Clamp"),
        ("delegate", "Npu"),
    ]
    assert ran[2]["args"] == {
        "instruction": 1,
        "payload": [0, 1],
        "module": "body.0",
        "source": "m.py:8",
    }
    assert ran[2]["ts"] == pytest.approx(3.1)
    first = [(e["name"], e["ts"], e["dur"]) for e in modules if e["ts"] < 50]
    assert sorted(first) == [
        ("(model)", pytest.approx(0.1), pytest.approx(9.0)),
        ("body", pytest.approx(3.1), pytest.approx(6.0)),
        ("body.0", pytest.approx(3.1), pytest.approx(5.0)),
        ("body.2", pytest.approx(8.1), pytest.approx(1.0)),
        ("head", pytest.approx(0.1), pytest.approx(2.0)),
    ]
    assert_is_trace(trace([]))
