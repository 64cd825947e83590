"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def attribute(package: str, homes: Mapping[str, str], name: str) -> Any:
    """What a package's `__getattr__` answers. homes: the module that each name is in."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
