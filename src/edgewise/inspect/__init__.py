"""What a lowered program computes, next to the float model: layer by layer, in decibels.

from edgewise.inspect import compare, suggest
print(compare(model, program, batches))
keep_float = suggest(model, inputs, quantize="int8", calibration=batches).keep_float
"""

from typing import Any

from edgewise.lazy import attribute

_LAZY = {
    "Comparison": "edgewise.inspect.comparison",
    "Suggestion": "edgewise.inspect.suggestion",
    "compare": "edgewise.inspect.comparing",
    "suggest": "edgewise.inspect.suggesting",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: this takes torch."""
    return attribute(__name__, _LAZY, name)


__all__ = ["Comparison", "Suggestion", "compare", "suggest"]
