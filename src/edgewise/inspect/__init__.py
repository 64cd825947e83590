"""What a lowered program computes, next to the float model: layer by layer, in decibels.

from edgewise.inspect import compare, suggest
print(compare(model, program, batches))
keep_float = suggest(model, inputs, quantize="int8", calibration=batches).keep_float
"""

from typing import Any

_LAZY = {
    "Comparison": "edgewise.inspect.comparison",
    "Suggestion": "edgewise.inspect.suggestion",
    "compare": "edgewise.inspect.comparing",
    "suggest": "edgewise.inspect.suggesting",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: this takes torch."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


__all__ = ["Comparison", "Suggestion", "compare", "suggest"]
