"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_LOWERING = ("torch", "torchao", "flatbuffers")


def attribute(package: str, homes: Mapping[str, str], name: str) -> Any:
    """What a package's `__getattr__` answers. homes: the module that each name is in.

    Where a module is missing that lowering needs, the error names the extra.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(import_module(homes[name]), name)
    except ModuleNotFoundError as missing:
        raise explained(f"{package}.{name}", missing) from missing


def explained(where: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error, with the extra that brings the module if lowering needs it."""
    if (missing.name or "").startswith("edgewise."):  # left out of a runtime-only wheel
        return ModuleNotFoundError(
            f"[{where}] this installation only runs programs; got a use of {missing.name}; "
            f"try pip install 'edgewise[export]'",
            name=missing.name,
        )
    package = (missing.name or "").partition(".")[0]
    if package not in _LOWERING or str(missing).startswith("["):
        return missing
    return ModuleNotFoundError(
        f"[{where}] lowering needs torch and flatbuffers; got no {package}; "
        f"try pip install edgewise[export]",
        name=package,
    )
