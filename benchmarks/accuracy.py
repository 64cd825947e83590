"""Accuracy of quantized networks with real weights; writes docs/accuracy.md.

Each network (`_networks.py`) is compiled in several ways; each file runs on the native runtime and
is judged by the metric of the network's task, on other data than it was calibrated with.

- metric: as the document says, of 1; larger is better.
- cosine, SQNR: of the outputs with the float model's in eager PyTorch, on calibration data; the
  mean over samples, the worst output's.
- "rounding alone" is int8 without methods; "auto" is `quantize="auto"` with a budget of 0.5 % of
  the metric, with what it took and in how many seconds.
- NPUs: the file runs in the simulators (Ethos-U, Neutron's reference kernels); the share of the
  multiplications and additions that the NPU gets is the delegation report's.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import ROOT, machine, table
from _networks import NETWORKS, Network, network
from torch.utils import _pytree as pytree

DROP = 0.005
DOCUMENT = ROOT / "docs" / "accuracy.md"
NPUS = ("ethos-u55-256", "ethos-u85-256", "neutron-imxrt700-reference")
LARGE = ("all-MiniLM-L6-v2", "CREPE full", "speaker encoder", "voice activity")
"""Not run on NPUs here: the metric takes hours in their simulators."""
WAYS: dict[str, dict[str, Any]] = {
    "float32": {"quantize": None},
    "int8, rounding alone": {"quantize": "int8", "methods": []},
    "int8": {"quantize": "int8"},
    "int8 + bias-correction": {
        "quantize": "int8",
        "methods": ["smooth", "scale-outputs", "float-sums", "bias-correction"],
    },
    "int8 + equalize, bias-correction": {
        "quantize": "int8",
        "methods": ["smooth", "scale-outputs", "float-sums", "equalize", "bias-correction"],
    },
    "int8-dynamic": {"quantize": "int8-dynamic"},
    "int8-weight": {"quantize": "int8-weight"},
    "int4-dynamic": {"quantize": "int4-dynamic"},
    "int4-weight": {"quantize": "int4-weight"},
}


NPUS_OF = {"CREPE tiny": ("ethos-u55-256",)}
"""Where not all of NPUS: there the metric takes a minute in the simulator."""
NPU_WAYS: dict[str, dict[str, Any]] = {
    "int8, rounding alone": {"quantize": "int8", "methods": []},
    "int8": {"quantize": "int8"},
    "int8 + bias-correction": {"quantize": "int8", "methods": ["smooth", "bias-correction"]},
    "auto": {},
}


def compiled(net: Network, **options: Any) -> Any:
    """A program, or the reason why there is none."""
    import edgewise

    scheme = options["quantize"]
    if scheme is not None and scheme.startswith("int4"):
        names = [n for n, m in net.model.named_modules() if isinstance(m, torch.nn.Linear)]
        odd = [n for n in names if net.model.get_submodule(n).in_features % 32]
        if len(odd) == len(names):
            return "no linear layer that groups divide"
        options["keep_float"] = odd
    if scheme in ("int8", "auto"):
        options["calibration"] = net.calibration
    return edgewise.compile(net.model, net.calibration[0], verbose=False, **options)


def row_of(net: Network, way: str, program: Any, seconds: float) -> dict[str, Any]:
    """The program's figures, run on the native runtime."""
    from edgewise.tuning import Budget
    from edgewise.tuning.choice import Trial
    from edgewise.tuning.measuring import Reference, measured

    budget = Budget(metric=net.metric)
    reference = Reference.of(net.model, [(batch, {}) for batch in net.calibration[:16]], budget)
    trial = measured(Trial(None, None), program, reference, budget, timed=True)
    return {
        "network": net.name,
        "way": way,
        "metric": trial.metric,
        "cosine": None if way == "float32" else trial.cosine,
        "SQNR dB": None if way == "float32" else trial.sqnr_db,
        "file kB": (trial.size or 0) / 1e3,
        "ms": trial.latency,
        "delegates": len(program.delegation_report().delegates),
        "s": seconds,
    }


def on_cpu(name: str, ways: Sequence[str]) -> dict[str, Any]:
    """What the metric is, and a row for each way that the network can go, the search's last."""
    net, rows = network(name), []
    for way in ways:
        start = time.perf_counter()
        program = compiled(net, **dict(WAYS[way]))
        if isinstance(program, str):
            continue
        rows.append(row_of(net, way, program, time.perf_counter() - start))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    start = time.perf_counter()
    program, taken = searched(net, "xnnpack")
    seconds = time.perf_counter() - start
    return {"what": net.what, "rows": [*rows, row_of(net, taken, program, seconds)]}


def searched(net: Network, backend: str) -> tuple[Any, str]:
    """The program that `quantize="auto"` takes, and what it is."""
    import edgewise

    budget = edgewise.Budget(metric=net.metric, drop=DROP)
    program = compiled(net, quantize="auto", budget=budget, backend=backend)
    report = program.delegation_report()
    print("\n".join(report.tried), file=sys.stderr, flush=True)
    choice = report.choice
    settings = choice["settings"]
    parts = [str(settings["quantize"] or "float32"), *(settings.get("methods") or ())]
    if settings.get("keep_float"):
        parts.append(f"{len(settings['keep_float'])} modules in float")
    kept = "" if choice["reached"] else ", budget not kept"
    return program, f"auto: {', '.join(parts)} ({len(choice['trials'])} tried{kept})"


