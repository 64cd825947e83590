"""Time from a fresh interpreter to the first result, ours and the peer's, and memory.

Every repeat is a new process, the frameworks take turns, files come from the page cache. Timed
inside the process: importing the runtime (with all it pulls in), loading the program and its
method, the first inference. "process" is the whole process seen from outside, the interpreter's own
start included; memory is its peak resident set.

--install makes a virtual environment, installs a wheel into it, and reports its size on disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import add_cache_options, add_common_options, ratio, report
from _frameworks import ensure, model_file

# Frameworks differ in how a program is opened and in what they take as input, nothing else.
_CHILD = """
import sys, time
t0 = time.perf_counter()
{imports}
t1 = time.perf_counter()
import numpy
with numpy.load(sys.argv[2]) as arrays:
    inputs = [{convert}(arrays[name]) for name in arrays.files]
t2 = time.perf_counter()
{threads}
method = Runtime.get().load_program(sys.argv[1]{option}).load_method("forward")
t3 = time.perf_counter()
method.execute(inputs)
t4 = time.perf_counter()
import json, resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(imports=t1 - t0, load=t3 - t2, first=t4 - t3, peak_kib=peak,
                      torch="torch" in sys.modules)))
"""


def child(framework: str, threads: int) -> str:
    """The program text for one framework."""
    if framework == "ours":
        return _CHILD.format(
            imports="from edgewise.runtime import Runtime",
            convert="",
            threads="",
            option=f", threads={threads}",
        )
    return _CHILD.format(
        imports="from executorch.runtime import Runtime\nimport torch",
        convert="torch.from_numpy",
        threads="from executorch.extension.pybindings import portable_lib\n"
        f"portable_lib._unsafe_reset_threadpool({threads})",
        option="",
    )


def measure(model: str, frameworks: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a phase."""
    ensure(frameworks, model, options.cache, options.refresh)
    phases: dict[str, dict[str, list[float]]] = {
        phase: {framework: [] for framework in frameworks}
        for phase in ("import ms", "load ms", "first inference ms", "process ms", "peak memory MB")
    }
    for i in range(options.repeats + 1):
        for framework in frameworks if i % 2 == 0 else frameworks[::-1]:
            command = [
                *(sys.executable, "-c", child(framework, options.threads)),
                str(model_file(framework, model, options.cache)),
                str(options.cache / f"{model}-inputs.npz"),
            ]
            start = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            whole = time.perf_counter() - start
            if i == 0:
                continue  # fills the page cache and writes byte code
            answer = json.loads(done.stdout.splitlines()[-1])
            if framework == "ours" and answer["torch"]:
                raise SystemExit("[startup] our runtime does without torch; got it imported")
            phases["import ms"][framework].append(answer["imports"] * 1e3)
            phases["load ms"][framework].append(answer["load"] * 1e3)
            phases["first inference ms"][framework].append(answer["first"] * 1e3)
            phases["process ms"][framework].append(whole * 1e3)
            phases["peak memory MB"][framework].append(answer["peak_kib"] * 1024 / 1e6)
    rows = []
    for phase, values in phases.items():
        row: dict[str, Any] = {"model": model, "phase": phase}
        for framework in frameworks:
            row[framework] = median(values[framework])
            row[f"{framework} min"] = min(values[framework])
        if len(frameworks) == 2:
            row["ours/peer"] = ratio(values["ours"], values["peer"])
        rows.append(row)
    return rows


def tree_size(folder: Path) -> int:
    """Bytes on disk under `folder`, hard links counted once, links not followed."""
    seen: dict[tuple[int, int], int] = {}
    for base, _, files in os.walk(folder):
        for name in files:
            status = os.lstat(os.path.join(base, name))
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def installed_size(requirement: str) -> dict[str, Any]:
    """A new environment with `requirement`: its size, and what it is without pip."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        empty = tree_size(Path(folder))
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", requirement], check=True, stdout=sys.stderr
        )
        listed = subprocess.run(
            [python, "-m", "pip", "list", "--format=json"],
            check=True,
            capture_output=True,
            text=True,
        )
        packages = [
            f"{package['name']} {package['version']}" for package in json.loads(listed.stdout)
        ]
        whole = tree_size(Path(folder))
    return {
        "installed": requirement,
        "environment MB": whole / 1e6,
        "without pip MB": (whole - empty) / 1e6,
        "packages": ", ".join(packages),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, ("mobilenet_v2",))
    add_cache_options(parser)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--install",
        nargs="+",
        default=[],
        metavar="WHEEL",
        help="wheels or requirements, each installed into an environment of its own",
    )
    options = parser.parse_args()
    frameworks = [options.only] if options.only else ["ours", "peer"]
    rows = [row for model in options.models for row in measure(model, frameworks, options)]
    notes = [f"medians and minima of {options.repeats} fresh processes each"]
    report("Start-up", rows, notes, options.json)
    if options.install:
        sizes = [installed_size(requirement) for requirement in options.install]
        size_file = options.json and options.json.with_suffix(".install.json")
        report("Installation", sizes, ["blocks on disk; the interpreter is linked"], size_file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
