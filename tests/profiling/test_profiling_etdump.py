"""ETDump files: real ones by the peer's writer, others that are refused, and our own."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.compat import devtools, exir, portable_lib, runtime
from edgewise.flatbuffer import pack
from edgewise.profiling import Profile, read_etdump
from edgewise.profiling.etdump_file import (
    IDENTIFIER,
    DumpEvent,
    ETDump,
    ProfileEvent,
    RunData,
)


def event(name: str | None, index: int, begin: int, end: int, **more: object) -> DumpEvent:
    profile = ProfileEvent(name, 0, index, start_time=begin, end_time=end)
    for key, value in more.items():
        setattr(profile, key, value)
    return DumpEvent(profile)


def dump() -> ETDump:
    """Two runs; each a kernel, and a delegate of two operators of one name."""
    blocks = [RunData("Default", events=[event("Program::load_method", 0, 1, 900)])]
    for at in (1000, 9000):
        events = [
            event("native_call_add.out", 0, at + 110, at + 190),
            event("OPERATOR_CALL", 0, at + 100, at + 200),
            event(None, 1, at + 300, at + 700, delegate_debug_id_str="Convolution"),
            event(None, 1, at + 700, at + 800, delegate_debug_id_str="Convolution"),
            event(None, 1, at + 800, at + 850, delegate_debug_id_int=3),
            event("DELEGATE_CALL", 1, at + 200, at + 900),
            event("Method::execute", -1, at, at + 1000),
        ]
        blocks.append(RunData("Execute", events=events))
    return ETDump(0, run_data=blocks)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "run.etdp"
    path.write_bytes(data)
    return path


def prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def assert_is_dump(profile: Profile, scale: float = 1.0) -> None:
    (summary,) = profile.summaries()
    assert summary.runs.method == "forward"
    assert [run.run_end - run.run_begin for run in summary.runs.runs] == [1000 * scale] * 2
    rows = [(row.name, row.totals[0] / scale, row.events) for row in summary.leaves]
    assert rows == [
        ("add.out", 100, 2),
        ("Convolution", 400, 2),
        ("Convolution", 100, 2),
        ("delegate's id 3", 50, 2),
        ("(delegate: outside its operators)", 150, 2),
    ]


@pytest.mark.parametrize("has_length", [True, False])
def test_reads_runs(tmp_path: Path, has_length: bool) -> None:
    data = pack(dump(), IDENTIFIER)
    path = written(tmp_path, prefixed(data) if has_length else data)
    assert_is_dump(read_etdump(path))
    assert_is_dump(read_etdump(path, ticks_per_second=1e6), scale=1000)
    text = str(read_etdump(path))
    assert "forward: 2 runs, 1.00 us each" in text
    assert "recording adds" not in text  # that is not known
    assert read_etdump(path).to_dict()["origin"] == "etdump"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "identifier 'ED00'"),
        (lambda data: b"ET13" * 8, "identifier 'ED00'"),
        (lambda data: prefixed(data)[:-8], "must have .* bytes"),
        (lambda data: data[:200], "damaged"),
        (lambda data: b"\xf0\xff\xff\x7f" + data[4:], "damaged"),
        (
            lambda data: pack(ETDump(0, run_data=[RunData("Default")]), IDENTIFIER),
            "hold a run",
        ),
    ],
)
def test_refuses(tmp_path: Path, change: object, message: str) -> None:
    assert callable(change)
    path = written(tmp_path, change(pack(dump(), IDENTIFIER)))
    with pytest.raises(ValueError, match=message):
        read_etdump(path)


def test_any_damage_is_a_value_error(tmp_path: Path) -> None:
    data = pack(dump(), IDENTIFIER)
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        path = written(tmp_path, bytes(changed))
        try:
            read_etdump(path).to_dict()
        except ValueError:
            continue


def test_the_inspector_of_compat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Events as ExecuTorch's has them; modules and lines from the record."""
    path = written(tmp_path, pack(dump(), IDENTIFIER))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    program = edgewise.compile(model, (torch.ones(1, 4),), backend="none", verbose=False)
    devtools.generate_etrecord(tmp_path / "etrecord.bin", None, program)
    found = devtools.Inspector(
        str(path),
        etrecord=str(tmp_path / "etrecord.bin"),
        target_time_scale=devtools.TimeScale.US,
    )
    default, execute = found.event_blocks
    assert [(e.name, len(e.perf_data.raw)) for e in default.events] == [("Program::load_method", 1)]
    by_name = {e.name: e for e in execute.events}
    call = by_name["OPERATOR_CALL"]
    assert call.perf_data.raw == pytest.approx([0.1, 0.1])
    assert call.perf_data.p90 == pytest.approx(0.1)
    assert [e.is_delegated_op for e in execute.events].count(True) == 3
    steps = program.record().method().instructions
    assert set(call.module_hierarchy) == set(steps[0].nodes)
    assert set(call.module_hierarchy.values()) == {"0"}
    inside = sum(
        e.perf_data.avg
        for e in execute.events
        if "0" in e.module_hierarchy.values() and e.name[-5:] == "_CALL"
    )
    assert inside > 0
    for name in ("0", "L__self___0"):
        assert found.find_total_for_module(name) == pytest.approx(inside), name
    assert found.find_total_for_module("L__self__") > inside
    assert found.find_total_for_module("head") == 0
    found.print_data_tabular()
    table = capsys.readouterr().out
    assert "p50 (us)" in table
    assert "native_call" not in table
    assert len(found.to_dataframe()) == len(default.events) + len(execute.events)
    with pytest.raises(ValueError, match="etdump_path or etdump_data; got neither"):
        devtools.Inspector()


