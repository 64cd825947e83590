"""One side of `edgewise bench`, in a process of its own: `python -m edgewise.cli.bench_worker`.

Reads requests from standard input and answers on standard output, a JSON object a line each:
`load` (a side with its file and inputs), then any number of `calls`. Each side so has its own
libraries, threads and memory, and edgewise runs without torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[], Any]


def _edgewise(request: dict[str, Any], inputs: list[Any]) -> tuple[Run, int | None]:
    from edgewise.cli.files import open_method

    method = open_method(Path(request["file"]), request["method"], request["threads"], None)
    return lambda: method.execute(inputs), request["threads"]


def _peer(request: dict[str, Any], inputs: list[Any]) -> tuple[Run, int | None]:
    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    if request["threads"]:
        portable_lib._unsafe_reset_threadpool(request["threads"])
    program = Runtime.get().load_program(request["file"])
    method = program.load_method(request["method"])
    assert method is not None
    tensors = [torch.from_numpy(x) if hasattr(x, "dtype") else x for x in inputs]

    def run() -> list[Any]:
        outputs = method.execute(tensors)
        return [y.numpy() if isinstance(y, torch.Tensor) else y for y in outputs]

    return run, int(portable_lib._threadpool_get_thread_count())


def _eager(request: dict[str, Any], inputs: list[Any]) -> tuple[Run, int | None]:
    import torch
    from torch.utils import _pytree as pytree

    from edgewise.cli.models import load_model

    if request["threads"]:
        torch.set_num_threads(request["threads"])
    loaded = load_model(request["file"], request["shapes"])
    model = loaded.model
    model = model.module() if isinstance(model, torch.export.ExportedProgram) else model.eval()
    arguments = loaded.nested(inputs)

    def run() -> list[Any]:
        with torch.inference_mode():
            leaves = pytree.tree_leaves(loaded.run(model, arguments))
        return [y.float().numpy() if isinstance(y, torch.Tensor) else y for y in leaves]

    return run, torch.get_num_threads()


_SIDES = {"edgewise": _edgewise, "ExecuTorch": _peer, "eager": _eager}


def _import(side: str) -> None:
    """What loading would import: its memory and time are not the program's."""
    if side == "edgewise":
        import edgewise.cli.files
        import edgewise.runtime  # noqa: F401
    else:
        import torch  # noqa: F401
    if side == "ExecuTorch":
        from executorch.runtime import Runtime

        Runtime.get()


class Handler:
    """Answers requests for one side."""

    def __init__(self) -> None:
        self._run: Run = lambda: None
        self._before = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        if "side" in request:
            return self._load(request)
        times = []
        for _ in range(request["calls"]):
            start = time.perf_counter()
            self._run()
            times.append(time.perf_counter() - start)
        return {"seconds": times, "memory": _memory("VmHWM") - self._before}

    def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        _import(request["side"])
        with np.load(request["inputs"]) as held:
            inputs = [held[name] for name in held.files]
        # Numbers are arrays without dimensions there.
        given = [
            x.item() if kind != "Tensor" else x
            for x, kind in zip(inputs, request["kinds"], strict=True)
        ]
        self._before = _memory("VmRSS")
        start = time.perf_counter()
        self._run, threads = _SIDES[request["side"]](request, given)
        loaded = time.perf_counter() - start
        outputs = self._run()
        first = time.perf_counter() - start - loaded
        tensors = [np.asarray(y) for y in outputs]
        np.savez(request["outputs"], *tensors)
        return {"threads": threads, "load_seconds": loaded, "first_seconds": first}


def _memory(field: str) -> int:
    """Bytes of the process, as Linux tells; 0 elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    return 0


def main() -> None:
    """Answers until the input ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    handler = Handler()
    for line in sys.stdin:
        try:
            answer = handler.answer(json.loads(line))
        except BaseException as error:  # any failure of a side is the asker's to show
            traceback.print_exc()
            answer = {"error": str(error) or type(error).__name__, "kind": type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
