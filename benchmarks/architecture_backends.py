"""Whole architectures of `transformers` on every backend: delegates, share of the work, accuracy.

Each is compiled for XNNPACK in float32 and int8, for two Ethos-U processors and for Neutron, and
runs on this machine: on the runtime, the simulator, LiteRT's kernels. Float results are compared
with eager PyTorch in float64, int8 ones with the same quantized program in PyTorch (PT2E), as the
ratio of signal to noise. Weights are random: nothing here is said of the accuracy of int8 itself.

`--write docs/architectures.md` puts the table into the page, where cells that were not measured
stay as they are; `--measured` takes figures that `--json` wrote before. Exit code 1 if a cell
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from _architectures import ARCHITECTURES
from _npu import sqnr, write

TARGETS = {
    "XNNPACK float32": ("xnnpack", None),
    "XNNPACK int8": ("xnnpack", "int8"),
    "Ethos-U55": ("ethos-u55-128", "int8"),
    "Ethos-U85": ("ethos-u85-256", "int8"),
    "Neutron": ("neutron-imxrt700-reference", "int8"),
}
SECONDS = 900


def cell(name: str, backend: str, scheme: str | None) -> dict[str, Any]:
    """Figures of an architecture on a backend."""
    import edgewise
    from edgewise.quantize.flow import quantize_and_tell
    from edgewise.quantize.schemes import scheme_of
    from edgewise.registry import quantizer_for

    architecture = ARCHITECTURES[name]
    model, inputs = architecture.build(), architecture.example_inputs()
    start = time.perf_counter()
    if scheme is None:
        program = torch.export.export(model, inputs)
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        with torch.no_grad():
            expected = copy.deepcopy(model).double()(*wide)
    else:
        program, _ = quantize_and_tell(
            model, inputs, scheme_of(scheme, None), quantizer_for(backend), calibration=[inputs]
        )
        with torch.no_grad():
            expected = program.module()(*inputs)
    compiled = edgewise.compile(program, backend=backend, verbose=False)
    seconds = time.perf_counter() - start
    report = compiled.delegation_report()
    found = edgewise.load(compiled.buffer)(*inputs)
    first = expected[0] if isinstance(expected, (tuple, list)) else expected
    got = found[0] if isinstance(found, (tuple, list)) else found
    return {
        "delegates": len(report.delegates),
        "macs": report.share("macs"),
        "nodes": report.share("nodes"),
        "sqnr": sqnr(torch.as_tensor(got), first),
        "seconds": seconds,
        "left": sorted({n.operator for n in report.refused}),
    }


def work(name: str, targets: list[str]) -> None:
    """A line of JSON for each target."""
    warnings.filterwarnings("ignore")
    for target in targets:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                found = cell(name, *TARGETS[target])
        except Exception as error:
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}
        print(json.dumps({"model": name, "target": target, **found}), flush=True)


def measure(name: str, targets: list[str]) -> list[dict[str, Any]]:
    """All targets, in processes that may die."""
    found: list[dict[str, Any]] = []
    left = list(targets)
    while left:
        command = [sys.executable, __file__, "--work", name, *left]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS * len(left)
            )
            out, err, what = done.stdout, done.stderr, f"ended with {done.returncode}"
        except subprocess.TimeoutExpired as error:
            out, err, what = str(error.stdout or ""), "", f"took more than {SECONDS} s"
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if any("error" in line for line in lines):
            print(err, file=sys.stderr)
        found += lines
        left = left[len(lines) :]
        if left:
            found.append({"model": name, "target": left.pop(0), "error": what})
    return found


Kept = dict[tuple[str, str], str]


def page_table(cells: list[dict[str, Any]], kept: Kept) -> str:
    """Markdown, a row for each architecture. kept: what cells say that were not measured."""
    shown = {**kept, **{(c["model"], c["target"]): _shown(c) for c in cells}}
    lines = [
        f"| architecture | {' | '.join(TARGETS)} |",
        "|---" * (len(TARGETS) + 1) + "|",
    ]
    for name in ARCHITECTURES:
        row = [shown.get((name, target), "") for target in TARGETS]
        if any(row):
            lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def cells_of(page: Path) -> Kept:
    """What the table of a page says."""
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in page.read_text().splitlines()
        if line.startswith("| ")
    ]
    return {
        (name, target): text
        for name, *texts in rows
        if name in ARCHITECTURES
        for target, text in zip(TARGETS, texts, strict=True)
    }


def _shown(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"].replace("|", "/")
    noise = found["sqnr"] if isinstance(found["sqnr"], str) else f"{found['sqnr']:.0f} dB"
    share = f"{100 * found['macs']:.0f} %" if found["macs"] is not None else "-"
    return f"{found['delegates']}, {share}, {noise}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--json", type=Path, help="write the figures there, line by line")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into a page")
    parser.add_argument("--measured", nargs="+", type=Path, default=[], help="files of --json")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], options.work[1:])
        return 0
    unknown = sorted(set(options.models) - set(ARCHITECTURES))
    if unknown:
        parser.error(f"--models must be of {', '.join(ARCHITECTURES)}; got {', '.join(unknown)}")
    cells: list[dict[str, Any]] = [
        json.loads(line) for file in options.measured for line in file.read_text().splitlines()
    ]
    for name in [] if cells else options.models:
        for found in measure(name, options.targets):
            cells.append(found)
            print(json.dumps(found), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    kept = cells_of(options.write) if options.write else {}
    if options.write:
        write(options.write, page_table(cells, kept))
    print(page_table(cells, kept))
    return 1 if any("error" in c for c in cells) else 0


if __name__ == "__main__":
    raise SystemExit(main())