@pytest.mark.peer
def test_the_peers_files(tmp_path: Path) -> None:
    """A file by ExecuTorch's own writer, against what its Inspector finds in it."""
    from executorch.devtools import Inspector
    from peer_etdump import Writer

    writer = Writer()
    writer.block(b"Default")
    writer.end(writer.start(b"Method::init", -1, 0))
    for _ in range(3):
        writer.block(b"Execute")
        execute = writer.start(b"Method::execute", -1, 0)
        for index in range(2):
            writer.at(0, index)
            call = writer.start(b"OPERATOR_CALL", -1, 0)
            kernel = writer.start(b"native_call_mul.out", -1, 0)
            time.sleep(0.0005)
            writer.end(kernel)
            writer.end(call)
        writer.at(0, 2)
        call = writer.start(b"DELEGATE_CALL", -1, 0)
        begin = call.start_time
        for name, length in ((b"Convolution (NHWC, F32) IGEMM", 300_000), (b"Clamp", 20_000)):
            writer.delegate(name, -1, begin, begin + length)
            begin += length
        time.sleep(0.0005)
        writer.end(call)
        writer.at(-1, 0)
        writer.end(execute)
    path = written(tmp_path, writer.data())
    (summary,) = read_etdump(path).summaries()
    assert [row.name for row in summary.instructions] == ["mul.out", "mul.out", "delegate"]
    assert [row.totals for row in summary.parts[2]] == [[300_000] * 3, [20_000] * 3]

    blocks = [b for b in Inspector(etdump_path=str(path)).event_blocks if b.name == "Execute"]
    theirs = [(e.name, list(e.perf_data.raw)) for block in blocks for e in block.events]
    calls = [raw for name, raw in theirs if name in ("OPERATOR_CALL", "DELEGATE_CALL")]
    for ours, raw in zip(summary.instructions, calls, strict=True):
        assert [t / 1e6 for t in ours.totals] == pytest.approx(raw)
    (execute_raw,) = [raw for name, raw in theirs if name == "Method::execute"]
    runs = summary.runs.runs
    assert [(r.run_end - r.run_begin) / 1e6 for r in runs] == pytest.approx(execute_raw)
    for part in summary.parts[2]:
        (raw,) = [raw for name, raw in theirs if name == part.name]
        assert [t / 1e6 for t in part.totals] == pytest.approx(raw)
    (block,) = [b for b in devtools.Inspector(str(path)).event_blocks if b.name == "Execute"]
    ours = [(e.name, e.perf_data.raw) for e in block.events]
    assert sorted(name for name, _ in ours) == sorted(name for name, _ in theirs)
    for name, raw in ours:
        assert any(name == other and raw == pytest.approx(times) for other, times in theirs), name


