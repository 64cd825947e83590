"""`make interop`: files of both sides on all releases of ExecuTorch, in both directions.

    python tests/interop/releases/matrix.py [--releases 1.3.1,1.4.1] [--repeats 3]
    ... --runtime "executorch>=1.0"      our files as they are for that target
    ... --nets add_one,conv.fp16 --repeats 100 --ours     these nets only, our files only
    ... --record                          small files of each release into tests/data/releases

Each release has an environment of its own, made once, in ~/.cache/edgewise/releases: its wheel and
the torch that it was made for; pure Python comes from this environment. On x86-64 other torches
than this one's come as CUDA builds: tools/cuda_stubs.py makes them import without CUDA (1 to 2 GB
each on disk). Ends with 1 if a file crashes, or if it is refused or computes something else
although `edgewise inspect` says that the release runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edgewise.files import own_folder

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = Path.home() / ".cache" / "edgewise" / "releases"
RELEASES = {
    "1.0.1": ("2.9.1", "0.14.0"),
    "1.1.0": ("2.10.0", "0.15.0"),
    "1.2.0": ("2.11.0", "0.17.0"),
    "1.3.1": ("2.12.0", "0.17.0"),
    "1.4.1": ("2.13.0", "0.18.0"),
    "1.5.1": ("2.13.0", "0.18.0"),
}
"""torch and torchao of each release."""

Row = dict[str, str]


def environment(release: str) -> Path:
    """The folder with the release's packages, made if it is not there."""
    folder = own_folder(CACHE) / release
    if (folder / ".complete").exists():
        return folder
    torch, torchao = RELEASES[release]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir"]
    packages = [f"executorch=={release}", f"torch=={torch}", f"torchao=={torchao}"]
    print(f"environment for {release}: {', '.join(packages)}", flush=True)
    subprocess.run([*pip, "--upgrade", "--target", str(folder), *packages], check=True)
    if (folder / "torch" / "lib" / "libtorch_cuda.so").exists():
        stubs = [sys.executable, str(ROOT / "tools" / "cuda_stubs.py"), str(folder)]
        subprocess.run(stubs, check=True, stdout=subprocess.DEVNULL)
    (folder / ".complete").touch()
    return folder


def worker(release: str, *arguments: str) -> Iterator[Row]:
    """Lines of `worker.py` in the release's environment."""
    path = os.pathsep.join([str(environment(release)), str(ROOT / "tools")])
    found = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(HERE / "worker.py"), *arguments]
    with subprocess.Popen(
        command, env=found, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        yield {"name": "worker", "how": arguments[0], "result": "crash", "detail": release}


def failures(rows: list[Row], folder: Path, release: str) -> list[Row]:
    """Rows that must not be: what is refused or wrong counts unless `inspect` told of it."""
    from edgewise.inspect.needs import beyond, needs_of
    from edgewise.releases import target_of

    found = []
    for row in rows:
        pte = folder / f"{row['name']}.pte"
        told = False
        if row["result"] in ("refused", "wrong") and pte.exists():
            told = bool(beyond(needs_of(pte.read_bytes()), target_of(f"executorch>={release}")))
        if row["result"] != "ok" and not told:
            found.append(row)
    return found


def told_of(row: Row, folder: Path) -> bool:
    """Whether `inspect` says of a refused file that this runtime does not run it."""
    from edgewise.inspect.needs import needs_of

    pte = folder / f"{row['name']}.pte"
    return row["result"] == "refused" and not all(n.is_ours for n in needs_of(pte.read_bytes()))


RECORDED = (
    "add_one", "layer_norm", "linear.int8", "mlp.int4-dynamic", "conv", "conv.fp16", "conv.int8",
    "attention", "gru_head", "kv_cache", "llama_cache", "cond", "map", "three_methods", "bag_8",
    "bag_4", "dynamic_linear", "mlp_external", "top", "trigonometry",
    "pooling", "linear_bfloat16",
)  # fmt: skip
"""Files of each release that the ordinary tests run."""


def record(made: Path, release: str) -> None:
    """Copies what the release lowered of `RECORDED` to where the tests read it; the rest stays."""
    folder = ROOT / "tests" / "data" / "releases" / release
    folder.mkdir(parents=True, exist_ok=True)
    for name in RECORDED:
        if not (made / f"{name}.pte").exists():
            continue
        for suffix in (".pte", ".pt", ".ptd"):
            (folder / f"{name}{suffix}").unlink(missing_ok=True)
            if (made / f"{name}{suffix}").exists():
                shutil.copyfile(made / f"{name}{suffix}", folder / f"{name}{suffix}")


def show(title: str, rows: list[Row], bad: list[Row]) -> None:
    """Counts, then what must not be."""
    counts = Counter(row["result"] for row in rows)
    print(f"{title}: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())), flush=True)
    for row in bad:
        print(f"  {row['name']} ({row['how']}): {row['result']}: {row['detail'][:300]}", flush=True)


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", default=",".join(RELEASES))
    parser.add_argument("--repeats", default="3")
    parser.add_argument("--runtime")
    parser.add_argument("--nets", default="")
    parser.add_argument("--ours", action="store_true", help="no files of releases")
    parser.add_argument("--theirs", action="store_true", help="no files of ours")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "interop")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "tools"))
    import ours
    from nets import variants

    if arguments.record:
        for release in arguments.releases.split(","):
            record(arguments.folder / release, release)
        return 0
    names = set(filter(None, arguments.nets.split(",")))
    chosen = [v for v in variants().values() if not names or {v.name, v.name.split(".")[0]} & names]
    mine = arguments.folder / "ours"
    mine.mkdir(parents=True, exist_ok=True)
    if not arguments.theirs:
        for old in mine.glob("*.pt*"):
            old.unlink()
        unmade = ours.write_all(chosen, mine, arguments.runtime)
        show("lowered here", unmade, unmade)
    bad = 0
    for release in arguments.releases.split(","):
        if not arguments.theirs:
            rows = list(worker(release, "run", str(mine), arguments.repeats))
            wrong = failures(rows, mine, release)
            show(f"our files on {release}", rows, wrong)
            bad += len(wrong)
        if arguments.ours:
            continue
        theirs = arguments.folder / release
        made = list(worker(release, "make", str(theirs), arguments.nets))
        # Refusals are the release's own; said, so that a broken environment is seen.
        show(f"lowered by {release}", made, [row for row in made if row["result"] != "ok"])
        bad += sum(row["result"] == "crash" for row in made)
        here = ours.run_all(theirs)
        amiss = {row["name"] for row in here if row["result"] in ("refused", "wrong")}
        there = worker(release, "run", str(theirs), "1") if amiss else ()
        # A release may lower wrongly: its own runtime then does no better.
        same = amiss & {row["name"] for row in there if row["result"] in ("refused", "wrong")}
        if same:
            print(f"as wrong on {release} itself: {', '.join(sorted(same))}", flush=True)
        worse = [
            row
            for row in here
            if row["result"] != "ok" and row["name"] not in same and not told_of(row, theirs)
        ]
        show(f"files of {release} here", here, worse)
        bad += len(worse)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
