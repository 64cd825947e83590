"""Some of the nets that files of releases are made of, with the packages that are installed.

All of them, with other packages: `make matrix`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_nets_are_lowered_and_run() -> None:
    # Files are run in children; threads of OpenMP's would not be in them.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("nets_here.py"), "5"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert re.match(r"nets: (\d{2,}) of \1 ", done.stdout), done.stdout