def on_npus(name: str) -> dict[str, Any]:
    """A row for each NPU and way, the search's last."""
    net = network(name)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        plain = net.metric(net.model.eval())
    for backend in NPUS_OF.get(name, NPUS):
        for way in NPU_WAYS:
            start = time.perf_counter()
            try:
                program, taken = (
                    searched(net, backend)
                    if way == "auto"
                    else (compiled(net, backend=backend, **NPU_WAYS[way]), way)
                )
            except Exception as error:
                print(f"{name}, {backend}, {way}: {error}", file=sys.stderr)
                continue
            seconds = time.perf_counter() - start
            report = program.delegation_report()
            rows.append(
                {
                    "network": name,
                    "NPU": backend.removesuffix("-reference"),
                    "way": taken,
                    "float32": plain,
                    "metric": simulated(net, program),
                    "MACs on the NPU %": 100 * report.share("macs"),
                    "delegates": len(report.delegates),
                    "s": seconds,
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"npus": rows}


def simulated(net: Network, program: Any) -> float:
    """The metric of the program in its NPU's simulator."""
    import edgewise

    run = edgewise.load(program.buffer)
    return net.metric(lambda *x: pytree.tree_map(torch.as_tensor, run(*x)))


def below_target(rows: Sequence[dict[str, Any]], npus: Sequence[dict[str, Any]]) -> list[str]:
    """Networks whose search loses more than the budget allows; sentences whose static int8 is
    below a cosine of 0.99."""
    floats = {row["network"]: row["metric"] for row in rows if row["way"] == "float32"}
    missed = []
    for row in [*rows, *npus]:
        name = row["network"]
        plain = row.get("float32", floats.get(name))
        if row["way"].startswith("auto") and row["metric"] < plain * (1 - DROP):
            where = row.get("NPU", "CPU")
            missed.append(f"{name}, {where}: {row['metric']:.4f} of {plain:.4f}")
        if name == "all-MiniLM-L6-v2" and row["way"] == "int8" and row.get("cosine", 1) < 0.99:
            missed.append(f"{name}: cosine {row['cosine']:.4f} of 0.99")
    return missed


_DIGITS = {"metric": 4, "float32": 4, "cosine": 4, "ms": 3, "file kB": 0, "s": 0}


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.{_DIGITS.get(column, 1)}f}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*lines, *("| " + " | ".join(_cell(c, r[c]) for c in columns) + " |" for r in rows), ""]


TIMES = ("ms", "s")
_TIMED = ["Times are for one input and compare only within a network; s: what compiling took."]


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {column: value for column, value in row.items() if column not in TIMES}


def markdown(found: dict[str, Any], times: bool = True) -> str:
    """The document: a table for XNNPACK, one for NPUs, the machine, how to make it again."""
    rows = [row for one in found.values() for row in one["rows"]]
    npus = [row for one in found.values() for row in one.get("npus", ())]
    if not times:
        rows, npus = ([_without_times(row) for row in some] for some in (rows, npus))
    missing = [name for name in NETWORKS if name not in found]
    lines = [
        "# Accuracy of quantized models",
        "",
        "Made by `python benchmarks/accuracy.py --write`: real weights, files run on the native",
        "runtime, each network judged by the metric of its task (larger is better). What the",
        "columns mean is said at the top of that script.",
        *(_TIMED if times else ["Times were not taken: the machine was busy."]),
        *([f"Not measured in this run: {', '.join(missing)}."] if missing else []),
        "",
        *(f"- {name}: {one['what']}" for name, one in found.items()),
        "",
        *(_table(rows) if rows else []),
        *(["## NPUs", "", *_table(npus)] if npus else []),
    ]
    where = machine()
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    lines.append(f"{where['cpu']}, {where['cores']} cores; {where['os']}; {versions}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """See the module's docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-npus", action="store_true", help="XNNPACK alone")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="figures of each network are kept there, and a later run goes on",
    )
    parser.add_argument("--no-times", action="store_true", help="write none: the machine is busy")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("torchao").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    found = {}
    for name in options.networks:
        found[name] = _kept(options.keep, name, partial(on_cpu, name, options.ways))
        if not options.no_npus and name not in LARGE:
            found[name] |= _kept(options.keep, f"{name} NPUs", partial(on_npus, name))
    rows = [row for one in found.values() for row in one["rows"]]
    npus = [row for one in found.values() for row in one.get("npus", ())]
    print(table(rows))
    print(table(npus))
    missed = below_target(rows, npus)
    if options.write:
        DOCUMENT.write_text(markdown(found, not options.no_times))
    if missed:
        print("\nBELOW TARGET: " + "; ".join(missed))
        raise SystemExit(1)


def _kept(folder: Path | None, name: str, make: Callable[[], Any]) -> Any:
    """What is in the folder already, so that a run that was broken off goes on."""
    if folder is None:
        return make()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name.replace(' ', '-')}.json"
    if not file.exists():
        file.write_text(json.dumps(make(), indent=1) + "\n")
    return json.loads(file.read_text())


if __name__ == "__main__":
    main()
