"""The runtime built for Arm and Windows gives under qemu-user and Wine what it gives here.

`make cross-test` builds it for 64-bit Arm, `make cross-test-armv7` for 32-bit and `make
cross-test-windows` for Windows; these tests are skipped for what build/cross does not hold.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.models import MODELS
from support import Fn, lower, run_ours

pytestmark = pytest.mark.cross

ROOT = Path(__file__).parents[2]
TARGETS = {
    "aarch64": ("qemu-aarch64", ["-L", "/usr/aarch64-linux-gnu"]),
    "armv7": ("qemu-arm", ["-L", "/usr/arm-linux-gnueabihf"]),
    "windows": ("wine", []),
}
"""What runs a target's programs, and its options."""
SME = ["-cpu", "max,sme-default-vector-length=64"]
"""Options for a CPU with SME2, of as many bytes as real ones have."""


@pytest.fixture(params=[*TARGETS, "aarch64-sme2"])
def runner(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs `edgewise_run` of a target."""
    target, _, level = request.param.partition("-")
    emulator, options = TARGETS[target]
    build = ROOT / "build" / "cross" / target
    if not (build / "build.ninja").exists():
        pytest.skip(f"nothing built for {target}: make cross-{target}")
    # From here on what is missing is an error: a build that is there has all.
    found = shutil.which(emulator) or shutil.which(f"{emulator}-static")
    suffix = ".exe" if target == "windows" else ""
    program = build / "native" / "tools" / f"edgewise_run{suffix}"
    assert found is not None, f"{emulator} is missing: tools/install_cross.sh {target}"
    assert program.exists(), f"{program} is missing: make cross-{target}"
    if not level:
        return [found, *options, str(program)]
    later = subprocess.run([ROOT / "tools" / "sme_qemu.sh"], capture_output=True, text=True)
    if later.returncode != 0:
        pytest.skip(later.stderr.strip())
    # Refused if the CPU is none of that level.
    env = ["env", f"EDGEWISE_CPU={level}"]
    return [*env, later.stdout.strip(), *SME, *options, str(program)]


def mobilenet() -> tuple[bytes, torch.Tensor]:
    spec = MODELS["mobilenet_v2"]
    (x,) = spec.example_inputs(0)
    return lower(spec.build(0), (x,)).buffer, x


def mobilenet_int8() -> tuple[bytes, torch.Tensor]:
    import edgewise

    spec = MODELS["mobilenet_v2"]
    (x,) = spec.example_inputs(0)
    program = edgewise.compile(
        spec.build(0), (x,), quantize="int8", calibration=[(x,)], verbose=False
    )
    return program.buffer, x


def mobilenet_half() -> tuple[bytes, torch.Tensor]:
    spec = MODELS["mobilenet_v2"]
    (x,) = spec.example_inputs(0)
    return lower(spec.build(0).half(), (x.half(),)).buffer, x.half()


def own_kernels() -> tuple[bytes, torch.Tensor]:
    """Nothing delegated: matrix products, reductions and functions of the runtime's own."""
    weights = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    model = Fn(lambda x, w: torch.nn.functional.layer_norm((x @ w).erf(), (48,)), w=weights)
    x = torch.randn(33, 64, generator=torch.Generator().manual_seed(1))
    return lower(model, (x,), partitioner=None).buffer, x


# File | largest difference from x86-64, of the largest output.
# float32 is added in other orders, with multiplications fused or not. Integers have been the same
# on all CPUs so far; one step of the 8-bit output is allowed, since XNNPACK does not promise it.
# float16 is computed in float32 where the CPU has no arithmetic in it; PyTorch's is within 1.3e-2
# of the same numbers in float64, XNNPACK's for Arm, which adds up in float16, within 3e-2.
CASES: dict[str, tuple[Callable[[], tuple[bytes, torch.Tensor]], float]] = {
    "mobilenet_v2": (mobilenet, 1e-5),
    "mobilenet_v2 int8": (mobilenet_int8, 1 / 127),
    "mobilenet_v2 float16": (mobilenet_half, 4e-2),
    "own kernels": (own_kernels, 1e-5),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_this_machine(case: str, runner: list[str], tmp_path: Path) -> None:
    make, tolerance = CASES[case]
    pte, x = make()
    (tmp_path / "model.pte").write_bytes(pte)
    np.save(tmp_path / "x.npy", x.numpy())
    command = [*runner, "model.pte", "--input", "x.npy", "--output-dir", ".", "--threads", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got = np.load(tmp_path / "output_0.npy")
    ((want,),) = run_ours(pte, (x,))
    difference = np.abs(got - want.numpy()).max() / np.abs(want.numpy()).max()
    print(f"{case}: {difference:.2e} of the largest output")
    assert difference <= tolerance
    assert np.argmax(got) == np.argmax(want.numpy())
