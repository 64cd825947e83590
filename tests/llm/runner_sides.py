"""A script on ExecuTorch's own runner and on ours under its names, each in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def both_sides(script: str, folder: Path, *arguments: str) -> tuple[Any, Any]:
    """What it wrote to here.json and there.json, for a model net.pte and its tokenizer in the
    folder. Its arguments: "here" or "there", the two files, and more."""
    for side in ("there", "here"):
        given = [side, "net.pte", "net.tokenizer/tokenizer.json", *arguments]
        done = subprocess.run(
            [sys.executable, "-c", script, *given],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    here, there = (json.loads((folder / f"{side}.json").read_text()) for side in ("here", "there"))
    return here, there
