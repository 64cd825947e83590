"""Profiles of real runs: what is recorded, by whom, and where it comes from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_profiling_figures import assert_is_trace

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.profiling import Profile
from edgewise.runtime import Method, Runtime, register_backend
from examples.models import MODELS

X = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Sequential(torch.nn.Conv2d(8, 4, 1), torch.nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.head(self.conv(x)))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as one XNNPACK delegate, with its record."""
    path = tmp_path_factory.mktemp("profiling") / "body.pte"
    program = edgewise.compile(Body(), (torch.from_numpy(X),), verbose=False)
    program.save(path, record=True)
    return path


def load(file: Path | bytes, name: str = "forward", threads: int = 1) -> Method:
    return Runtime.get().load_program(file, threads=threads).load_method(name)


def lowered(programs: Any) -> bytes:
    return bytes(edgewise.to_edge(programs).to_executorch().buffer)


def recorded(function: Callable[[], object], record: Any = None, warmup: int = 0) -> Profile:
    with edgewise.profile(record=record, warmup=warmup) as profile:
        function()
    return profile


def test_operators_of_a_delegate_lead_to_modules_and_lines(file: Path) -> None:
    method = load(file)
    plain = method.execute([X])
    outputs: list[Any] = []
    profile = recorded(lambda: outputs.extend(method.execute([X]) for _ in range(4)))
    for output in outputs:
        assert np.array_equal(output[0], plain[0])
    (summary,) = profile.summaries()
    # Which kernels run them depends on the CPU.
    locations = {(row.location.type, row.location.module) for row in summary.parts[0]}
    assert {("Conv2d", "conv"), ("Conv2d", "head.0"), ("Body", "")} <= locations
    line = (
        Path(__file__)
        .read_text()
        .splitlines()
        .index("        return torch.sigmoid(self.head(self.conv(x)))")
    )
    (sigmoid,) = [row for row in summary.parts[0] if "Sigmoid" in row.name]
    assert sigmoid.location.source.endswith(f"test_profiling_runs.py:{line + 1}")
    assert all(row.events == 4 and all(row.totals) for row in summary.parts[0])
    # Nothing is counted twice: the parts lie inside of their delegate, that inside of the run.
    inside = sum(sum(row.totals) for row in summary.parts[0])
    assert 0 < inside <= sum(summary.instructions[0].totals) <= summary.total
    assert summary.execute.p50 <= summary.call.p50


def test_operators_add_up_to_the_run() -> None:
    """Of MobileNetV2's wall time, the operators inside its one delegate have over 90 %: what is
    left is looking at arguments and setting up, some ten microseconds."""
    spec = MODELS["mobilenet_v2"]
    program = edgewise.compile(spec.build(), spec.example_inputs(0), verbose=False)
    method = load(bytes(program.buffer), threads=2)
    x = spec.example_inputs(0)[0].numpy()
    walls: list[int] = []

    def run() -> None:
        for _ in range(8):
            begin = time.monotonic_ns()
            method.execute([x])
            walls.append(time.monotonic_ns() - begin)

    (summary,) = recorded(run, program.record(), warmup=3).summaries()
    (delegate,) = summary.instructions
    inside = [sum(items) for items in zip(*(r.totals for r in summary.parts[0]), strict=True)]
    # On a busy machine a run may be interrupted anywhere: the best one counts.
    assert max(i / w for i, w in zip(inside, walls[3:], strict=True)) > 0.9
    assert all(i <= d <= w for i, d, w in zip(inside, delegate.totals, walls[3:], strict=True))
    # By kernels of any name: which depends on the CPU. The image's layout counts as its reader's.
    rows = [row for row in summary.parts[0] if "Image entry" not in row.name]
    found = [(row, node) for row in rows for node in row.location.nodes]
    found = [(row, node) for row, node in found if node.startswith("convolution")]
    convolving = [row for row, _ in found]
    convolutions = [node for _, node in found]
    assert len(convolutions) == len(set(convolutions)) == 52
    # Where several convolutions are one row, its module is the block that they are in.
    assert all(row.location.module.startswith("features") for row in convolving)


