"""Whole plans on this machine: rows, files, failures, going on after a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep_zoo import Small, pairs, spread

import edgewise
from edgewise.cli import main
from edgewise.scale import LocalEngine, Store, make_plan, sweep
from edgewise.scale.combine import MEASURED
from edgewise.scale.page import render
from edgewise.scale.sweeping import PRELOAD
from edgewise.scale.task import Context

HERE = Path(__file__).parent
PLAN: dict[str, Any] = {
    "models": {"small": "sweep_zoo.py:small"},
    "backends": ["xnnpack", "ethos-u55-128"],
    "quantize": ["none", "int8", {"name": "found", "scheme": "int8", "search": {"limit": 1}}],
    "calibration": "sweep_zoo.py:batches",
    "evaluation": {"source": "sweep_zoo.py:pairs", "limit": 8},
    "metrics": ["top1", "sqnr", "sweep_zoo.py:spread"],
    "latency": {"seconds": 0.05},
    "limits": {"seconds": 120, "memory": "3 GiB"},
    "skip": [{"backend": "ethos-u55-128", "quantize": "found"}],
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of one store, for all tests here: workers take seconds to start."""
    store, root = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("plan")
    (root / "sweep_zoo.py").write_text((HERE / "sweep_zoo.py").read_text())
    with LocalEngine(2, context=Context(str(store), str(root)), preload=PRELOAD) as made:
        yield made, store, root


def run(engine: Any, plan: dict[str, Any], **options: Any) -> Any:
    made, store, root = engine
    return sweep(make_plan(plan, root=root), out=store, engine=made, **options)


def test_rows(engine: Any) -> None:
    told: list[tuple[int, int]] = []
    result = run(engine, PLAN, parquet=True, on_row=lambda row, p: told.append((p.done, p.total)))
    assert told == [(i + 1, 5) for i in range(5)]
    rows = {(row["backend"], row["quantize"]): row for row in result.rows}
    assert list(rows) == [
        ("xnnpack", "none"),
        ("xnnpack", "int8"),
        ("xnnpack", "found"),
        ("ethos-u55-128", "none"),
        ("ethos-u55-128", "int8"),
    ]
    assert [row["status"] for row in result.rows] == ["ok"] * 5, result.failed
    plain, npu = rows["xnnpack", "none"], rows["ethos-u55-128", "int8"]
    assert plain["SQNR dB"] > 100 > rows["xnnpack", "int8"]["SQNR dB"] > 20
    assert plain["delegated_macs"] == npu["delegated_macs"] == 1.0
    assert rows["ethos-u55-128", "none"]["delegates"] == 0
    assert npu["npu_cycles"] > 0
    assert 0 < npu["npu_ms"] < 1
    assert "latency_ms" not in npu
    assert 0 < plain["latency_ms"] < 100
    found = rows["xnnpack", "found"]
    assert len(found["trials"]) == 2
    assert found["keep_float"] in ([], ["conv"], ["out"])

    # Against the model itself: the same weights, the same data.
    torch.manual_seed(0)
    model = Small().eval()
    outputs = [(model(x).detach().numpy(), target) for x, target in pairs()]
    right = sum(int(y.argmax()) == int(t) for y, t in outputs)
    assert plain["top1 %"] == 100 * right / 8
    expected = sum(spread(y, t)["spread"] for y, t in outputs) / 8
    assert plain["spread"] == pytest.approx(expected, rel=1e-5)

    store = Store(engine[1])
    file = store.read(plain["program"])
    assert len(file) == plain["size_bytes"]
    (sample, _) = next(pairs())
    assert edgewise.load(file)(sample) == pytest.approx(outputs[0][0], abs=1e-5)
    assert "conv" in store.read(npu["report"]).decode()
    assert [json.loads(x) for x in store.read("rows.jsonl").splitlines()] == result.rows
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(engine[1] / "rows.parquet").to_pylist()
    assert [row["top1 %"] for row in table] == [row["top1 %"] for row in result.rows]


def test_again_runs_nothing_and_says_the_same(engine: Any) -> None:
    first = run(engine, PLAN)
    again = run(engine, PLAN)
    assert again.executed == 0
    assert again.rows == first.rows
    more = run(engine, PLAN | {"metrics": ["top1"]})
    assert more.executed == 5, "the evaluations alone"


def plan_of_a_metric(metric: str) -> dict[str, Any]:
    return {
        "models": {"small": "sweep_zoo.py:small"},
        "evaluation": "sweep_zoo.py:pairs",
        "metrics": [metric],
        "latency": False,
    }


