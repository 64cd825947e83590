"""Says at lowering which operators of a method the runtime has no kernel for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from edgewise.errors import UnsupportedOperatorError


class MissingKernelWarning(UserWarning):
    """A method calls operators that have to be registered where it runs."""


def report_missing_kernels(method: str, called: Mapping[str, Any], action: str) -> None:
    """called: operators by their names in the file. action: "warn", "error", "ignore".

    Kernels that are registered in this process count as present.
    """
    if action == "ignore":
        return
    known = _known()
    if known is None:
        return
    missing = {name: target for name, target in called.items() if name not in known}
    if not missing:
        return
    lines = [f"  {name}, for {_schema(target)}" for name, target in missing.items()]
    text = (
        f"[{method}] every operator needs a kernel where the program runs; got none for\n"
        + "\n".join(lines)
        + f'\ntry @edgewise.runtime.register_kernel("{next(iter(missing))}") in Python, or '
        f"EDGEWISE_REGISTER_KERNEL in C++ and edgewise.runtime.load_kernels()"
    )
    if action == "error":
        raise UnsupportedOperatorError(text)
    warnings.warn(text, MissingKernelWarning, stacklevel=4)


def _known() -> set[str] | None:
    """The kernels of the runtime; None where it was not built."""
    try:
        from edgewise.runtime import Runtime
    except ImportError:
        return None
    return Runtime.get().operator_registry.operator_names


def _schema(target: Any) -> str:
    return str(target._schema) if isinstance(target, torch._ops.OpOverload) else str(target)
