"""Runs scripts of ExecuTorch in this process, compares their programs with eager PyTorch, and
prints what it found as JSON. What is asked for with `--rows`: every name of the table."""

from __future__ import annotations

import edgewise.compat.executorch  # isort: skip  # noqa: F401  # before anything else

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

from edgewise.compat.importer import OWN_FILES

SCRIPTS = Path(__file__).parent / "scripts"


def run(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    names = runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    found: dict[str, Any] = {}
    if "et_program" in names:
        inputs = names["sample_inputs"]
        pte = names["et_program"].buffer
        reference = names.get("quantized_model") or names.get("quantized") or names["model"]
        with torch.no_grad():
            expected = reference(*inputs).double()
        found = {"delegates": _delegates(pte), "decibels": _decibels(pte, inputs, expected)}
    return found


def _delegates(pte: bytes) -> list[str]:
    import edgewise.runtime

    program = edgewise.runtime.Runtime.get().load_program(pte)
    return [d.backend for d in program.metadata("forward").delegates]


def _decibels(pte: bytes, inputs: Any, expected: torch.Tensor) -> float:
    """Signal to noise of what the runtime computes; 200 where it is the same."""
    from executorch.runtime import Runtime

    (got,) = Runtime.get().load_program(pte).load_method("forward").execute(inputs)
    noise = float((got.double() - expected).square().sum())
    signal = float(expected.square().sum())
    return 200.0 if noise == 0 else float(10 * torch.log10(torch.tensor(signal / noise)))


def rows() -> list[str]:
    """Names of the table that cannot be had."""
    import importlib

    from edgewise.compat.table import SERVED

    missing = []
    for path, names in SERVED.items():
        module = importlib.import_module(path)
        for name in names:
            try:
                getattr(module, name)
            except (ImportError, AttributeError) as failure:
                missing.append(f"{path}.{name}: {failure}")
    return missing


def main() -> None:
    found: dict[str, Any] = {name: run(name) for name in sys.argv[1:]}
    found["missing rows"] = rows()
    found["real"] = [
        name
        for name, module in sys.modules.items()
        if "site-packages/executorch" in (getattr(module, "__file__", None) or "")
        and not name.startswith(OWN_FILES)  # written for what is served
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
