"""A process that is forked: programs with threads of their own are refused in the child, and go
without waiting; those of one thread, and what the child loads, run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

SCRIPT = """
import gc, os, signal, sys
import numpy as np, torch
import edgewise
from edgewise.runtime import Runtime

net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
x = torch.ones(1, 3, 32, 32)
file = edgewise.compile(net, (x,), verbose=False).buffer

def load():
    return Runtime.get().load_program(file, threads=int(sys.argv[1])).load_method("forward")

method = load()
expected = method.execute([x.numpy()])[0]
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        print("same", np.array_equal(method.execute([x.numpy()])[0], expected))
    except Exception as error:
        print(type(error).__name__, error)
    del method
    gc.collect()
    print("own", np.array_equal(load().execute([x.numpy()])[0], expected), flush=True)
    os._exit(0)
print("ended", os.waitpid(child, 0)[1])
print("parent", np.array_equal(method.execute([x.numpy()])[0], expected))
"""


@pytest.mark.parametrize(
    ("threads", "inherited"),
    [(1, "same True"), (2, "UnsupportedError [forward] [xnnpack] a process must run")],
)
def test_a_child_of_a_fork(threads: int, inherited: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(threads)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith(inherited.split(" [forward]")[0])
    assert threads == 1 or "try loading it in the child" in told[0]
    assert told[1:] == ["own True", "ended 0", "parent True"]
