"""What a lowered program computes, next to the float model: layer by layer, in decibels;
and what is in a file.

from edgewise.inspect import compare, suggest
print(compare(model, program, batches))
keep_float = suggest(model, inputs, quantize="int8", calibration=batches).keep_float
print(read_contents("model.pte").methods)
"""

from typing import Any

from edgewise.lazy import attribute

_LAZY = {
    "CaseResult": "edgewise.inspect.bundles",
    "Comparison": "edgewise.accuracy.comparison",
    "Contents": "edgewise.inspect.contents",
    "Suggestion": "edgewise.accuracy.suggestion",
    "check_bundled_program": "edgewise.inspect.bundles",
    "compare": "edgewise.accuracy.comparing",
    "open_program": "edgewise.inspect.reading",
    "read_contents": "edgewise.inspect.reading",
    "suggest": "edgewise.accuracy.suggesting",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: reading files takes no torch."""
    return attribute(__name__, _LAZY, name)


__all__ = [
    "CaseResult",
    "Comparison",
    "Contents",
    "Suggestion",
    "check_bundled_program",
    "compare",
    "open_program",
    "read_contents",
    "suggest",
]
