"""Runs inside a release's environment: its runtime and its lowering, nothing of this project.

    worker.py run FOLDER REPEATS    every FOLDER/*.pte, from a file and from a buffer
    worker.py make FOLDER [NAMES]   lowers the nets of `nets.py` into FOLDER

Writes a line of JSON for every file: {"name", "how", "result": "ok" | "wrong" | "refused" |
"crash", "detail"}. Files run in processes of their own, so that a crash is one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

TIMEOUT = 240


Job = Callable[[], tuple[str, str]]


def in_children(jobs: list[Job]) -> Iterator[tuple[str, str]]:
    """What each job returns, in child processes: ("crash", signal) where one ends by it. A child
    does the jobs that follow each other until one crashes, as starting it takes longest."""
    done = 0
    while done < len(jobs):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _work(jobs[done:], write_end)
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            for line in pipe:
                yield tuple(json.loads(line))
                done += 1
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            yield "crash", signal.Signals(os.WTERMSIG(status)).name
            done += 1


def _work(jobs: list[Job], write_end: int) -> None:
    """Each job's result as a line; what it prints is kept for those that fail."""
    with tempfile.TemporaryFile() as noise:
        os.dup2(noise.fileno(), 1)
        os.dup2(noise.fileno(), 2)
        for job in jobs:
            signal.alarm(TIMEOUT)
            noise.seek(0)
            noise.truncate()
            try:
                result = job()
            except BaseException as cause:
                noise.seek(0)
                said = noise.read().decode(errors="replace").strip().splitlines()
                lines = [s for s in said if "cpuinfo" not in s and "Warning" not in s]
                result = ("refused", f"{type(cause).__name__}: {cause} | {' | '.join(lines[-3:])}")
            os.write(write_end, json.dumps(result)[:60000].encode() + b"\n")


def compare(got: list[Any], expected: list[Any]) -> float:
    """The largest difference, of the largest output. ValueError where there are others."""
    if len(got) != len(expected):
        raise ValueError(f"{len(got)} outputs for {len(expected)}")
    worst = 0.0
    for y, want in zip(got, expected):  # noqa: B905 (both have one length)
        if not isinstance(want, torch.Tensor):
            worst = max(worst, float(y != want))
            continue
        if tuple(y.shape) != tuple(want.shape):
            raise ValueError(f"shape {tuple(y.shape)} for {tuple(want.shape)}")
        if y.dtype != want.dtype:
            raise ValueError(f"{y.dtype} for {want.dtype}")
        y, want = y.double(), want.double()
        same = (y == want) | (y.isnan() & want.isnan())
        difference = float((y - want).abs().masked_fill(same, 0).amax()) if want.numel() else 0.0
        largest = want.abs()[want.isfinite()]
        found = difference / max(float(largest.amax()) if largest.numel() else 1.0, 1e-6)
        worst = max(worst, found if found == found else float("inf"))
    return worst


def takes_data() -> bool:
    """Whether the release loads weights beside a program that is given as a buffer."""
    from executorch.extension.pybindings import portable_lib

    return "data_map_buffer" in (portable_lib._load_for_executorch_from_buffer.__doc__ or "")


def run_file(pte: Path, how: str, repeats: int) -> tuple[str, str]:
    """Every call of the file's record, `repeats` times; state begins anew each time."""
    from executorch.extension.pybindings import portable_lib

    torch.set_num_threads(1)
    record = torch.load(pte.with_suffix(".pt"), weights_only=True)
    data = pte.with_suffix(".ptd")
    content, weights = pte.read_bytes(), data.read_bytes() if data.exists() else None

    def load() -> Any:
        if how == "file":
            more = [str(data)] if weights is not None else []
            return portable_lib._load_for_executorch(str(pte), *more)
        more = [weights] if weights is not None else []
        return portable_lib._load_for_executorch_from_buffer(content, *more)

    worst, module = 0.0, load()
    for _ in range(repeats):
        if record["stateful"]:
            module = load()
        # What was freed is written over, so that it is seen.
        litter = [bytearray(b"\xff" * size) for size in (64, 256, 1024, 4096, 65536)]
        for call in record["calls"]:
            got = module.run_method(call["method"], tuple(call["inputs"]))
            worst = max(worst, compare(list(got), call["outputs"]))
        del litter
    return ("ok" if worst <= record["tolerance"] else "wrong"), f"{worst:.2g}"


def lowered(variant: Any, folder: Path) -> tuple[str, str]:
    """Lowered in this process: torch.export does not work in a forked one."""
    try:
        return make_file(variant, folder)
    except Exception as cause:
        return "refused", f"{type(cause).__name__}: {cause}"


def make_file(variant: Any, folder: Path) -> tuple[str, str]:
    import peer_lowering

    buffer, data = peer_lowering.lower(variant)
    write_record(variant, folder)
    (folder / f"{variant.name}.pte").write_bytes(buffer)
    if data is not None:
        (folder / f"{variant.name}.ptd").write_bytes(data)
    return "ok", f"{len(buffer)} bytes"


def write_record(variant: Any, folder: Path) -> None:
    """Inputs, and the outputs of eager PyTorch, beside the file."""
    stateful = len(variant.net.calls) > 0 and variant.net.dynamic is None
    record = {
        "calls": variant.expected(),
        "tolerance": variant.tolerance,
        "stateful": stateful,
    }
    torch.save(record, folder / f"{variant.name}.pt")


def results(arguments: list[str]) -> Iterator[dict[str, str]]:
    task, folder = arguments[0], Path(arguments[1])
    if task == "make":
        import peer_lowering  # noqa: F401 (once, not in every child)
        from nets import variants

        folder.mkdir(parents=True, exist_ok=True)
        names = set(filter(None, "".join(arguments[2:]).split(",")))
        for variant in variants().values():
            asked = not names or {variant.name, variant.name.split(".")[0]} & names
            if variant.net.peer and asked:
                result, detail = lowered(variant, folder)
                yield {"name": variant.name, "how": "make", "result": result, "detail": detail}
        return
    sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
    from release_facts import load_libraries

    load_libraries()
    tasks = [
        (pte, how)
        for pte in sorted(folder.glob("*.pte"))
        for how in (("file",) if os.environ.get("ONLY_FILE") else ("file", "buffer"))
        if how == "file" or takes_data() or not pte.with_suffix(".ptd").exists()
    ]
    jobs = [partial(run_file, pte, how, int(arguments[2])) for pte, how in tasks]
    for (pte, how), (result, detail) in zip(tasks, in_children(jobs)):  # noqa: B905
        yield {"name": pte.stem, "how": how, "result": result, "detail": detail}


if __name__ == "__main__":
    for line in results(sys.argv[1:]):
        print(json.dumps(line), flush=True)
