"""Mutants that no test can notice, with the reason: (file, line before, line after)."""

from __future__ import annotations

_VIEWS = "src/edgewise/edge/canonicalize/views.py"

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (_VIEWS, "return first_operand(node)", "return None"): (
        "of a vector's transpose: None leaves the node to PyTorch's decomposition, which is the "
        "vector itself; elsewhere tests of the spelling notice it"
    ),
}
