"""Constants are in the file once, packed once, and not resident in a second form."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.format.file import read
from support import assert_close, eager64, export, operators

SIZE = 2048
WEIGHT = SIZE * SIZE * 4
"""Bytes of one matrix."""


class Shared(torch.nn.Module):
    """Uses one matrix twice, around what no partition takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.sort(self.linear(x)).values)


def named(pte: bytes) -> list[int]:
    """Sizes of the named data that are as large as a matrix."""
    file = read(pte)
    sizes = [len(file.segments[item.segment_index]) for item in file.program.named_data]
    return [size for size in sizes if size >= WEIGHT]


def two_methods() -> tuple[bytes, torch.nn.Module, tuple[torch.Tensor, ...]]:
    net, x = Shared(), torch.randn(2, SIZE)
    methods = {
        "forward": export(net, (x,)),
        "again": export(torch.nn.Sequential(copy.deepcopy(net), torch.nn.ReLU()), (x,)),
    }
    edge = edgewise.to_edge_transform_and_lower(methods, partitioner=[XnnpackPartitioner()])
    return edge.to_executorch().buffer, net, (x,)


def test_partitions_and_methods_share_constants_in_the_file() -> None:
    pte, _, _ = two_methods()
    assert operators(pte).count("delegate") == 2
    assert operators(pte, "again").count("delegate") == 2
    assert named(pte) == [WEIGHT]
    assert len(pte) < 1.2 * WEIGHT


def resident(path: Path) -> tuple[int, int]:
    """Bytes of this process that are pages of the file, and that are no file's."""
    of_file = anonymous = 0
    is_file = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *rest = line.split()
        if not key.endswith(":"):
            is_file = line.endswith(str(path))
        elif key == "Rss:" and is_file:
            of_file += int(rest[0]) * 1024
        elif key == "Anonymous:":
            anonymous += int(rest[0]) * 1024
    return of_file, anonymous


def measure(path: Path, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """Loads both methods one after the other; bytes after each, and what they compute."""
    from edgewise.runtime import Runtime

    program = Runtime.get().load_program(path)
    found: dict[str, Any] = {"base": resident(path)}
    methods = {}
    for name in ("forward", "again"):
        methods[name] = program.load_method(name)
        found[name] = resident(path)
    found["outputs"] = [torch.from_numpy(m.execute(list(inputs))[0]) for m in methods.values()]
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_weights_are_packed_once_and_the_file_let_go(tmp_path: Path) -> None:
    """Four delegates in two methods; a packed matrix is as large as the matrix. In a process of
    its own: what others freed in this one would be used again."""
    pte, net, inputs = two_methods()
    path = tmp_path / "shared.pte"
    path.write_bytes(pte)
    torch.save(inputs, tmp_path / "inputs.pt")
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, __file__, str(tmp_path)], check=True, env={**os.environ, **paths}
    )
    found = torch.load(tmp_path / "found.pt")
    (_, base), (of_file, once), (again_of_file, twice) = (
        found[name] for name in ("base", "forward", "again")
    )
    assert 0.9 * WEIGHT < once - base < 1.5 * WEIGHT
    assert twice - once < 0.5 * WEIGHT
    assert max(of_file, again_of_file) < 0.1 * WEIGHT
    # What was let go is still what it was: the other method's delegates are made from it.
    want = eager64(net, inputs)[0]
    assert_close(found["outputs"][:1], [want])
    assert_close(found["outputs"][1:], [want.relu()])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.save(
        measure(folder / "shared.pte", torch.load(folder / "inputs.pt")), folder / "found.pt"
    )
