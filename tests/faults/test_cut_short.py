"""A file that is cut short while it is mapped is an error of the calls that read it, and not the
end of the process; faults that are not the runtime's go to whoever handled them before."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.emit import ExecutorchBackendConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As cut_short.py says."""
    place = tmp_path_factory.mktemp("cut_short")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Linear(300, 8)).eval()
    ones = torch.ones(1, 64)
    config = ExecutorchBackendConfig(external_constants=True)
    exported = torch.export.export(net, (ones,))
    own = edgewise.to_edge_transform_and_lower(exported).to_executorch(config)
    own.save(place / "own.pte")
    own.write_tensor_data_to_file(place)
    (place / "_default_external_constant.ptd").rename(place / "own.ptd")
    edgewise.compile(net, (ones,), verbose=False).save(place / "delegate.pte")
    np.save(place / "y.npy", net(ones).detach().numpy())
    return place


OURS = (0, "done")
DIES = (-signal.SIGBUS, "")
CASES = {
    "between_calls": OURS,
    "made_anew": OURS,
    "before_the_method": OURS,
    "many_threads": OURS,
    "a_model": OURS,
    "after_a_fork": OURS,
    "full": OURS,
    "a_later_handler": OURS,
    "sent_and_ignored": OURS,
    "sent_to_python": OURS,
    "full_has_no_handler": DIES,
    "another_file": DIES,
    "sent": DIES,
    "after_unloading": DIES,
}
"""Functions of cut_short.py; how the process ends, and what it prints."""


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_is_cut_short(case: str, made: Path, tmp_path: Path) -> None:
    place = tmp_path / "files"
    shutil.copytree(made, place)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "cut_short.py", case, place],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == CASES[case], done.stderr
    if case == "another_file":
        before, _, after = done.stderr.partition("ours is over")
        assert before == ""
        assert "Fatal Python error: Bus error" in after
