"""examples/firmware: MLPerf Tiny's DS-CNN, quantized for an Ethos-U and run by kernels alone on a
Cortex-M55 without an operating system, in QEMU's model of Arm's MPS3 board.

`make microcontroller-test` builds it in build/cross/cortex-m55; skipped where that is not there.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from edgewise.firmware import link, read_linked
from examples.models.mlperf_tiny import DsCnn

pytestmark = pytest.mark.cross

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cross" / "cortex-m55"
BOARD = ["-M", "mps3-an547", "-nographic", "-semihosting-config", "enable=on,target=native"]
MOST_FLASH, MOST_RAM, MOST_STACK = 240_000, 225_000, 14_000
"""Bytes; the planned memory, of which PyTorch's graph asks 149,824, is in the second."""


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Ran:
    """expected: of PyTorch's quantized program. here: of this machine's runtime. told: the lines
    that the firmware prints, numbers by name; those of a name that comes again in order."""

    expected: np.ndarray
    here: np.ndarray
    there: np.ndarray
    told: dict[str, list[int]]
    image: Path


@pytest.fixture(scope="module")
def ran() -> Ran:
    if not BUILD.exists():
        pytest.skip("nothing built for the Cortex-M55: make microcontroller-test")
    # From here on what is missing is an error.
    qemu = shutil.which("qemu-system-arm")
    assert qemu is not None, "qemu-system-arm is missing: tools/install_cross.sh cortex-m55"
    torch.manual_seed(0)
    model = DsCnn().eval()
    inputs = [(torch.randn(1, 1, 49, 10),) for _ in range(8)]
    quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128"))
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, inputs[0]).module(), quantizer)
    for one in inputs:
        prepared(*one)
    quantized = convert_pt2e(prepared)
    path, x = BUILD / "model.pte", BUILD / "x.bin"
    exported = torch.export.export(quantized, inputs[0])
    edgewise.compile(exported, backend="none", verbose=False).save(path)
    x.write_bytes(inputs[0][0].numpy().tobytes())
    link(read_linked(path), BUILD / "linked")
    options = [f"-DEDGEWISE_LINKED={BUILD / 'linked'}", f"-DFIRMWARE_INPUT={x}"]
    options += ["-DFIRMWARE_MEMORY=262144"]
    if shutil.which("ccache"):
        options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    toolchain = ROOT / "cmake" / "toolchains" / "cortex-m55.cmake"
    run("cmake", "-S", ROOT / "examples" / "firmware", "-B", BUILD, "-G", "Ninja",
        "--toolchain", toolchain, *options)  # fmt: skip
    run("cmake", "--build", BUILD, "--target", "firmware")
    printed = run("timeout", "120", qemu, *BOARD, "-kernel", BUILD / "firmware")
    bits = [int(one, 16) for one in re.findall(r"^0x(\w{8})", printed, re.MULTILINE)]
    there = np.array([struct.unpack("<f", struct.pack("<I", one))[0] for one in bits], np.float32)
    told: dict[str, list[int]] = {}
    for name, number in re.findall(r"^([a-z ]+): (\d+)$", printed, re.MULTILINE):
        told.setdefault(name, []).append(int(number))
    return Ran(
        quantized(*inputs[0]).detach().numpy()[0],
        np.asarray(edgewise.load(path)(inputs[0][0].numpy()))[0],
        there,
        told,
        BUILD / "firmware",
    )


def test_the_numbers_are_the_same(ran: Ran) -> None:
    np.testing.assert_array_equal(ran.there, ran.here)
    np.testing.assert_array_equal(ran.there, ran.expected)


def test_nothing_is_taken_after_loading(ran: Ran) -> None:
    """Of the runtime; what kernels work with they give back, and find at the same place again."""
    assert ran.told["taken for the input"] == [0, 0, 0]
    assert ran.told["kept"] == [0, 0, 0]
    assert ran.told["grown"] == [0]
    # There is no heap to take anything from, and nothing that makes exceptions, threads, files.
    symbols = {line.split()[-1] for line in run("arm-none-eabi-nm", ran.image).splitlines()}
    assert not symbols & {"malloc", "_sbrk", "__cxa_throw", "_Unwind_RaiseException", "fopen"}
    assert not [one for one in symbols if "gthread" in one or "vsnprintf" in one]


def test_flash_and_ram(ran: Ran) -> None:
    text = run("arm-none-eabi-size", ran.image).splitlines()[1].split()
    flash = int(text[0]) + int(text[1])
    print(f"flash {flash}, of it the program {(BUILD / 'model.pte').stat().st_size}; "
          f"memory {ran.told['peak'][0]}, loaded {ran.told['loaded'][0]}; "
          f"stack {ran.told['stack'][0]}")  # fmt: skip
    assert flash <= MOST_FLASH
    assert ran.told["peak"][0] <= MOST_RAM
    assert ran.told["stack"][0] <= MOST_STACK


def test_other_kernels_are_not_linked(ran: Ran) -> None:
    image = ran.image.read_bytes()
    assert b"aten::convolution.out" in image
    for name in (b"aten::index_put.out", b"aten::sort.values", b"aten::convolution_backward.out"):
        assert name not in image, name
