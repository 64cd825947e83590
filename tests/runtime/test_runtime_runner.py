"""`edgewise_run`, the runner without Python: outputs, figures, profile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from edgewise.runtime import Runtime
from support import Fn, assert_close, eager, lower

RUNNER = Path(__file__).parents[2] / "build" / "dev" / "native" / "tools" / "edgewise_run"

pytestmark = pytest.mark.skipif(not RUNNER.exists(), reason="not built: make native")

X = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [RUNNER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), Fn(lambda x: x.cumsum(1)), torch.nn.Sigmoid()
    )


@pytest.fixture(scope="module")
def file(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runner") / "model.pte"
    lower(model, (X,)).save(path)
    return path


def test_outputs(file: Path, model: torch.nn.Module, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    shown = run(file, "--input", tmp_path / "x.npy", "--output-dir", tmp_path / "a" / "b", "--json")
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert told["outputs"] == ["float32[1, 8, 14, 14]"]
    assert_close([np.load(told["files"][0])], eager(model, (X,)))
    assert "profile" not in told


def test_a_folder_for_outputs_that_is_a_file(file: Path) -> None:
    shown = run(file, "--output-dir", file)
    assert shown.returncode == 1
    assert "--output-dir must be a folder; " in shown.stderr


def test_a_bound_of_memory(file: Path) -> None:
    assert run(file, "--max-memory", 1 << 30).returncode == 0
    refused = run(file, "--max-memory", 64)
    assert refused.returncode == 1
    assert "max_memory is 64 bytes; the program plans" in refused.stderr
    wrong = run(file, "--max-memory", "0")
    assert wrong.returncode == 2
    assert "--max-memory takes a number from 1 on; got '0'" in wrong.stderr


def test_packed_weights_are_kept(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        done = run(file, "--cache-dir", cache)
        assert (done.returncode, done.stderr) == (0, "")
        assert list(cache.glob("packed/*/*"))
    cache.chmod(0o777)
    done = run(file, "--cache-dir", cache)
    assert done.returncode == 0
    assert done.stderr.startswith("edgewise: [cache]")


def test_profile(file: Path) -> None:
    """The rows are those that Python's profile has, and their times are the runs'."""
    told = _profile(file)
    assert told["dropped"] == 0
    assert sum(row["share"] for row in told["rows"]) == pytest.approx(1, abs=0.02)
    assert all(0 <= row["us"]["min"] <= row["us"]["median"] for row in told["rows"])
    assert all(row["us"]["median"] <= told["run_us"]["p90"] for row in told["rows"])
    found = {(row["instruction"], row["name"]) for row in told["rows"] if row["is_part"]}
    wanted = {(row["instruction"], row["name"]) for row in told["rows"] if not row["is_part"]}
    method = Runtime.get().load_program(file).load_method("forward")
    with edgewise.profile(warmup=1) as profile:
        for _ in range(3):
            method.execute([X.numpy()])
    steps = profile.to_dict()["methods"][0]["instructions"]
    parts = {(step["index"], part["name"]) for step in steps for part in step.get("parts", [])}
    assert found == parts
    assert {at for at, _ in wanted} == {step["index"] for step in steps}
    assert "aten::cumsum.out" in {name for _, name in wanted}


def _profile(file: Path) -> Any:
    shown = run(file, "--profile", "--json", "--iterations", 20, "--warmup", 2)
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert told["profile"]["runs"] == told["iterations"] == 20
    return told["profile"]


def test_profile_as_text(file: Path) -> None:
    shown = run(file, "--profile", "--iterations", 5)
    assert "profile of 5 runs" in shown.stdout
    assert "aten::cumsum.out" in shown.stdout
    assert "XnnpackBackend, around its operators" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "a model is needed; try --help"),
        (["no.pte"], 1, "No such file"),
        (["{}", "--input", "1"], 1, "'1' cannot be opened"),
        (["{}", "--iterations", "0"], 2, "--iterations takes a number from 1 on; got '0'"),
        (["{}", "--method", "encode"], 1, "encode"),
        (["{}", "--profil"], 2, "the option '--profil' is not known"),
        (["{}", "--fast=1"], 2, "the option '--fast' is not known"),
        (["{}", "--threads"], 2, "--threads needs a value"),
        (["{}", "--input", "{}"], 1, "this is no .npy file; try numpy.save"),
    ],
)
def test_mistakes(file: Path, arguments: list[str], code: int, message: str) -> None:
    shown = run(*[argument.format(file) for argument in arguments])
    assert shown.returncode == code
    assert message in shown.stderr