def test_failures_are_rows(engine: Any) -> None:
    names = ["broken", "crashing", "sleeping", "closure"]
    models: dict[str, Any] = {
        name: {"source": f"sweep_zoo.py:{name}", "inputs": "sweep_zoo.py:inputs"} for name in names
    }
    models |= {"no_file": "nowhere.py:f", "no_name": "sweep_zoo.py:nobody"}
    plan = {"models": models, "quantize": ["none", "int4-weight"], "limits": {"seconds": 8}}
    result = run(engine, plan, retry_errors=True)
    found = {
        (row["model"], row["quantize"]): f"{row['stage']} {row['status']}: {row['error']}"
        for row in result.rows
    }
    for model, text in (
        ("broken", "load error: RuntimeError: no weights here"),
        ("crashing", "load crash: killed by SIGSEGV"),
        ("sleeping", "load time: longer than its 8 s"),
        ("no_file", "load error: [nowhere.py:f] a file must be there; got none"),
        ("no_name", "load error: [sweep_zoo.py:nobody] sweep_zoo.py must define nobody"),
    ):
        assert found[model, "none"].startswith(text), found[model, "none"]
    for metric in ("nowhere.py:f", "sweep_zoo.py:nobody"):
        (row,) = run(engine, plan_of_a_metric(metric)).rows
        assert row["error"].startswith(f"[{metric}]"), row
        assert row["stage"] == "evaluate"
    assert found["closure", "none"] == "None ok: None", "its values are kept, not its class"
    assert found["closure", "int4-weight"].startswith("build error: [quantize] group_size")


def test_exported_programs(engine: Any) -> None:
    program = torch.export.export(Small().eval(), (torch.zeros(1, 1, 6, 6),))
    torch.export.save(program, engine[2] / "small.pt2")
    plan = {
        "models": {"exported": "small.pt2"},
        "quantize": ["none", "int8-dynamic"],
        "evaluation": "sweep_zoo.py:pairs",
        "metrics": ["sqnr"],
        "latency": False,
    }
    rows = run(engine, plan).rows
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    assert rows[0]["SQNR dB"] > 100 > rows[1]["SQNR dB"] > 20
    assert "latency_ms" not in rows[0]


def test_page(engine: Any) -> None:
    rows = run(engine, PLAN).rows
    failed = {"model": "<b>", "backend": "xnnpack", "quantize": "none", "calibration": None,
              "status": "error", "stage": "build", "error": "[x] a </script> & more"}  # fmt: skip
    page = render("my <plan>", [*rows, failed], 9)
    assert "6 of 9 combinations, 1 failed" in page
    assert "my &lt;plan&gt;" in page
    # Three metrics, each by latency and by size; a point for each row that has both.
    assert page.count("<figure>") == 6
    assert page.count("data-row=") == 3 * (4 + 5)
    assert page.count("<script") == page.count("</script>") == 2
    for row in rows:
        assert f'href="{row["program"]}"' in page
        assert f'href="{row["report"]}"' in page
    assert not re.search(r'(src|href)="https?:', page)
    links = re.search(r'id="links">(.*?)</script>', page)
    assert links is not None
    assert [one["program"] for one in json.loads(links[1])][:5] == [r["program"] for r in rows]


def test_command_line(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("yaml")
    _, store, root = engine
    rows = run(engine, PLAN).rows
    file = root / "plan.yaml"
    file.write_text(json.dumps(PLAN))  # JSON is YAML
    assert main(["sweep", str(file), "--dry-run", "-o", str(store)]) == 0
    told = capsys.readouterr().out
    assert "5 combinations, 0 to run" in told
    assert main(["sweep", str(file), "--dry-run", "-o", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "5 combinations, 5 to run" in told
    assert "calibration, evaluation x 8 simulated" in told
    assert main(["sweep", str(file), "-o", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == rows
    assert main(["sweep", str(file), "-o", str(store)]) == 0
    shown = capsys.readouterr()
    assert "[5/5] small · ethos-u55-128 · int8" in shown.err
    assert f"5 rows in {store} (all of it was known)" in shown.out.replace("\n", " ")
    file.write_text("models: {m: zoo.py}")
    assert main(["sweep", str(file)]) == 1
    assert "[models.m.source] must be 'file.py:function'" in capsys.readouterr().err


def test_ctrl_c_leaves_whole_files_and_the_rest_goes_on(engine: Any) -> None:
    _, store, root = engine
    models = {
        f"m{i}": {"source": "sweep_zoo.py:small", "arguments": {"width": 9 + i}} for i in range(4)
    }
    plan = {"models": models, "latency": False}
    known = len(Store(store).keys())
    # It waits after each row, so that the signal comes before the last one on a busy machine, too.
    # Whoever runs the tests in the background has it ignored.
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from edgewise.scale import make_plan, sweep\n"
        "def told(*_):\n"
        "    print('row', flush=True)\n"
        "    time.sleep(5)\n"
        f"sweep(make_plan({plan!r}, root={str(root)!r}), out={str(store)!r}, workers=1,"
        " on_row=told)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "row\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert [path for path in store.rglob("*") if path.name.endswith(".part")] == []
    before = [json.loads(x) for x in (store / "rows.jsonl").read_text().splitlines()]
    assert 1 <= len(before) < 4
    assert f"{len(before)} of 4 combinations" in (store / "index.html").read_text()
    done = len(Store(store).keys()) - known
    after = run(engine, plan)
    assert after.executed == 8 - done, "two tasks a model, none of them twice"
    assert [row["status"] for row in after.rows] == ["ok"] * 4
    kept = [row for row in after.rows if row["model"] in {b["model"] for b in before}]
    assert kept == before


def test_measured_columns_are_columns(engine: Any) -> None:
    names = {name for row in run(engine, PLAN).rows for name in row}
    assert MEASURED - {"seconds"} <= names
