"""`edgewise link`: a program and the list of its kernels, for a microcontroller's build."""

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
from edgewise.cli import main
from edgewise.firmware import ALIGNMENT, MAX_DIMS, PADDING, read_linked
from support import Fn

ROOT = Path(__file__).parents[2]


def saved(path: Path, model: nn.Module, *inputs: torch.Tensor, backend: str = "none") -> Path:
    edgewise.compile(model, inputs, backend=backend, verbose=False).save(path)
    return path


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
    return saved(tmp_path_factory.mktemp("link") / "my net.pte", net, torch.randn(1, 1, 4, 4))


def test_the_command(pte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", str(pte), "-o", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {*told["files"]} == {path.name for path in tmp_path.iterdir()}
    assert {*told["files"]} == {"my_net.h", "my_net.c", "kernels.txt", "README.md"}
    kernels = (tmp_path / "kernels.txt").read_text().splitlines()
    assert kernels == told["kernels"]
    assert {"aten::convolution.out", "aten::relu.out"} <= {*kernels}
    assert all(f"`{kernel}`" in (tmp_path / "README.md").read_text() for kernel in kernels)
    program = edgewise.runtime.Runtime.get().load_program(pte)
    assert told["planned_bytes"] == sum(program.load_method("forward")._method.info.planned_memory)


@pytest.mark.skipif(which("gcc") is None, reason="needs gcc")
def test_the_array_is_the_file_where_kernels_may_read_it(pte: Path, tmp_path: Path) -> None:
    assert main(["link", str(pte), "-o", str(tmp_path), "--name", "net", "--quiet"]) == 0
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "net.h"
int main(void) {
  fwrite(net_pte, 1, sizeof(net_pte), stdout);
  return (unsigned long)net_pte % 64 != 0;
}
""")
    words = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "main.c", "net.c"]
    subprocess.run([*words, "-o", "main"], cwd=tmp_path, check=True)
    written = subprocess.run([tmp_path / "main"], check=True, capture_output=True).stdout
    assert written == pte.read_bytes() + bytes(PADDING)


def test_the_rules_are_those_of_the_runtime() -> None:
    header = (ROOT / "native/include/edgewise/tensor.h").read_text()
    found = dict(re.findall(r"constexpr size_t (\w+) = (\d+);", header))
    assert (int(found["kBufferAlignment"]), int(found["kReadPadding"])) == (ALIGNMENT, PADDING)
    bare = re.search(r"#ifdef EDGEWISE_BARE_METAL\n.* kMaxDims = (\d+);", header)
    assert bare is not None
    assert int(bare[1]) == MAX_DIMS


REFUSED = {
    "delegates": (nn.Linear(4, 2), torch.zeros(1, 4), "xnnpack", "delegates of XnnpackBackend"),
    "dimensions": (Fn(torch.sin), torch.zeros([1] * 9), "none", "at most 8 dimensions .* got 9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, x, backend, words = REFUSED[case]
    path = saved(tmp_path / "net.pte", model.eval(), x, backend=backend)
    with pytest.raises(ValueError, match=rf"\[link\] .*{words}.*; try"):
        read_linked(path)
    assert main(["link", str(path)]) == 1
    assert "[link]" in capsys.readouterr().err
    assert not path.with_suffix("").exists()
