"""Mutants that no test can notice, with the reason: (file, line before, line after)."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "src/edgewise/edge/canonicalize/views.py",
        "return first_operand(node)",
        "return None",
    ): (
        "of a vector's transpose: None leaves the node to PyTorch's decomposition, which is the "
        "vector itself; elsewhere tests of the spelling notice it"
    ),
    (
        "src/edgewise/backends/xnnpack/rows/elementwise.py",
        "SURE = (-200.0, 200.0)",
        "SURE = (-(2 * 200.0), 200.0)",
    ): ("exp(-104) rounds to 0 in float32: a sigmoid is 0 at both bounds; NaN begins at 1e26"),
    ("native/core/data_file.cpp", "uint64_t end = 0;", "uint64_t end = 1;"): (
        "checked_add writes it before it is read, or the function has returned"
    ),
    ("native/core/read_values.cpp", "size_t end = 0;", "size_t end = 1;"): (
        "checked_add writes it before it is read, or the function has returned"
    ),
    (
        "native/core/pte_file.cpp",
        "for (const auto& [key, segment] : named_) sum += segments_[segment].size();",
        "for (const auto& [key, segment] : named_) sum -= segments_[segment].size();",
    ): "how much is expected chooses only where packed weights lie, which changes speed",
}
