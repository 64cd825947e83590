"""Peak memory of running a model, ours and the peer's.

Each framework runs each model in a process of its own: imports, loads, three inferences. "peak" is
the process's highest resident set, libraries and interpreter included (the peer's Python face
imports torch). "growth" is the peak less what was resident before the program was loaded, its
inputs included: that is what the model costs, whatever the face. Pages of the file that are mapped
count in both. The peer's threads stay as they are set for ours.

--models takes names of examples/models, with "-int8" for the files of quantized.py. Exit code 1
if growth is above the peer's by more than --allow percent.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import quantized
from _common import IMAGE_MODELS, add_cache_options, add_common_options, report
from _frameworks import SESSIONS, ensure, load_arrays, model_file

MODELS = (*IMAGE_MODELS, "bert_small", "mobilenet_v2-int8", "resnet50-int8")
INT8 = "-int8"
RUNS = 3


def resident(field: str) -> int:
    """A figure of /proc/self/status in KiB: VmRSS now, VmHWM at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"[memory] /proc/self/status must have {field}")


def measure(framework: str, file: Path, inputs: Path, threads: int) -> dict[str, int]:
    """Runs the model in this process; KiB."""
    if framework == "ours":
        import edgewise.runtime  # noqa: F401
    else:
        import executorch.runtime  # noqa: F401
        import torch  # noqa: F401
    arrays = load_arrays(inputs)
    Path("/proc/self/clear_refs").write_text("5")  # the highest figure starts anew
    before = resident("VmRSS")
    session = SESSIONS[framework](file, arrays, threads)
    for _ in range(RUNS):
        session.run()
    return {"before": before, "peak": resident("VmHWM"), "after": resident("VmRSS")}


def prepared(framework: str, model: str, options: argparse.Namespace) -> tuple[Path, Path]:
    """The file that `framework` runs, and the inputs."""
    refresh = options.refresh and framework == "ours"
    if model.endswith(INT8):
        name = model.removesuffix(INT8)
        quantized.ensure(framework, name, options.cache, refresh)
        file = quantized.file_of(framework, name, options.cache)
        return file, file.with_suffix(".inputs.npz")
    ensure([framework], model, options.cache, refresh)
    return model_file(framework, model, options.cache), options.cache / f"{model}-inputs.npz"


def row(model: str, frameworks: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Each framework's figures in MB, and the ratios."""
    found: dict[str, Any] = {"model": model}
    figures: dict[str, dict[str, float]] = {}
    for framework in frameworks:
        file, inputs = prepared(framework, model, options)
        command = [sys.executable, "-W", "ignore", __file__, "--measure", framework]
        paths = [str(file), str(inputs), "--threads", str(options.threads)]
        done = subprocess.run([*command, *paths], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"[memory] {model} failed for {framework}:\n{done.stderr[-3000:]}")
        kib = json.loads(done.stdout.splitlines()[-1])
        figures[framework] = {
            "file MB": file.stat().st_size / 1e6,
            "peak MB": kib["peak"] * 1024 / 1e6,
            "growth MB": (kib["peak"] - kib["before"]) * 1024 / 1e6,
        }
        found |= {f"{framework} {name}": value for name, value in figures[framework].items()}
    if len(frameworks) == 2:
        for name in ("peak", "growth"):
            ours, peer = (figures[framework][f"{name} MB"] for framework in ("ours", "peer"))
            found[f"{name} ratio"] = ours / peer
    return found


def main() -> int:
    """Prepare what is missing, run each framework of each model, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common_options(parser, MODELS)
    add_cache_options(parser)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--allow", type=float, default=2, metavar="PERCENT")
    parser.add_argument("--measure", nargs=3, metavar=("FRAMEWORK", "FILE", "INPUTS"))
    options = parser.parse_args()
    if options.measure:
        framework, file, inputs = options.measure
        print(json.dumps(measure(framework, Path(file), Path(inputs), options.threads)))
        return 0
    frameworks = [options.only] if options.only else ["ours", "peer"]
    rows = []
    for model in options.models:
        rows.append(row(model, frameworks, options))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    notes = [
        f"{options.threads} threads; growth: peak less what was resident before the program was "
        f"loaded",
    ]
    report("Peak memory of running a model", rows, notes, options.json)
    limit = 1 + options.allow / 100
    return int(any(r.get("growth ratio", 0) > limit or r.get("peak ratio", 0) > 1 for r in rows))


if __name__ == "__main__":
    sys.exit(main())
