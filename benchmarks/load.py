"""Time to load a program, first and again, and what two processes of it share; beside the peer.

Each load is a process of its own; files come from the page cache. Timed inside of the process:
from opening the file to a method that is ready, then the first inference. "packing" keeps
nothing; "first" starts with an empty cache_dir, which it fills; "again" finds it full. The peer
packs at each load.

Memory: two processes hold the program after three inferences. "private" is what the second of
them has for itself (Private_Clean and Private_Dirty of /proc/PID/smaps_rollup, less what it was
before loading), "shared" what it has in common with the other.

Exit code 1 if "again" takes longer than its bound (ms): ViT-B/16 15, ResNet-50 8.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from _common import IMAGE_MODELS, add_cache_options, add_common_options, report
from _frameworks import ensure, model_file

BOUNDS = {"vit_b_16": 15.0, "resnet50": 8.0}

# Frameworks differ in how a program is opened and in what they take as input, nothing else.
_CHILD = """
import json, sys, time
{imports}
import numpy
with numpy.load(sys.argv[2]) as arrays:
    inputs = [{convert}(arrays[name]) for name in arrays.files]
{threads}
def memory():
    fields = {{"private": 0, "shared": 0}}
    for line in open("/proc/self/smaps_rollup"):
        name, _, rest = line.partition(":")
        for kind in fields:
            if name.lower().startswith(kind + "_") and "huge" not in name.lower():
                fields[kind] += int(rest.split()[0])
    return fields
before = memory()
t0 = time.perf_counter()
method = Runtime.get().load_program(sys.argv[1]{option}).load_method("forward")
t1 = time.perf_counter()
method.execute(inputs)
t2 = time.perf_counter()
for _ in range(2):
    method.execute(inputs)
print("ready", flush=True)
sys.stdin.readline()
after = memory()
print(json.dumps(dict(load=1e3 * (t1 - t0), first=1e3 * (t2 - t1),
                      **{{kind: (after[kind] - before[kind]) / 1e3 for kind in after}})),
      flush=True)
sys.stdin.readline()
"""


def child(framework: str, threads: int, cache: Path | None) -> str:
    """The program text for one framework."""
    if framework == "ours":
        option = f", threads={threads}" + (f", cache_dir={str(cache)!r}" if cache else "")
        return _CHILD.format(
            imports="from edgewise.runtime import Runtime", convert="", threads="", option=option
        )
    return _CHILD.format(
        imports="from executorch.runtime import Runtime\nimport torch",
        convert="torch.from_numpy",
        threads="from executorch.extension.pybindings import portable_lib\n"
        f"portable_lib._unsafe_reset_threadpool({threads})",
        option="",
    )


class Process:
    """One that has loaded the program and ran it."""

    def __init__(self, framework: str, model: str, options: argparse.Namespace, cache: Path | None):
        files = [model_file(framework, model, options.cache), options.cache / f"{model}-inputs.npz"]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                child(framework, options.threads, cache),
                *files,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"[load] {model} failed for {framework}")

    def measure(self) -> dict[str, float]:
        """Milliseconds, and MB as they are now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        figures: dict[str, float] = json.loads(self._process.stdout.readline())
        return figures

    def end(self) -> None:
        self._process.communicate("\n")


def once(*where: Any) -> dict[str, float]:
    """The figures of a process alone."""
    process = Process(*where)
    figures = process.measure()
    process.end()
    return figures


def measure(model: str, frameworks: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a kind of load."""
    ensure(frameworks, model, options.cache, options.refresh)
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        kinds: list[tuple[str, str, Path | None]] = [
            ("ours", "packing", None),
            ("ours", "first", cache),
            ("ours", "again", cache),
            ("peer", "peer", None),
        ]
        kinds = [kind for kind in kinds if kind[0] in frameworks]
        for i in range(options.repeats + 1):
            for framework, kind, where in kinds:
                if kind == "first":
                    shutil.rmtree(cache, ignore_errors=True)
                figures = once(framework, model, options, where)
                if i > 0:  # the first of all fills the page cache
                    found.setdefault(kind, []).append(figures)
        rows = []
        for framework, kind, where in kinds:
            pair = [Process(framework, model, options, where) for _ in range(2)]
            memory = pair[1].measure()
            for process in pair:
                process.end()
            all_figures = found[kind]
            rows.append(
                {
                    "model": model,
                    "load": kind,
                    "load ms": median(f["load"] for f in all_figures),
                    "min": min(f["load"] for f in all_figures),
                    "first inference ms": median(f["first"] for f in all_figures),
                    "private MB": memory["private"],
                    "shared MB": memory["shared"],
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, tuple(m for m in IMAGE_MODELS if m in ("resnet50", "vit_b_16")))
    add_cache_options(parser)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    frameworks = [options.only] if options.only else ["ours", "peer"]
    rows = [row for model in options.models for row in measure(model, frameworks, options)]
    notes = [
        f"{options.threads} threads; medians and minima of {options.repeats} processes each",
        "memory of the second of two processes, beyond what it had before loading",
    ]
    report("Loading", rows, notes, options.json)
    return int(
        any(r["load"] == "again" and r["min"] > BOUNDS.get(r["model"], r["min"]) for r in rows)
    )


if __name__ == "__main__":
    raise SystemExit(main())
