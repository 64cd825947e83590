"""optimum-executorch, unchanged, over edgewise and over ExecuTorch.

Small models with random weights: seconds of the export, how many of 24 greedy tokens are those of
eager PyTorch up to the first that is not (of quantized models: of PyTorch with the same quantized
layers), and milliseconds for a token of optimum's own loop. Models without tokens: the
largest difference from eager PyTorch.

The first run makes an environment with optimum-executorch and the release of transformers that it
asks for, next to the packages of this one.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import add_cache_options, number, report
from _environments import python_of

HERE = Path(__file__).resolve().parent
SIDES = {"edgewise": ["-m", "edgewise.compat"], "executorch": []}


def run(python: str, side: str, case: str, folder: Path) -> dict[str, Any]:
    """The worker's figures; what went wrong under "failure"."""
    done = subprocess.run(
        [python, *SIDES[side], str(HERE / "_optimum.py"), case, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {"failure": lines[-1] if lines else f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="*", help="those whose names start so; default: all")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    add_cache_options(parser, refresh=False)
    options = parser.parse_args()
    python = python_of("optimum-executorch", options.cache)
    listed = "import _optimum, json; print(json.dumps(list(_optimum.CASES)))"
    names = subprocess.run(
        [python, "-c", listed], cwd=HERE, capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    rows = []
    for case in json.loads(names):
        if options.cases and not case.startswith(tuple(options.cases)):
            continue
        folder = options.cache / "optimum" / "".join(c if c.isalnum() else "-" for c in case)
        row: dict[str, Any] = {"model": case}
        for side in SIDES:
            found = run(python, side, case, folder)
            if "failure" in found:
                print(f"{case}, {side}: {found['failure']}", file=sys.stderr)
            row[f"{side}: export s"] = found.get("export")
            row[f"{side}: equal"] = (
                f"{found['same']}/{found['of']}" if "of" in found else found.get("error")
            )
            row[f"{side}: token ms"] = found["token"] * 1e3 if "token" in found else None
        print(", ".join(f"{key} {number(value)}" for key, value in row.items()), file=sys.stderr)
        rows.append(row)
    report("optimum-executorch, over edgewise and over ExecuTorch", rows, [], options.json)


if __name__ == "__main__":
    main()
