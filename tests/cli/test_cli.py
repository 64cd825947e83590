"""The command `edgewise`, as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import Command

import edgewise
from edgewise.cli.app import COMMANDS
from edgewise.cli.errors import EXIT_CODES

GROUPS = {
    "ethosu": ["disassemble", "package", "trace"],
    "llm": ["chat", "export", "run", "serve", "transcribe"],
}
"""Commands that have commands."""

_WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
from edgewise.cli import main
sys.exit(main({arguments!r}))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgewise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def run_without(names: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """As `run`, where modules of these names cannot be imported."""
    code = _WITHOUT.format(names=names, arguments=list(arguments))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_typed() -> None:
    assert run("--version").stdout == f"edgewise {edgewise.__version__}\n"
    shown = run("inspect")
    assert shown.returncode == 2
    assert shown.stderr == "error: Missing argument 'FILE'. Try: edgewise inspect --help\n"


def test_help(command: Command) -> None:
    shown = command()
    assert shown.code == 0
    assert shown.out == command("--help").out
    assert "\x1b" not in shown.out
    for name, entry in COMMANDS.items():
        if name in shown.out:
            assert entry.summary in shown.out
            for words in ([name], *([name, inner] for inner in GROUPS.get(name, []))):
                detail = command(*words, "--help")
                assert detail.code == 0
                assert ("--json" in detail.out) == (words != [name] or name not in GROUPS), words
    assert {"compile", "run", "inspect", "doctor"} <= set(shown.out.split())


def test_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"`edgewise {name}" in page, name
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text} |" in page


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra(missing: str) -> None:
    shown = run_without([missing], "doctor")
    assert shown.returncode == 3
    assert f"got no {missing}; try pip install 'edgewise[cli]'" in shown.stderr
    assert run_without([missing], "--version").returncode == 0


def test_without_torch(folder: Path) -> None:
    """Running and looking take numpy alone; compiling says what it takes."""
    lacking = ["torch", "flatbuffers", "torchao"]
    for arguments in (("run", "--json"), ("inspect", "--all"), ("explain", "--modules", "1")):
        shown = run_without(lacking, arguments[0], str(folder / "float.pte"), *arguments[1:])
        assert shown.returncode == 0, shown.stderr
    shown = run_without(lacking, "compile", f"{folder}/model.py:make")
    assert shown.returncode == 3
    assert "try pip install 'edgewise[export]'" in shown.stderr


def test_reader_that_leaves(folder: Path) -> None:
    """`edgewise ... | head -1` neither fails with a traceback nor hangs."""
    command = [sys.executable, "-m", "edgewise", "inspect", str(folder / "float.pte"), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read().decode()
        process.wait(timeout=60)
    assert told == ""


def test_completion() -> None:
    import os

    env = {**os.environ, "_EDGEWISE_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    env["COMP_WORDS"] = "edgewise compile --backend ethos-u85-1"
    command = [sys.executable, "-m", "edgewise"]
    shown = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert shown.stdout.split() == ["ethos-u85-128", "ethos-u85-1024"]


def test_disassemble(tmp_path: Path, command: Command) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ethosu", reason="extra [ethosu]")
    model, x = torch.nn.Conv2d(3, 8, 3), (torch.randn(1, 3, 8, 8),)
    path = tmp_path / "model.pte"
    edgewise.compile(
        model, x, backend="ethos-u55-128", quantize="int8", calibration=[x], verbose=False
    ).save(path)
    shown = command("ethosu", "disassemble", path)
    assert shown.code == 0, shown.err
    for part in ("delegate 0:", "NPU_OP_CONV", "NPU_SET_KERNEL_HEIGHT_M1", "NPU_OP_STOP"):
        assert part in shown.out
    (told,) = command("ethosu", "disassemble", path, "--json").json["delegates"]
    assert told["scratch_bytes"] > 0
    assert any("NPU_OP_STOP" in line for line in told["commands"])
    inside = command("inspect", path, "--json").json["methods"][0]["delegates"][0]["graph"]
    assert inside["facts"]["target"] == "ethos-u55-128"
    assert inside["facts"]["operations"]["NPU_OP_CONV"] >= 1
