"""The same on Ray: several nodes on this machine, one of them lost; a cluster that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from edgewise.quantize._torchao import prepare_pt2e
from edgewise.scale import RayEngine, Store, calibrate, evaluate, make_plan, sweep
from edgewise.scale.combine import MEASURED
from edgewise.scale.drive import Drive
from edgewise.scale.engine import run_all
from edgewise.scale.observers import observers_of
from edgewise.scale.task import Limits, Outcome, Task

HERE = Path(__file__).parent
ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each; workers find the tests' modules."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    paths = [str(HERE), str(HERE.parent), str(HERE.parents[1]), before or ""]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        made.add_node(**NODE)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def engine(cluster: Any) -> Iterator[RayEngine]:
    with RayEngine(cluster.address) as made:
        yield made


def test_outcomes_are_the_same_as_here(engine: RayEngine) -> None:
    assert engine.slots == 2
    wanted = [
        ("double", Limits(), "ok", ""),
        ("refuse", Limits(), "error", "[refuse] x must be 1; got 2"),
        ("crash", Limits(), "crash", "killed by SIGSEGV (Segmentation fault); last lines: the la"),
        ("sleep", Limits(seconds=0.3), "time", "longer than its 0.3 s"),
        ("eat", Limits(bytes=200 << 20), "memory", "more than its 200 MiB of memory"),
    ]
    tasks = [
        Task(f"scale_functions:{name}", {"x": 2}, limits=limits) for name, limits, _, _ in wanted
    ]
    for outcome, (_, _, status, text) in zip(run_all(engine, tasks), wanted, strict=True):
        assert outcome.status == status, outcome
        assert outcome.error.startswith(text)


def test_a_node_is_lost(cluster: Any, engine: RayEngine, tmp_path: Path) -> None:
    """Nothing is lost, and no result is there twice."""
    third = cluster.add_node(**NODE)
    count, ran = 24, tmp_path / "ran"

    def job(x: int) -> Any:
        arguments = {"x": x, "file": str(ran), "seconds": 0.4}
        (outcome,) = yield [Task("scale_functions:note", arguments)]
        return x, outcome

    store = Store(tmp_path / "store")
    drive: Drive[tuple[int, Outcome]] = Drive(engine, store)
    found = []
    for x, outcome in drive.run(job(x) for x in range(count)):
        found.append(x)
        assert (outcome.status, outcome.value) == ("ok", 2 * x)
        if len(found) == 6:
            # It is working, and gone without a word.
            cluster.remove_node(third, allow_graceful=False)
    assert sorted(found) == list(range(count))
    assert drive.executed == count
    assert len(store.keys()) == count
    started = [int(line) for line in ran.read_text().split()]
    assert set(started) == set(range(count))
    again: Drive[tuple[int, Outcome]] = Drive(engine, store)
    assert len(list(again.run(job(x) for x in range(count)))) == count
    assert again.executed == 0


class Scores(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


def pair(batch: Any) -> Any:
    return torch.as_tensor(batch["x"].copy()), torch.as_tensor(batch["y"].copy())


@pytest.mark.slow
def test_datasets_of_ray_data(engine: RayEngine) -> None:
    import ray.data

    import edgewise
    from edgewise.backends.xnnpack.lowering.quantizer import XNNPACKQuantizer
    from edgewise.edge.export import export_module
    from edgewise.quantize.flow import configured
    from edgewise.quantize.schemes import scheme_of

    ray.data.DataContext.get_current().enable_progress_bars = False
    torch.manual_seed(0)
    model, x = Scores().eval(), torch.randn(64, 4)
    y = torch.where(torch.arange(64) % 4 == 0, 0, model(x).argmax(1))
    quantizer = configured(XNNPACKQuantizer, scheme_of("int8"))
    alone, sharded = (
        prepare_pt2e(export_module(model, (x[:1],)).module(), quantizer) for _ in range(2)
    )
    with torch.no_grad():
        for row in x.split(1):
            alone(row)
    inputs = ray.data.from_items([{"x": v.numpy()} for v in x], override_num_blocks=4)
    assert calibrate(sharded, inputs, shard=16) == 64
    found = observers_of(dict(sharded.named_modules()))
    for name, observer in observers_of(dict(alone.named_modules())).items():
        assert torch.equal(observer.min_val, found[name].min_val)
        assert torch.equal(observer.max_val, found[name].max_val)

    program = edgewise.compile(model, (x[:1],), verbose=False)
    items = [{"x": a.numpy(), "y": int(b)} for a, b in zip(x, y, strict=True)]
    labelled = ray.data.from_items(items, override_num_blocks=4)
    right = 100 * int((model(x).argmax(1) == y).sum()) / 64
    assert 0 < right < 100
    assert evaluate(program, labelled, "top1", shard=16, to_item=pair) == {"top1 %": right}


PLAN: dict[str, Any] = {
    "models": {
        "small": "sweep_zoo.py:small",
        "crashing": {"source": "sweep_zoo.py:crashing", "inputs": "sweep_zoo.py:inputs"},
    },
    "backends": ["xnnpack", "ethos-u55-128"],
    "quantize": ["none", "int8"],
    "calibration": "sweep_zoo.py:batches",
    "evaluation": "sweep_zoo.py:pairs",
    "metrics": ["top1", "sqnr", "sweep_zoo.py:spread"],
    "latency": {"seconds": 0.05},
    "limits": {"seconds": 120, "memory": "3 GiB"},
}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[str]:
    """The address of a head that `ray start` started, with one CPU and nothing else."""
    port = 20000 + os.getpid() % 20000
    folder = f"/tmp/ray-{os.getpid()}"
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}",
        "--num-cpus=1", "--object-store-memory=80000000", "--include-dashboard=false",
        "--disable-usage-stats", f"--temp-dir={folder}",
    ]  # fmt: skip
    if not Path(command[0]).exists():
        command[:1] = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
    log = (tmp_path / "head.log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert process.poll() is None, (tmp_path / "head.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        log.close()


def test_the_same_plan_gives_the_same_rows(started: str, tmp_path: Path) -> None:
    """By `edgewise sweep --ray` on a cluster that was started, and by processes here."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "sweep_zoo.py").write_text((HERE / "sweep_zoo.py").read_text())
    (folder / "plan.yaml").write_text(json.dumps(PLAN))
    there = subprocess.run(
        [sys.executable, "-m", "edgewise", "sweep", str(folder / "plan.yaml"), "--ray", started,
         "--json", "--quiet"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert there.returncode == 0, there.stderr
    result = json.loads(there.stdout)
    assert result["location"] == str(folder / "results")
    here = sweep(make_plan(PLAN, root=folder), out=tmp_path / "here", workers=1)
    assert [plain(row) for row in result["rows"]] == [plain(row) for row in here.rows]
    assert [row["status"] for row in here.rows] == ["ok"] * 4 + ["crash"] * 4
    # The same files too: programs are named by their content.
    assert {row["program"] for row in here.rows[:4]} == {r["program"] for r in result["rows"][:4]}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the machine."""
    return {name: value for name, value in row.items() if name not in MEASURED}
