"""For each kernel one call without types, of which types_test.cpp makes one for each type."""

from __future__ import annotations

import re
from pathlib import Path

_TENSOR = re.compile(r"(?<![\w:])(f32|f64|f16|bf16|i8|i16|i32|i64|u8|bool)\[([^]]*)\](:\d+)?\{([^}]*)\}")
_ORDER = ("f32", "i32", "i8", "f64", "bool", "u8", "f16", "bf16", "i16", "i64")
"""Which of a call's types is the one that is tried, the first that it has."""

BY_HAND = """\
aten::_embedding_bag.out T[3, 2]{1, 2, 1, 2, 1, 2} i64[2]{0, 1} i64[1]{0} false 0 false none false -1 -> R[0, 0]{} i64[0]{} i64[0]{} i64[0]{}
aten::_embedding_bag_forward_only.out T[3, 2]{1, 2, 1, 2, 1, 2} i64[2]{0, 1} i64[1]{0} false 0 false none false -1 -> R[0, 0]{} i64[0]{} i64[0]{} i64[0]{}
aten::_native_batch_norm_legit_functional.out T[1, 1, 3]{1, 2, 1} none none T[1]{1} T[1]{1} true f:0.1 f:0.1 -> R[0, 0, 0]{} R[0]{} R[0]{} R[0]{} R[0]{}
aten::bernoulli.float_out T[2]{1, 1} f:0.5 none -> R[0]{}
aten::bernoulli.out T[2]{1, 1} none -> R[0]{}
aten::embedding_renorm.out T[2, 2]{1, 2, 1, 2} i64[1]{0} f:1.0 f:2.0 -> R[0, 0]{}
aten::empty.out (2) none -> R[0]{}
aten::empty_permuted.out (2) (0) -> R[0]{}
aten::empty_strided.out (2) (1) -> R[0]{}
aten::native_dropout.out T[2]{1, 1} f:0.5 true -> R[0]{} bool[0]{}
aten::rand.out (2) -> R[0]{}
aten::rand_like.out T[2]{1, 1} none -> R[0]{}
aten::randint.low_out 1 5 (2) -> R[0]{}
aten::randint.out 5 (2) -> R[0]{}
aten::randn.out (2) -> R[0]{}
aten::randn_like.out T[2]{1, 1} none -> R[0]{}
aten::randperm.out 2 -> R[0]{}
dim_order_ops::_empty_dim_order.out (2) (0) -> R[0]{}
""".splitlines()
"""Kernels whose results PyTorch does not give."""


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
    """One line for each kernel that has a case, the shortest of its cases with the first type and few others."""
    best: dict[str, tuple[int, int, int, str]] = {}
    for path in sorted(folder.glob("*.txt")):
        for case in path.read_text().splitlines():
            line = None if case.startswith(("#", "$")) else _line(case)
            if line is None:
                continue
            name = line.partition(" ")[0]
            kinds = [m.group(1) for m in _TENSOR.finditer(case.partition(" -> ")[0])]
            rank = (0 if "f32" in kinds else 1, len(set(kinds)), len(line), line)
            if "self=" in case and " T[" not in line:
                continue
            best[name] = min(best.get(name, rank), rank)
    return sorted([*(line for *_, line in best.values()), *BY_HAND])
