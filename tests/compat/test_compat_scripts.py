"""Scripts written for ExecuTorch run unchanged, with edgewise behind its import paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewise
from examples.models import MODELS
from support import DEEP, assert_close, eager

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# Script | delegates of its program | least signal to noise against eager PyTorch, in decibels:
# within 6 of what was measured. Integer arithmetic of a whole MobileNetV2, calibrated with one
# batch of noise, rounds in other places than PyTorch's reference of it, which 50 layers add up
# (21.8); of single layers nothing but a step here and there differs.
SCRIPTS: dict[str, tuple[list[str], float]] = {
    "xnnpack_quantization": (["XnnpackBackend"], 16),
    "xnnpack_quantization_before_torchao": (["XnnpackBackend"], 30),
    "llm_quantization": (["XnnpackBackend"], 30),
    "xnnpack_partitioner": (["XnnpackBackend"], 100),
    "ethosu_partitioner": (["EthosUBackend"], 35),
    "neutron_partitioner": (["NeutronBackend"], 35),
}


ASSERTING = ("run_program", "bundled_and_integers", "own_backend")


def _run(command: list[str], folder: Path) -> str:
    """The command's standard output. The scripts find `torchvision` in `stand_ins`."""
    path = os.pathsep.join([str(HERE / "stand_ins"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first script, run from the command line, has left its file."""
    folder = tmp_path_factory.mktemp("compat")
    _run(["-m", "edgewise.compat", str(HERE / "scripts" / "xnnpack_backend.py")], folder)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """What run_scripts.py says of the others, all in one process."""
    output = _run([str(HERE / "run_scripts.py"), *SCRIPTS, *ASSERTING], folder)
    return json.loads(output.splitlines()[-1])


def test_the_command_line(folder: Path) -> None:
    model = MODELS["mobilenet_v2"].build(0)
    x = torch.rand(1, 3, 224, 224)
    got = edgewise.load(folder / "mv2_xnnpack.pte")(x)
    assert_close([got], eager(model, (x,)), floor=DEEP)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(script: str, found: dict[str, Any]) -> None:
    delegates, decibels = SCRIPTS[script]
    assert found[script]["delegates"] == delegates
    assert found[script]["decibels"] >= decibels


@pytest.mark.parametrize("script", ASSERTING)
def test_under_the_old_names(script: str, found: dict[str, Any]) -> None:
    assert found[script] == {}  # its own assertions held


def test_every_row_of_the_table_is_there(found: dict[str, Any]) -> None:
    assert found["missing rows"] == []


def test_nothing_of_the_real_one_is_mixed_in(found: dict[str, Any]) -> None:
    assert found["real"] == []


# The peer's command line | the file that it writes | the delegate in it.
COMMANDS = {
    "executorch.examples.xnnpack.aot_compiler -m linear --delegate --quantize": (
        "linear_xnnpack_q8.pte",
        "XnnpackBackend",
    ),
    "executorch.backends.arm.scripts.aot_arm_compiler --model_name net.py --target ethos-u55-128 "
    "--delegate --quantize -o net.pte": ("net.pte", "EthosUBackend"),
}


@pytest.mark.peer
@pytest.mark.parametrize("command", COMMANDS)
def test_command_lines_of_the_peer(command: str, tmp_path: Path) -> None:
    """They are in its package, with the models that they compile."""
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "ModelUnderTest = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()\n"
        "ModelInputs = (torch.randn(1, 3, 8, 8),)\n"
    )
    _run(["-m", "edgewise.compat", "-m", *command.split()], tmp_path)
    file, delegate = COMMANDS[command]
    program = edgewise.runtime.Runtime.get().load_program(tmp_path / file)
    assert [one.backend for one in program.metadata("forward").delegates] == [delegate]


def test_a_target_of_others_is_refused_when_it_is_used() -> None:
    from edgewise.compat import elsewhere
    from edgewise.compat.arm import create_partitioner, create_quantizer

    with pytest.raises(NotImplementedError, match=r"\[VgfCompileSpec\] .* XNNPACK, Ethos-U and"):
        elsewhere.VgfCompileSpec("vgf")
    with pytest.raises(AttributeError, match="create_from_string"):
        elsewhere.TosaSpecification.create_from_string("TOSA-1.0+INT")
    for make in (create_partitioner, create_quantizer):
        with pytest.raises(TypeError, match="try EthosUCompileSpec"):
            make("vgf")  # type: ignore[arg-type]
        assert make(edgewise.backends.ethosu.EthosUCompileSpec("ethos-u55-128"))
