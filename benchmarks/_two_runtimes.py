"""Files on our runtime and on ExecuTorch's, which take turns, in processes of their own."""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from _common import add_cache_options
from _worker import Worker, serve

SIDES = ("ours", "executorch")


class Handler:
    """Answers `measure`: loads a file, or times one call. framework: one of `SIDES`."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._run: Any = None
        self._keep: Any = None

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "load":
            load = self._ours if self._framework == "ours" else self._peers
            self._run = load(request["path"], request["method"])
            return {}
        inputs = [np.asarray(x, dtype) for x, dtype in request["inputs"]]
        start = time.perf_counter()
        result = self._run(inputs)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "result": np.asarray(result).reshape(-1)[:4096].tolist()}

    def _ours(self, path: str, name: str) -> Any:
        from edgewise.runtime import Runtime

        method = Runtime.get().load_program(path, threads=2).load_method(name)
        return lambda inputs: method.execute(inputs)[0]

    def _peers(self, path: str, name: str) -> Any:
        import executorch.extension.llm.custom_ops.custom_ops
        import executorch.kernels.quantized  # noqa: F401
        import torch
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(path)
        method = program.load_method(name)
        self._keep = program
        return lambda inputs: method.execute([torch.from_numpy(x) for x in inputs])[0]


def measure(
    script: Path,
    files: Mapping[str, tuple[str, Path]],
    calls: list[list[Any]],
    rounds: int,
    method: str = "forward",
    methods: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of the last of the calls by name, a round each; and the first 4,096 of its numbers.

    script: serves a `Handler` for `--worker SIDE`. files: by name, the side and the file.
    methods: by name, those of files with another one.
    """
    workers = {name: Worker(script, side) for name, (side, _) in files.items()}
    seconds: dict[str, list[float]] = {name: [] for name in files}
    results: dict[str, Any] = {}
    for name, worker in workers.items():
        worker.ask(do="load", path=str(files[name][1]), method=methods.get(name, method))
    sent = [[(x.tolist(), str(x.dtype)) for x in call] for call in calls]
    for number in range(rounds + 1):
        for name, worker in workers.items():
            time.sleep(0.3)  # pools spin for a while after their work
            for call in sent:
                answer = worker.ask(do="run", inputs=call)
            if number:  # the first round warms
                seconds[name].append(answer["seconds"])
            else:
                results[name] = np.array(answer["result"])
    for worker in workers.values():
        worker.close()
    return seconds, results


def options_of(script: Path, doc: str, rounds: int, **more: int) -> argparse.Namespace | None:
    """Of the command line, with the folder of files made; None for a worker, once it has served.

    more: further options, each a number with its default.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(script.name, description=doc, formatter_class=raw)
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    add_cache_options(parser)
    options = parser.parse_args()
    if options.worker:
        serve(Handler(options.worker))
        return None
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


def side_by_side(
    script: Path, path: Path, calls: list[list[Any]], rounds: int, method: str = "forward"
) -> dict[str, float]:
    """Of one file on both: milliseconds, their ratio, and how far the results are apart, in units
    of their deviation."""
    files = {side: (side, path) for side in SIDES}
    seconds, results = measure(script, files, calls, rounds, method)
    ours, peer = (seconds[side] for side in SIDES)
    gap = np.abs(results["ours"] - results["executorch"]).max()
    return {
        "ours ms": 1e3 * float(np.median(ours)),
        "ExecuTorch ms": 1e3 * float(np.median(peer)),
        "ratio": median_ratio(ours, peer),
        "difference": float(gap / results["executorch"].std()),
    }


def median_ratio(seconds: list[float], other: list[float]) -> float:
    """Of the rounds' ratios."""
    return float(np.median(np.array(seconds) / np.array(other)))