def test_each_convolution_of_xnnpack_has_a_row() -> None:
    spec = MODELS["mobilenet_v2"]
    program = edgewise.compile(spec.build(), spec.example_inputs(0), verbose=False)
    loaded = Runtime.get().load_program(bytes(program.buffer), threads=2, own_kernels=False)
    x = spec.example_inputs(0)[0].numpy()
    method = loaded.load_method("forward")
    (summary,) = recorded(lambda: method.execute([x]), program.record()).summaries()
    convolutions = [row for row in summary.parts[0] if "Conv" in row.name]
    assert len(convolutions) == 52
    assert all(row.location.type == "Conv2d" and row.location.source for row in convolutions)
    assert len({row.location.module for row in convolutions}) == 52


def test_kernels_without_a_delegate() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) * x

    exported = torch.export.export(Model(), (torch.ones(4),))
    method = load(lowered(exported))
    (runs,) = recorded(lambda: method.execute([np.ones(4, np.float32)])).methods
    kernels = [runs.instructions[e.instruction].name for e in runs.runs[0].events]
    assert kernels == ["aten::tanh.out", "aten::mul.out"]
    assert runs.file == ""


def test_branches_that_ran() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos().exp(), (x,))

    exported = torch.export.export(Model(), (torch.ones(4),))
    method = load(lowered(exported))

    def run() -> None:
        for sign in (1, -1, -1, -1):
            method.execute([np.full(4, sign, np.float32)])

    (summary,) = recorded(run).summaries()
    rows = {row.name: row for row in summary.instructions if row.kind == "kernel"}
    assert rows["aten::sin.out"].events == 1
    assert rows["aten::cos.out"].events == rows["aten::exp.out"].events == 3
    assert [total > 0 for total in rows["aten::exp.out"].totals] == [False, True, True, True]
    assert sum(row.events for row in summary.instructions if row.kind == "jump") >= 4


