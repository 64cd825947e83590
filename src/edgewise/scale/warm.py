"""What a worker does before it forks tasks: the first lowering of a process takes a second more
than the others, for imports and tables that are made when they are first used."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from contextlib import suppress
from pathlib import Path

from edgewise import registry


def backends() -> None:
    """Imports what the installed backends compile with."""
    for backend in registry.backends():
        backend.preload()


def lowering() -> None:
    """Quantizes and lowers a model of two layers.

    RuntimeError if threads are left behind: a fork would be without them.
    """
    import torch

    with suppress(ModuleNotFoundError):  # torch's passes have bars of it, which start a thread
        importlib.import_module("tqdm").tqdm.monitor_interval = 0

    from edgewise.lowering.compiling import compile
    from edgewise.quantize.schemes import SCHEMES

    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    inputs = (torch.zeros(1, 1, 4, 4),)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scheme in (None, SCHEMES["int8"].name):
            program = compile(
                model,
                inputs,
                quantize=scheme,
                calibration=[inputs] if scheme else None,
                verbose=False,
            )
            assert program.buffer
    logging.disable(logging.NOTSET)
    threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 1
    if threads > 1:
        raise RuntimeError(f"[warm] a worker must have one thread before it forks; got {threads}")
