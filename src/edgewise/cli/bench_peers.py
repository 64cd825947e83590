"""The peers of `edgewise bench`, edgewise among them: processes that take turns."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from edgewise.cli.errors import MISSING, CliError

BLOCKS = 8
"""Turns that a peer has."""
_PAUSE = 0.05
"""Seconds before a turn: thread pools of the other peers fall asleep."""


class Worker:
    """A peer's process."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        # Libraries are talkative: what they say is shown on failure only.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "edgewise.cli.bench_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer. CliError if the peer failed, with what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = "".join(self._log.readlines()[-10:])
            code = self._process.wait()
            raise CliError(f"[bench] {self.peer} must run the file; got exit code {code}\n{last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            told = answer["error"]
            if answer["kind"] == "ModuleNotFoundError" and self.peer == "ExecuTorch":
                told = f"[--peer] {told}; try pip install 'edgewise[peer]'"
                raise CliError(told, MISSING)
            ours = told.startswith("[")
            raise CliError(told if ours else f"[bench] {self.peer} must run the file; got {told}")
        return answer

    def close(self) -> None:
        """Ends the process by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


@dataclass
class Measured:
    """One peer at one number of threads. memory: bytes that the process grew by."""

    peer: str
    threads: int | None
    load_seconds: float
    first_seconds: float
    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    error: float | None = None
    """Largest difference from the first peer's outputs, relative to the largest output."""

    def percentile(self, percent: float) -> float:
        """Of the seconds, linear between the two nearest."""
        ordered = sorted(self.seconds)
        position = percent / 100 * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, times in milliseconds."""
        told: dict[str, Any] = {"side": self.peer, "threads": self.threads}
        told["calls"] = len(self.seconds)
        for percent in (50, 90, 99):
            told[f"p{percent}_ms"] = 1e3 * self.percentile(percent)
        told |= {
            "min_ms": 1e3 * min(self.seconds),
            "max_ms": 1e3 * max(self.seconds),
            "mean_ms": 1e3 * sum(self.seconds) / len(self.seconds),
            "load_ms": 1e3 * self.load_seconds,
            "first_ms": 1e3 * self.first_seconds,
            "memory_bytes": self.memory,
            "error": self.error,
        }
        return told


def measure(
    requests: Sequence[dict[str, Any]],
    *,
    warmup: int,
    calls: int | None,
    seconds: float,
    advance: Callable[[int], None],
) -> list[Measured]:
    """All peers, in turns: blocks of calls, each after a pause and one call not counted.

    calls: of each peer; None: as many as fit into `seconds`, three at least. advance: called
    with the number of blocks done, of `len(requests) * BLOCKS`.
    """
    with tempfile.TemporaryDirectory(prefix="edgewise-bench-") as folder:
        workers = [Worker(request["side"]) for request in requests]
        try:
            found, blocks = [], []
            for number, (worker, request) in enumerate(zip(workers, requests, strict=True)):
                outputs = str(Path(folder) / f"{number}.npz")
                got = worker.ask(**request, outputs=outputs)
                found.append(
                    Measured(
                        request["side"], got["threads"], got["load_seconds"], got["first_seconds"]
                    )
                )
                # The first call is part of warming up.
                tried = [got["first_seconds"]]
                for _ in range(warmup):
                    tried = worker.ask(calls=1)["seconds"]
                fit = round(seconds / max(median(tried), 1e-7))
                blocks.append(_blocks(calls if calls is not None else max(3, min(fit, 20000))))
            for turn in range(BLOCKS):
                order = range(len(workers)) if turn % 2 == 0 else reversed(range(len(workers)))
                for at in order:
                    if blocks[at][turn]:
                        time.sleep(_PAUSE)
                        if warmup:
                            workers[at].ask(calls=1)
                        got = workers[at].ask(calls=blocks[at][turn])
                        found[at].seconds += got["seconds"]
                        found[at].memory = got["memory"]
                    advance(1)
        finally:
            for worker in workers:
                worker.close()
        _compare(found, Path(folder))
    return found


def _blocks(calls: int) -> list[int]:
    """The calls, spread over the turns."""
    return [(calls + turn) // BLOCKS for turn in reversed(range(BLOCKS))]


def _compare(found: Sequence[Measured], folder: Path) -> None:
    import numpy as np

    held = []
    for number in range(len(found)):
        with np.load(folder / f"{number}.npz") as file:
            held.append([file[name] for name in file.files])
    for number in range(1, len(found)):
        worst = 0.0
        for one, other in zip(held[0], held[number], strict=False):
            if one.shape != other.shape or one.dtype.kind not in "fiub" or not one.size:
                continue
            left, right = one.astype(np.float64), other.astype(np.float64)
            largest = float(np.abs(right).max())
            difference = float(np.abs(left - right).max())
            worst = max(worst, difference / largest if largest else difference)
        found[number].error = worst
