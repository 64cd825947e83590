"""Threads of a program without a delegate: its kernels share loops, and start them only then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgewise.edge.cache_operators  # noqa: F401  (defines torch.ops.edgewise)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
SIZE = 256


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class Attention(nn.Module):
    """To keys and values that are the queries."""

    def forward(self, x: torch.Tensor) -> Any:
        heads = x.reshape(1, SIZE, 4, SIZE // 4)
        ops: Any = torch.ops.edgewise
        return ops.custom_sdpa(heads, heads, heads, 0, None, 0.0, True, None)


MODELS: dict[str, type[nn.Module]] = {"product": Product, "sum": Sum, "attention": Attention}

SCRIPT = f"""
import gc, os, signal, sys
import numpy as np
from edgewise.runtime import Runtime

file, threads = sys.argv[1], int(sys.argv[2])
x = np.linspace(-1, 1, {SIZE} * {SIZE}, dtype=np.float32).reshape({SIZE}, {SIZE})

def count():
    return len(os.listdir("/proc/self/task"))

def load(threads):
    return Runtime.get().load_program(file, threads=threads).load_method("forward")

expected = load(1).execute([x])[0]
before = count()
method = load(threads)
print("loaded", count() - before)
same = [np.array_equal(method.execute([x])[0], expected) for _ in range(3)]
print("ran", count() - before, same == [True] * 3, flush=True)
child = os.fork()
if child == 0:
    signal.alarm(20)
    print("child", count() - 1, np.array_equal(method.execute([x])[0], expected))
    own = load(threads)
    own.execute([x])
    print("own", count() - 1, np.array_equal(own.execute([x])[0], expected))
    del method, own
    gc.collect()
    print("left", count() - 1, flush=True)
    os._exit(0)
print("ended", os.waitpid(child, 0)[1])
del method
gc.collect()
print("left", count() - before)
"""


@LINUX
@pytest.mark.parametrize(
    ("model", "threads", "started"),
    [("product", 1, 0), ("product", 2, 1), ("product", 3, 2), ("attention", 2, 1), ("sum", 2, 0)],
)
def test_threads_of_kernels(
    make_pte: Callable[..., bytes], tmp_path: Path, model: str, threads: int, started: int
) -> None:
    file = tmp_path / "model.pte"
    file.write_bytes(make_pte(MODELS[model](), (torch.ones(SIZE, SIZE),), partitioner=None))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(file), str(threads)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy has threads, too
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "loaded 0",
        f"ran {started} True",
        "child 0 True",
        f"own {started} True",
        "left 0",
        "ended 0",
        "left 0",
    ]