def test_methods_nested_profiles_and_those_that_come_later(file: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Less(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - 2

    example = (torch.ones(2),)
    both = {"a": torch.export.export(Twice(), example), "b": torch.export.export(Less(), example)}
    model = edgewise.load(lowered(both), method="a")
    x = np.ones(2, np.float32)
    with edgewise.profile() as outer:
        model(x)
        with edgewise.profile() as inner:
            model.b(x)
            model(x)
        assert {r.method: len(r.runs) for r in inner.methods} == {"b": 1, "a": 1}
        model.b(x)
    model(x)  # nobody sees it
    assert {r.method: len(r.runs) for r in outer.methods} == {"a": 2, "b": 2}
    assert {r.method: len(r.runs) for r in inner.methods} == {"b": 1, "a": 1}
    assert "aten::mul." in outer.table()
    assert "aten::sub." in outer.table()


def test_threads(file: Path) -> None:
    """Each thread's runs are recorded with that thread, in profiles of any thread."""
    methods = [load(file), load(file), load(file)]
    barrier = threading.Barrier(3)

    def work(method: Method) -> None:
        barrier.wait()
        for _ in range(5):
            with edgewise.profile() as own:
                method.execute([X])
            assert sum(len(r.runs) for r in own.methods) >= 1

    workers = [threading.Thread(target=work, args=(method,)) for method in methods]

    def run() -> None:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    profile = recorded(run)
    (runs,) = profile.methods  # of one file: the same method
    assert len(runs.runs) == 15
    assert len({r.thread for r in runs.runs}) == 3
    document = _trace(profile)
    assert len([e for e in document["traceEvents"] if e["name"] == "thread_name"]) == 6


def _trace(profile: Profile) -> dict[str, Any]:
    import json
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        profile.save_trace(Path(folder) / "t.json")
        document: dict[str, Any] = json.loads((Path(folder) / "t.json").read_text())
    assert_is_trace(document)
    return document


def test_a_run_that_fails_is_not_recorded(file: Path) -> None:
    method = load(file)
    with edgewise.profile() as profile, pytest.raises(ValueError, match="input 0"):
        method.execute([X[:, :1]])
    assert profile.methods == []
    assert [len(r.runs) for r in recorded(lambda: method.execute([X])).methods] == [1]


def test_warmup_and_wrong_uses(file: Path) -> None:
    method = load(file)
    profile = recorded(lambda: [method.execute([X]) for _ in range(5)], warmup=2)
    assert [len(r.runs) for r in profile.methods] == [3]
    with pytest.raises(ValueError, match="warmup must be 0 or more; got -1"):
        edgewise.profile(warmup=-1)
    once = edgewise.profile()
    with once:
        pass
    with pytest.raises(RuntimeError, match="opened once"):
        once.__enter__()


def test_backends_in_python_tell_their_parts() -> None:
    class Delegate:
        def __call__(self, arguments: list[Any]) -> list[Any]:
            return [arguments[0] * 2]

        def profiled(self, arguments: list[Any], record: Callable[..., None]) -> list[Any]:
            begin = time.monotonic_ns()
            result = self(arguments)
            for name in ("load", "compute", "compute"):
                end = time.monotonic_ns()
                record(name, begin, end, nodes=[1, 2], counters={"cycles": 5.0})
                begin = end
            self.kept = record
            return result

    delegate = Delegate()
    exported = torch.export.export(Body(), (torch.from_numpy(X),))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    data = bytes(edge.to_executorch().buffer)
    register_backend("ProfiledDevice", lambda payload, specs, data: _Shape(delegate))
    method = load(data.replace(b"XnnpackBackend", b"ProfiledDevice"))
    (runs,) = recorded(lambda: method.execute([X])).methods
    (run,) = runs.runs
    parts = [(e.part.name, e.part.payload, e.part.counters, e.part.occurrence)
             for e in run.events if e.part]  # fmt: skip
    assert parts == [
        ("load", (1, 2), {"cycles": 5.0}, 0),
        ("compute", (1, 2), {"cycles": 5.0}, 0),
        ("compute", (1, 2), {"cycles": 5.0}, 1),
    ]
    with pytest.raises(edgewise.runtime.BackendError, match="while its delegate runs"):
        delegate.kept("late", 0, 1)


class _Shape:
    """Gives what the delegate computes in the output's shape."""

    def __init__(self, delegate: Any) -> None:
        self._delegate = delegate

    def __call__(self, arguments: list[Any]) -> list[Any]:
        self._delegate(arguments)
        return [arguments[1]]

    def profiled(self, arguments: list[Any], record: Callable[..., None]) -> list[Any]:
        self._delegate.profiled(arguments, record)
        return [arguments[1]]


def test_ethosu_simulator(tmp_path: Path) -> None:
    pytest.importorskip("ethosu", reason="extra [ethosu]")
    path = tmp_path / "npu.pte"
    program = edgewise.compile(
        torch.nn.Conv2d(3, 8, 3),
        (torch.from_numpy(X),),
        backend="ethos-u55-128",
        quantize="int8",
        calibration=[(torch.from_numpy(X),)],
        verbose=False,
    )
    program.save(path, record=True)
    profile = recorded(lambda: load(path).execute([X]))
    (found,) = profile.to_dict()["methods"]
    (delegate,) = [i for i in found["instructions"] if i["kind"] == "delegate"]
    assert "Conv2D (NPU_OP_CONV)" in {part["name"] for part in delegate["parts"]}
    (estimate,) = found["estimates"]
    assert estimate["figures"]["cycles"] > 0
    assert f"{estimate['figures']['cycles']:,.0f} by Vela" in str(profile)
    assert {"module", "source", "model cycles"} <= set(estimate["layers"][-1])


def test_command(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from edgewise.cli import main

    trace, saved = tmp_path / "trace.json", tmp_path / "profile.json"
    common = ["profile", str(file), "--runs", "3", "--warmup", "1", "--threads", "1"]
    assert main([*common, "--trace", str(trace), "--output", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "body.pte: 3 runs" in text
    assert "head.0" in text
    assert_is_trace(json.loads(trace.read_text()))
    assert json.loads(saved.read_text())["methods"][0]["runs"] == 3
    assert main([*common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"][0]["method"] == "forward"
    assert main([*common, "--by", "module"]) == 0
    assert "conv" in capsys.readouterr().out
    assert main([*common, "--program", "other.pte"]) == 1
    assert "goes with an .etdp file" in capsys.readouterr().err
