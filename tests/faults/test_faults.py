"""Every call by which a command writes fails once: the disk is full, broken, writes half, or Ctrl-C
comes. What was there stays or is replaced as a whole, the error is told, nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from edgewise.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD of a layer for Linux")

HERE = Path(__file__).parent
RUNNER = HERE.parents[1] / "build" / "dev" / "native" / "tools" / "edgewise_run"
KINDS = ["ENOSPC", "EIO", "short", "SIGINT"]
MODEL = """
import torch


def net():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)
"""
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "vocab_size": 32,
    "max_position_embeddings": 32,
}
COMMANDS = {
    "compile": ["compile", "{in}/model.py:net", "-q", "-o", "{out}/net.pte"],
    "compile, quantized": [
        *["compile", "{in}/model.py:net", "-q", "--quantize", "int8-dynamic"],
        *["-o", "{out}/integers.pte"],
    ],
    "run, .npy": ["run", "{in}/net.pte", "-o", "{out}/y.npy"],
    "run, .npz": ["run", "{in}/net.pte", "-o", "{out}/y.npz"],
    "profile": ["profile", "{in}/net.pte", "-o", "{out}/profile.json"],
    "profile, a trace": ["profile", "{in}/net.pte", "--trace", "{out}/trace.json"],
    "report": ["report", "{in}/net.pte", "-o", "{out}/report.html"],
    "ethosu trace": ["ethosu", "trace", "{npu}", "-o", "{out}/trace.json"],
}
"""All that write files, with those of the slow tests below. {npu}: a payload."""
SLOW = {
    "compile, ethosu": [
        *["compile", "{in}/model.py:net", "-q", "--backend", "ethos-u55-128"],
        *["--quantize", "int8", "--calibration", "{in}/x.npy", "-o", "{out}/npu.pte"],
    ],
    "compare": ["compare", "{in}/model.py:net", "-q", "--svg", "{out}/layers.svg"],
    "ethosu package": ["ethosu", "package", "{in}/npu.pte", "-o", "{out}/firmware"],
}
PAYLOAD = HERE.parent / "fuzz" / "corpus" / "ethosu" / "ethos-u55-128.bin"


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("layer") / "faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", made, HERE / "faults.c", "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.py`, its `net.pte` with a record, `x.npy`, `llama.json`."""
    place = tmp_path_factory.mktemp("faults")
    (place / "model.py").write_text(MODEL)
    (place / "llama.json").write_text(json.dumps(TINY))
    torch.manual_seed(0)
    program = edgewise.compile(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), verbose=False)
    program.save(place / "net.pte", record=True)
    np.save(place / "x.npy", np.ones((2, 4), np.float32))
    return place