class Mixed(torch.nn.Module):
    """A delegate, and two kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(self.layers(x), 1).sort()[0]


def mixed() -> bytes:
    program = torch.export.export(Mixed().eval(), (torch.ones(2, 8),))
    return (
        edgewise.to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        .to_executorch()
        .buffer
    )


@pytest.mark.peer
def test_the_peers_inspector_reads_ours(tmp_path: Path) -> None:
    from executorch.devtools import Inspector
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    model = edgewise.load(mixed())
    x = np.ones((2, 8), np.float32)
    model(x)
    with edgewise.profile() as profile:
        for _ in range(4):
            model(x)
    path = tmp_path / "ours.etdp"
    profile.save_etdump(path)
    assert len(deserialize_from_etdump_flatcc(path.read_bytes()).run_data) == 4
    (summary,) = profile.summaries()
    (block,) = Inspector(etdump_path=str(path)).event_blocks
    # It computes with milliseconds since the machine's start.
    theirs = [
        (e.name, e.is_delegated_op, pytest.approx([t * 1e6 for t in e.perf_data.raw], abs=1))
        for e in block.events
    ]
    calls = [times for name, _, times in theirs if name in ("OPERATOR_CALL", "DELEGATE_CALL")]
    rows = [row for row in summary.instructions if row.name]
    assert [row.totals for row in rows] == calls
    kernels = ["native_call_cumsum.out", "native_call_sort.values"]
    assert [name for name, _, _ in theirs if name.startswith("native_call_")] == kernels
    parts = {part.name: part.totals for parts in summary.parts.values() for part in parts}
    assert parts == {name: times for name, is_inside, times in theirs if is_inside}
    (again,) = read_etdump(path).summaries()
    assert [row.totals for row in again.instructions if row.totals] == [r.totals for r in rows]


def test_runs_of_compat_are_written(tmp_path: Path) -> None:
    """By the runtime, and by the older way to run a program; since the last time."""
    x = torch.ones(2, 8)
    paths = tmp_path / "runs.etdp", tmp_path / "values.bin"
    program = runtime.Runtime.get().load_program(mixed(), enable_etdump=True)
    for runs in (2, 1):
        for _ in range(runs):
            program.load_method("forward").execute([x])
        program.write_etdump_result_to_file(*map(str, paths))
        dump = devtools.deserialize_from_etdump_flatcc(paths[0].read_bytes())
        assert [block.name for block in dump.run_data] == ["Execute"] * runs
        assert paths[1].read_bytes() == b""
    with pytest.warns(UserWarning, match=r"times alone.*got debug_buffer_size=100"):
        module = portable_lib._load_for_executorch_from_buffer(mixed(), None, True, 100)
    assert module.has_etdump()
    module.forward((x,))
    module.write_etdump_result_to_file(str(paths[0]))
    assert len(devtools.Inspector(str(paths[0])).event_blocks) == 1
    without = portable_lib._load_for_executorch_from_buffer(mixed())
    assert not without.has_etdump()
    with pytest.raises(RuntimeError, match="try enable_etdump=True"):
        without.write_etdump_result_to_file(str(paths[0]))


def test_the_record_of_a_lowering_of_compat(tmp_path: Path) -> None:
    """ExecuTorch's two steps: asked for when lowered, taken from the finished program."""
    exported = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),))
    for lower in (exir.to_edge, exir.to_edge_transform_and_lower):
        program = lower(exported, generate_etrecord=True).to_executorch()
        record = program.get_etrecord()
        record.save(tmp_path / "etrecord.json")
        assert devtools.parse_etrecord(tmp_path / "etrecord.json") == record
        assert record.sha256 == hashlib.sha256(program.buffer).hexdigest()
