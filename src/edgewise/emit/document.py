"""The runtime's own operators as Markdown, made from its registry and their declared accuracy.

python -m edgewise.emit.document > docs/operators.md
"""

from __future__ import annotations

from collections import defaultdict

import torch

from edgewise.emit.kernel_accuracy import PATH, Accuracy, accuracy, sets

_HEAD = """# Operators of the runtime

Made by `python -m edgewise.emit.document` from the registry of kernels and from
`native/kernels/accuracy.txt`, where kernels declare what they take and how exact they are. A test
fails if this page is stale; the native tests call every kernel with types that are listed and types
that are not, and hold each element of its results to its bound, at every level of vector
instructions that the CPU has. These run whatever no backend takes. `make conformance` compares
them with eager PyTorch on its own samples.

{sets}Operands of different types are promoted as in PyTorch, shapes broadcast, dimensions may be
negative, tensors may be empty or without dimensions. float16 and bfloat16 are computed in float32
and rounded once. Operators with a star are core ATen.

Accuracy is of float32, of float64, and of float16 and bfloat16, one for all if they are equal;
integers and bools are exact.

| accuracy | what it says of every element |
|---|---|
| exact | eager PyTorch's result, bit by bit, with the signs of zeros; any NaN is NaN |
| n ulp | at most n units in the last place from the exact result, rounded to the type |
| n eps | at most n epsilons of the type in which it is computed, times the sum of the terms' \
magnitudes, and one unit of the result |

The terms are those that are added. Of functions that are no sums they are what each operand
contributes, abs(dy/dx x); of interpolations the largest pixel times the longest side.

Where PyTorch's vector loops and its scalar loops differ, or its own steps round or overflow,
kernels give what is exact: `cosh`, `sinh`, `gelu`, `hardswish` and `lgamma` do not overflow
before their result does, `gelu` and `silu` keep their digits where they are tiny, `fmod` and
`remainder` of huge quotients are numbers and not NaN, `floor_divide` and `div` rounded down are
the floor of the quotient, of which eager's float32 can be one off. Of equal zeros `fmax`, `fmin`
and `clamp` take the first. `add`, `sub` and `rsub` are exact where alpha is a power of 2.

Beside float16 and bfloat16, `add`, `sub`, `rsub`, `fmod`, `remainder`, `pow`, `atan2` and
comparisons round numbers, alpha and tensors without dimensions to that type first, as eager PyTorch
does on CPUs; `mul`, `div` and others round the result alone.

A function that lowering writes as several operators has the errors of each: `silu` is `sigmoid` and
`mul`; `hardsigmoid` and `hardswish` are `add`, `clamp` and `mul`; `logit` is `sub`, `div` and
`log`; `exp2` is `pow`. Their own kernels run files that others wrote.

Of core ATen these are no kernels: views (they are lowered to the `_copy` operators),
`_fft_r2c` and `_fft_c2r` (lowering writes them as products with matrices, and complex tensors as
their real and imaginary parts, so that a file holds none), `resize_`, and questions about strides
and storage, which a program's tensors do not have.

Beside what torch decomposes, lowering writes these as others, inside of a delegate where one takes
them: {decomposed}. Matrices of `det`, `inv`, `solve` and `cholesky` have up to 32 rows;
`logcumsumexp`, `cummax` and `cummin` of n numbers take memory for n * n.

`python benchmarks/kernel_speed.py` compares their speed with eager PyTorch's, one call a line, in
every type, on one thread.

| operator | overloads | types | accuracy | notes |
|---|---|---|---|---|
"""

_TYPES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
_RANDOM = "not PyTorch's numbers; the same in every run of a program that runs alone"
_ROUNDED_BYTES = "uint8 is computed in float32 and rounded"
_NOTES = {
    "bernoulli": _RANDOM,
    "embedding": "indices int64 or int32",
    "embedding_2bit": "types are the packed weights'",
    "embedding_4bit": "types are the packed weights'",
    "embedding_byte": "types are the weights'",
    "empty": "contents undefined",
    "empty_permuted": "contents undefined; the memory plan decides the strides",
    "empty_strided": "contents undefined; the memory plan decides the strides",
    "masked_select": "as many elements as the exported program bounds",
    "native_dropout": _RANDOM,
    "rand": _RANDOM,
    "rand_like": _RANDOM,
    "randint": _RANDOM,
    "randn": _RANDOM,
    "randn_like": _RANDOM,
    "randperm": _RANDOM,
    "sort": "always stable",
    "topk": "always sorted; of equal elements the first",
    "upsample_bicubic2d": _ROUNDED_BYTES,
    "_upsample_bicubic2d_aa": _ROUNDED_BYTES,
    "_upsample_lanczos2d_aa": _ROUNDED_BYTES,
    "_upsample_bilinear2d_aa": _ROUNDED_BYTES,
}


def markdown() -> str:
    """The whole page. Imports the runtime."""
    from edgewise.runtime import Runtime

    overloads: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for full in Runtime.get().operator_registry.operator_names:
        name, _, overload = full.partition(".")
        namespace, _, short = name.partition("::")
        if namespace != "executorch_prim" and not short.startswith("sym_"):
            row = accuracy(full)
            if row is None:
                raise LookupError(f"[document] every kernel has a row in {PATH.name}; got {full}")
            key = (namespace, short, _types(row.listed), _bounds(row))
            overloads[key].append(overload or "(in place)")
    lines = []
    for (namespace, name, types, bounds), found in sorted(overloads.items()):
        star = " *" if namespace == "aten" and _is_core(name) else ""
        shown = name if namespace == "aten" else f"{namespace}::{name}"
        listed = ", ".join(f"`{o}`" for o in sorted(found))
        note = _NOTES.get(name, "")
        lines.append(f"| {shown}{star} | {listed} | {types} | {bounds} | {note} |\n")
    return _HEAD.format(sets=_sets(), decomposed=_decomposed()) + "".join(lines)


def _decomposed() -> str:
    from edgewise.edge.decompositions import DECOMPOSITIONS

    names = {target._schema.name.removeprefix("aten::") for target in DECOMPOSITIONS}
    return ", ".join(f"`{name}`" for name in sorted(names))


def _types(listed: str) -> str:
    return ", ".join(_TYPES.get(t, f"*{t}*" if t in sets() else t) for t in listed.split())


def _bounds(row: Accuracy) -> str:
    if row.listed == "scalars":
        return ""
    bounds = [str(b) for b in (row.single, row.double, row.half)]
    return bounds[0] if len(set(bounds)) == 1 else " / ".join(bounds)


def _sets() -> str:
    """A sentence for each set of types."""
    return "".join(
        f"*{name}*: {', '.join(_TYPES.get(t, t) for t in members)}.\n\n"
        for name, members in sets().items()
    )


def _is_core(name: str) -> bool:
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None)
    packets = [p for p in (packet, getattr(torch.ops.aten, name, None)) if p is not None]
    return any(torch.Tag.core in getattr(p, o).tags for p in packets for o in p.overloads())


if __name__ == "__main__":
    print(markdown(), end="")
