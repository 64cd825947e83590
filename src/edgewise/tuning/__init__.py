"""Choosing how to quantize: `edgewise.compile(..., quantize="auto", budget=Budget(...))`."""

from typing import Any

from edgewise.lazy import attribute
from edgewise.quantize.budget import Budget

_LAZY = {
    "Choice": "edgewise.tuning.choice",
    "Trial": "edgewise.tuning.choice",
    "choose": "edgewise.tuning.choosing",
}


def __getattr__(name: str) -> Any:
    """torch is only needed to choose."""
    return attribute(__name__, _LAZY, name)


__all__ = ["Budget", *_LAZY]