@pytest.fixture(scope="module")
def worker(layer: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", HERE / "worker.py", folder],
        env={**os.environ, "LD_PRELOAD": str(layer), "TERM": "dumb"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


def wrong(process: subprocess.Popen[str], words: list[str], folder: Path) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    places = {"{in}": str(folder), "{npu}": str(PAYLOAD)}
    given = words
    for sign, path in places.items():
        given = [word.replace(sign, path) for word in given]
    process.stdin.write(json.dumps({"words": given, "kinds": KINDS}) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline() or '["the process ended"]')


@pytest.mark.parametrize("name", COMMANDS)
def test_each_call_that_writes_fails(
    name: str, worker: subprocess.Popen[str], folder: Path
) -> None:
    assert wrong(worker, COMMANDS[name], folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_each_call_that_writes_fails_slowly(
    name: str, worker: subprocess.Popen[str], folder: Path
) -> None:
    words = SLOW[name]
    if "ethosu" in name:
        pytest.importorskip("ethosu.vela")
    if "{in}/npu.pte" in words:
        npu = folder / "npu.pte"
        made = [word.replace("{in}", str(folder)) for word in SLOW["compile, ethosu"]]
        assert main([word.replace("{out}/npu.pte", str(npu)) for word in made]) == 0
    assert wrong(worker, words, folder) == []


SWEEP = """
models: {net: "model.py:net"}
backends: [xnnpack]
quantize: [none]
latency: false
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "numbers"), [("ENOSPC", (1, 2, 5)), ("EIO", (3,)), ("short", (8,))]
)
def test_a_sweep_goes_on_after_a_fault(
    kind: str, numbers: tuple[int, ...], layer: Path, folder: Path, tmp_path: Path
) -> None:
    """The n-th call that writes fails in each of its processes: what is there is whole, and the
    next run makes the rest."""
    (folder / "plan.yaml").write_text(SWEEP)
    out = tmp_path / "results"
    command = [sys.executable, "-m", "edgewise", "sweep", folder / "plan.yaml", "-q", "-j", "1"]

    def sweep(**faults: str) -> subprocess.CompletedProcess[str]:
        given = {**os.environ, **faults}
        words = [*command, "--retry-errors", "-o", out]
        return subprocess.run(words, env=given, capture_output=True, text=True)

    for number in numbers:
        shutil.rmtree(out, ignore_errors=True)
        done = sweep(
            LD_PRELOAD=str(layer), FAULT_AT=str(number), FAULT_KIND=kind, FAULT_FOLDER=str(out)
        )
        assert "Traceback" not in done.stderr, done.stderr
        told = done.stderr + done.stdout
        assert "[Errno" in told or "space" in told or "output error" in told, told
        assert not list(out.rglob("*.part"))
        done = sweep()
        assert done.returncode == 0, done.stderr
        (row,) = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
        assert row["status"] == "ok", row
        assert (out / "index.html").stat().st_size


@pytest.mark.slow
def test_each_call_that_writes_fails_for_a_language_model(
    worker: subprocess.Popen[str], folder: Path
) -> None:
    pytest.importorskip("transformers")
    words = ["llm", "export", "--config", "{in}/llama.json", "-o", "{out}/llama.pte"]
    sizes = ["--max-context-len", "16", "--max-seq-len", "8", "--quantize", "none"]
    assert wrong(worker, [*words, *sizes], folder) == []


@pytest.mark.skipif(not RUNNER.exists(), reason="not built: make native")
@pytest.mark.parametrize("before", [{}, {"output_0.npy": b"of a run before"}], ids=["new", "over"])
@pytest.mark.parametrize(
    ("kind", "code"), [("ENOSPC", 1), ("EIO", 1), ("short", 1), ("SIGINT", -2)]
)
def test_the_runner(
    kind: str, code: int, before: dict[str, bytes], layer: Path, folder: Path, tmp_path: Path
) -> None:
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    for number in range(1, 20):
        done = subprocess.run(
            [RUNNER, folder / "net.pte", "--input", folder / "x.npy", "--output-dir", tmp_path],
            env={
                **os.environ,
                "LD_PRELOAD": str(layer),
                "FAULT_AT": str(number),
                "FAULT_KIND": kind,
                "FAULT_FOLDER": str(tmp_path),
            },
            capture_output=True,
            text=True,
            # A shell that runs the tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        if done.returncode == 0:
            break
        assert done.returncode == code, done.stderr
        found = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        if kind == "SIGINT":  # ends the process at once: what it wrote beside stays
            found = {n: d for n, d in found.items() if n == "output_0.npy"}
            assert found in ({}, before) or np.load(tmp_path / "output_0.npy").shape == (2, 3)
            continue
        assert "cannot be written" in done.stderr
        assert found == before
    assert number > 2  # the write, the sync, the rename
    assert np.load(tmp_path / "output_0.npy").shape == (2, 3)


NOWHERE = {
    "a folder to read from only": ["run", "{in}/net.pte", "-o", "{closed}/y.npy"],
    "a folder that is not there": ["run", "{in}/net.pte", "-o", "{in}/none/y.npy"],
    "report on a full device": ["report", "{in}/net.pte", "-o", "/dev/full"],
}


@pytest.mark.parametrize("name", NOWHERE)
def test_no_place_to_write(name: str, folder: Path, tmp_path: Path, capsys: Any) -> None:
    if "{closed}" in str(NOWHERE[name]) and os.geteuid() == 0:
        pytest.skip("nothing is closed to root")
    tmp_path.chmod(0o500)
    places = {"{in}": str(folder), "{closed}": str(tmp_path)}
    words = NOWHERE[name]
    for sign, path in places.items():
        words = [word.replace(sign, path) for word in words]
    assert main(words) == 1
    assert "[file]" in capsys.readouterr().err


OUTPUTS = {
    "edgewise": [sys.executable, "-m", "edgewise", "inspect"],
    "edgewise --json": [sys.executable, "-m", "edgewise", "inspect", "--json"],
    "edgewise_run": [RUNNER],
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("where", ["/dev/full", "closed"])
def test_standard_output_that_takes_nothing(name: str, where: str, folder: Path) -> None:
    if OUTPUTS[name] == [RUNNER] and not RUNNER.exists():
        pytest.skip("not built: make native")
    redirect = ">&-" if where == "closed" else f"> {where}"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *map(str, OUTPUTS[name]), folder / "net.pte"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr or "[file]" in done.stderr
