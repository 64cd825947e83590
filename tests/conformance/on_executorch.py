"""ExecuTorch's runtime in a process of its own, which a program may end."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

_SECONDS = 60


class Executorch:
    """Runs files; a new process follows one that ended."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._end: Any = None

    def run(self, file: bytes, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """RuntimeError with ExecuTorch's error, or if the process ended."""
        if self._process is None:
            self._end, other = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        try:
            self._end.send((file, [_dense(x) for x in inputs]))
            if not self._end.poll(_SECONDS):
                raise EOFError
            found = self._end.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise RuntimeError("ExecuTorch's process ended") from error
        if isinstance(found, str):
            raise RuntimeError(found)
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None


def _dense(x: torch.Tensor) -> torch.Tensor:
    """In the order in which the program has it, without gaps."""
    x = x.detach()
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x
    return x.contiguous()


def _serve(end: Connection) -> None:
    """Answers each file and its inputs with the results, or with an error's text."""
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    from executorch.runtime import Runtime

    while True:
        file, inputs = end.recv()
        try:
            method = Runtime.get().load_program(file).load_method("forward")
            results = method.execute(inputs)
            end.send([y.clone() if isinstance(y, torch.Tensor) else y for y in results])
        except Exception as error:
            end.send(f"{type(error).__name__}: {error}")
