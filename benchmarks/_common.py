"""What every benchmark prints: the machine, a table, and the same as JSON."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from edgewise.files import own_folder

ROOT = Path(__file__).resolve().parent.parent
IMAGE_MODELS = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "vit_b_16")
_PACKAGES = ("edgewise", "executorch", "torch", "onnxruntime", "numpy")


def machine() -> dict[str, Any]:
    """Where the figures were taken: CPU, cores, load, OS, package versions, date."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "-"
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "load_average": round(os.getloadavg()[0], 2),
        "os": _os_name(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.machine())
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{name} (family {family}, model {model})" if family else name


def _os_name() -> str:
    try:
        distribution = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        distribution = platform.system()
    return f"{distribution}, {platform.system()} {platform.release()} {platform.machine()}"


def quantile(values: Sequence[float], q: float) -> float:
    """Linear between the two nearest values; `q` in [0, 1]."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def ratio(ours: Sequence[float], peer: Sequence[float]) -> float | None:
    """Median of the pairwise ratios; None if either framework is missing."""
    pairs = [a / b for a, b in zip(ours, peer, strict=False)]
    return median(pairs) if pairs else None


def number(value: object) -> str:
    """A cell: three significant digits for floats, a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if value != 0 and abs(value) < 1e-3:
            return f"{value:.1e}"
        return f"{value:.{3 if abs(value) < 10 else 2 if abs(value) < 100 else 1}f}"
    return str(value)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Aligned text with one column a key; numbers to the right."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[number(row.get(column)) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)
    ]
    left = [any(isinstance(row.get(column), str) for row in rows) for column in columns]

    def line(values: Sequence[str]) -> str:
        padded = (
            value.ljust(width) if is_left else value.rjust(width)
            for value, width, is_left in zip(values, widths, left, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * w for w in widths]), *map(line, cells)])


def add_common_options(parser: argparse.ArgumentParser, models: Sequence[str]) -> None:
    """--models, --only, --cache and --json, the same everywhere."""
    parser.add_argument("--models", nargs="+", default=list(models), metavar="NAME")
    parser.add_argument("--only", choices=("ours", "peer"), help="run one framework")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def add_timing_options(
    parser: argparse.ArgumentParser, pairs: int = 21, block: float = 100
) -> None:
    """Threads, and how frameworks take turns: blocks of calls, and the pause before each."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--block", type=float, default=block, metavar="MS")
    parser.add_argument("--settle", type=float, default=50, metavar="MS")


def report_wrong(errors: Mapping[str, float], limit: float) -> int:
    """Says whose errors are above the limit, or are none (NaN); the exit code."""
    wrong = [name for name, error in errors.items() if not error <= limit]
    if wrong:
        print(f"\nWRONG RESULTS (error above {limit:g}): {', '.join(wrong)}")
    return 1 if wrong else 0


def cache_folder() -> Path:
    """What edgewise keeps between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "edgewise"


def add_cache_options(parser: argparse.ArgumentParser, refresh: bool = True) -> None:
    """Where files are kept between runs. refresh: whether ours are lowered, and can be anew."""
    default = cache_folder() / "benchmarks"
    parser.add_argument(
        "--cache", type=own_folder, default=str(default), help="files are kept here"
    )
    if refresh:
        parser.add_argument(
            "--refresh", action="store_true", help="lower ours again although a file is there"
        )


def report(
    title: str,
    rows: Sequence[dict[str, Any]],
    notes: Sequence[str],
    json_file: Path | None,
    details: dict[str, Any] | None = None,
) -> None:
    """Print the table with its machine and notes; write all of it to `json_file` if given."""
    where = machine()
    print(f"\n{title}\n")
    print(table(rows) if rows else "(nothing was run)")
    print(f"\nmachine: {where['cpu']}, {where['cores']} cores, load {where['load_average']}")
    print(f"         {where['os']}")
    print("         " + ", ".join(f"{name} {v}" for name, v in where["versions"].items()))
    for note in notes:
        print(f"note: {note}")
    if json_file is not None:
        whole = {"title": title, "machine": where, "rows": list(rows), "notes": list(notes)}
        json_file.write_text(json.dumps({**whole, **(details or {})}, indent=1) + "\n")
