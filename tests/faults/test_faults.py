"""Every call by which a command writes fails once: the disk is full, broken, takes half, the folder
takes nothing, or Ctrl-C comes. What was there stays or is replaced as a whole, the error is told,
nothing is left behind, also of temporary files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
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
KINDS = ["ENOSPC", "EIO", "EROFS", "short", "SIGINT"]
"""As in faults.c."""
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
SWEEP = """
models: {net: "model.py:net"}
backends: [xnnpack]
quantize: [none]
latency: false
"""
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
    "compare": ["compare", "{in}/model.py:net", "-q", "--svg", "{out}/layers.svg"],
    "ethosu trace": ["ethosu", "trace", "{npu}", "-o", "{out}/trace.json"],
    "ethosu package": ["ethosu", "package", "{in}/npu.pte", "-o", "{out}/firmware"],
}
"""All that write files, with those of the slow test below. {npu}: a payload."""
SLOW = {
    "compile, ethosu": [
        *["compile", "{in}/model.py:net", "-q", "--backend", "ethos-u55-128"],
        *["--quantize", "int8", "--calibration", "{in}/x.npy", "-o", "{out}/npu.pte"],
    ],
    "llm export": [
        *["llm", "export", "--config", "{in}/llama.json", "-o", "{out}/llama.pte"],
        *["--max-context-len", "16", "--max-seq-len", "8", "--quantize", "none"],
    ],
    "sweep": [
        *["sweep", "{in}/plan.yaml", "-q", "-j", "1", "--retry-errors", "--parquet"],
        *["-o", "{out}"],
    ],
}
NEEDS = {"compile, ethosu": "ethosu.vela", "llm export": "transformers"}
Workers = Callable[[str], "subprocess.Popen[str]"]
PAYLOAD = HERE.parent / "fuzz" / "corpus" / "ethosu" / "ethos-u55-128.bin"


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("layer") / "faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", made, HERE / "faults.c", "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.py`, its `net.pte` with a record, `x.npy`, `llama.json`, `plan.yaml`."""
    place = tmp_path_factory.mktemp("faults")
    (place / "model.py").write_text(MODEL)
    (place / "llama.json").write_text(json.dumps(TINY))
    (place / "plan.yaml").write_text(SWEEP)
    torch.manual_seed(0)
    program = edgewise.compile(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), verbose=False)
    program.save(place / "net.pte", record=True)
    np.save(place / "x.npy", np.ones((2, 4), np.float32))
    return place


@pytest.fixture(scope="module")
def workers(layer: Path, folder: Path) -> Iterator[Workers]:
    """A process for each kind of command, as forks of small ones are cheap: those without torch,
    those with it, sweeps."""
    started: dict[str, subprocess.Popen[str]] = {}

    def worker(command: str) -> subprocess.Popen[str]:
        kind = command if command in ("sweep", "compile", "compare", "llm") else "small"
        if kind not in started:
            started[kind] = subprocess.Popen(
                [sys.executable, "-W", "ignore", HERE / "worker.py", folder / kind],
                env={
                    **os.environ,
                    "LD_PRELOAD": str(layer),
                    "TERM": "dumb",
                    "PYTHONPATH": str(HERE.parent),
                    "OMP_NUM_THREADS": "1",  # its forks would miss the others
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return started[kind]

    yield worker
    for process in started.values():
        process.communicate()


def wrong(workers: Workers, words: list[str], folder: Path) -> Any:
    process = workers(words[0])
    assert process.stdin is not None
    assert process.stdout is not None
    places = {"{in}": str(folder), "{npu}": str(PAYLOAD)}
    given = words
    for sign, path in places.items():
        given = [word.replace(sign, path) for word in given]
    asked = {"words": given, "kinds": KINDS, "again": words[0] == "sweep"}
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline() or '["the process ended"]')


@pytest.mark.parametrize("name", COMMANDS)
def test_each_call_that_writes_fails(name: str, workers: Workers, folder: Path) -> None:
    words = COMMANDS[name]
    if "{in}/npu.pte" in words:
        pytest.importorskip("ethosu.vela")
        made = [word.replace("{in}", str(folder)) for word in SLOW["compile, ethosu"]]
        assert main([word.replace("{out}", str(folder)) for word in made]) == 0
    assert wrong(workers, words, folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_each_call_that_writes_fails_slowly(name: str, workers: Workers, folder: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert wrong(workers, SLOW[name], folder) == []


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
