"""What the extra `ethosu` installs, imported when it is first needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def _required(module: str, package: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"[ethosu] {purpose} needs {package}; got no module {missing.name}; "
            f"try pip install edgewise[ethosu]",
            name=missing.name,
        ) from missing


def serializer() -> Any:
    """`tosa_serializer`. ModuleNotFoundError that names the extra if it is missing."""
    return _required("tosa_serializer", "tosa-tools", "writing TOSA")


def vela_folder() -> Path | None:
    """Vela's package, None if it is not installed. `ethosu` alone is a namespace, to which any
    folder of that name belongs."""
    try:
        spec = find_spec("ethosu.vela")
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
