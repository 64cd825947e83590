"""`edgewise ethosu package`: what it writes is built into a firmware image for a Cortex-M55."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.ethosu.disassemble import STREAM
from edgewise.backends.ethosu.firmware import read_firmware, write_firmware
from edgewise.cli import main

pytest.importorskip("ethosu.vela", reason="extra `ethosu`")
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-ffreestanding"]

START = """
#include "net.h"
int main(void) {
  volatile uint8_t *memory = net_planned_0;
  memory[0] = net_pte[0];
  return net_npu_scratch[0] + memory[0];
}
"""
SCRIPT = """
MEMORY {
  FLASH (rx) : ORIGIN = 0x10000004, LENGTH = 4M
  SRAM (rwx) : ORIGIN = 0x21000004, LENGTH = 2M
}
ENTRY(main)
SECTIONS {
  .text : { *(.text*) } > FLASH
  INCLUDE net.ld
}
"""


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    x = torch.randn(1, 3, 8, 8)
    program = edgewise.compile(
        model, (x,), backend="ethos-u55-128", quantize="int8", calibration=[(x,)], verbose=False
    )
    path = tmp_path_factory.mktemp("firmware") / "net.pte"
    program.save(path, record=True)
    return path


@pytest.fixture(scope="module")
def folder(pte: Path) -> Path:
    folder = pte.with_name("out")
    write_firmware(read_firmware(pte), folder)
    return folder


def run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True).stdout


COMPILERS = [
    pytest.param("gcc", [], id="host"),
    pytest.param("arm-none-eabi-gcc", ["-mcpu=cortex-m55", "-mthumb"], id="cortex-m55"),
]


@pytest.mark.parametrize(("compiler", "flags"), COMPILERS)
def test_it_is_linked_where_the_npu_reads_it(
    compiler: str, flags: list[str], pte: Path, folder: Path, tmp_path: Path
) -> None:
    if which(compiler) is None:
        pytest.skip(f"{compiler} is not installed; tools/install_cross.sh cortex-m installs it")
    tools = compiler.removesuffix("gcc")
    (tmp_path / "start.c").write_text(START)
    (tmp_path / "board.ld").write_text(SCRIPT)
    sources = [tmp_path / "start.c", folder / "net.c", folder / "net_memory.c"]
    layout = ["-nostdlib", "-static", "-no-pie", "-T", tmp_path / "board.ld", f"-L{folder}"]
    run(compiler, *flags, *FLAGS, f"-I{folder}", *sources, *layout, "-o", "image", cwd=tmp_path)
    symbols = {
        name: int(address, 16)
        for address, _, name in re.findall(
            r"^(\w+) (\w) (\w+)$", run(f"{tools}nm", "image", cwd=tmp_path), re.M
        )
    }
    ours = {name: place for name, place in symbols.items() if name.startswith("net_")}
    assert set(ours) == {"net_pte", "net_planned_0", "net_npu_scratch"}
    assert all(place % 16 == 0 for place in ours.values())
    copy = ["-O", "binary", "--only-section=.edgewise_model", "image", "program.bin"]
    run(f"{tools}objcopy", *copy, cwd=tmp_path)
    data = pte.read_bytes()
    assert (tmp_path / "program.bin").read_bytes() == data
    assert data.index(STREAM) % 16 == 0


def test_sizes_and_operators_are_the_programs(pte: Path, folder: Path) -> None:
    from edgewise.runtime import Runtime

    header = (folder / "net.h").read_text()
    sizes = dict(re.findall(r"#define (\w+_BYTES) (\d+)u", header))
    info = Runtime.get().load_program(pte).load_method("forward")._method.info
    assert int(sizes["NET_PLANNED_0_BYTES"]) == info.planned_memory[0]
    assert int(sizes["NET_PTE_BYTES"]) == pte.stat().st_size
    assert int(sizes["NET_NPU_SCRATCH_BYTES"]) > 0
    listed = (folder / "operators.txt").read_text().strip().split(",")
    assert listed == sorted(set(info.operators))
    page = (folder / "README.md").read_text()
    assert re.search(r"Of Vela 5\.\d", page)
    assert re.search(r"\| 0 \| cycles \| [\d,]+ \|", page)


def test_the_command(pte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ethosu", "package", str(pte), "-o", str(tmp_path / "fw"), "--name", "kws"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["files"]) == sorted(p.name for p in (tmp_path / "fw").iterdir())
    assert "kws.c" in told["files"]
    assert main([*arguments[:-1], "not-c"]) == 1
    assert "must be a C identifier; got 'not-c'" in capsys.readouterr().err


def test_a_program_without_the_npu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cpu.pte"
    edgewise.compile(nn.Linear(4, 2), torch.zeros(1, 4), verbose=False).save(path)
    with pytest.raises(ValueError, match=r"must have an Ethos-U delegate; .*try compiling"):
        read_firmware(path)


@pytest.mark.parametrize(
    ("file", "name"),
    [("my net-2.pte", "my_net_2"), ("2x.pte", "model_2x"), ("int.pte", "model_int")],
)
def test_names_are_of_c(file: str, name: str, pte: Path, tmp_path: Path) -> None:
    copy = tmp_path / file
    copy.write_bytes(pte.read_bytes())
    assert read_firmware(copy).name == name
