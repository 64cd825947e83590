"""For each kernel one call without types, of which types_test.cpp makes one for each type."""

from __future__ import annotations

import re
from pathlib import Path

_TENSOR = re.compile(
    r"(?<![\w:])(f32|f64|f16|bf16|i8|i16|i32|i64|u8|bool)\[([^]]*)\](:\d+)?\{([^}]*)\}"
)
_ORDER = ("f32", "i32", "i8", "f64", "bool", "u8", "f16", "bf16", "i16", "i64")
"""Which of a call's types is the one that is tried, the first that it has."""


def _elements(text: str) -> str:
    """As many small positive numbers, which every type has and every function takes."""
    return ", ".join(str(i % 2 + 1) for i in range(len(text.split(",")) if text.strip() else 0))


def _line(case: str) -> str | None:
    """`T` stands for the type of operands, `R` for one that depends on it."""
    head, _, results = case.partition(" -> ")
    results = results.partition(" ~ ")[0]
    name, _, arguments = head.partition(" ")
    if "$" in head or " error " in case or not _TENSOR.search(case):
        return None
    # Operands of other types than the tried one are masks and indices, and stay.
    found = {m.group(1) for m in _TENSOR.finditer(arguments)}
    if "quantized_decomposed::dequantize" in name or "torchao::dequantize" in name:
        found -= {"f32", "f64"}  # those are scales
    if not found:
        main = next(m.group(1) for m in _TENSOR.finditer(results))
    else:
        main = next(t for t in _ORDER if t in found)

    def argument(m: re.Match[str]) -> str:
        if m.group(1) != main:
            return m.group(0)
        return f"T[{m.group(2)}]{m.group(3) or ''}{{{_elements(m.group(4))}}}"

    alone = len(_TENSOR.findall(results)) == 1

    def result(m: re.Match[str]) -> str:
        rank = len(m.group(2).split(",")) if m.group(2).strip() else 0
        follows = m.group(1) == main or (alone and m.group(1) in ("f32", "i64", "bool"))
        type_ = "R" if follows else m.group(1)
        return f"{type_}[{', '.join(['0'] * rank)}]{{}}"

    return f"{name} {_TENSOR.sub(argument, arguments)} -> {_TENSOR.sub(result, results)}"


def type_lines(folder: Path) -> list[str]:
    """One line for each kernel that has a case, the shortest of its cases with the first type, few
    others and elements (some functions of none refuse integers); and those written by hand, of
    kernels whose results PyTorch does not give."""
    best: dict[str, tuple[int, int, bool, int, str]] = {}
    for path in sorted(folder.glob("*.txt")):
        for case in path.read_text().splitlines():
            line = None if case.startswith(("#", "$")) else _line(case)
            if line is None:
                continue
            name = line.partition(" ")[0]
            kinds = [m.group(1) for m in _TENSOR.finditer(case.partition(" -> ")[0])]
            empty = "{}" in line.partition(" -> ")[0]
            rank = (0 if "f32" in kinds else 1, len(set(kinds)), empty, len(line), line)
            if "self=" in case and " T[" not in line:
                continue
            best[name] = min(best.get(name, rank), rank)
    by_hand = (folder / "by_type_by_hand.tsv").read_text().splitlines()
    return sorted([*(line for *_, line in best.values()), *by_hand])
