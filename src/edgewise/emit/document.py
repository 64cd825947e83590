"""The runtime's own operators as Markdown, made from its registry.

python -m edgewise.emit.document > docs/operators.md
"""

from __future__ import annotations

from collections import defaultdict

import torch

_HEAD = """# Operators of the runtime

Made from the registry of kernels by `python -m edgewise.emit.document`; a test fails if it is
stale. These run whatever no backend takes. `make conformance` compares them with eager PyTorch.

*numbers* are float32, float16, bfloat16, float64, int64, int32, int16, int8, uint8, uint16, uint32
and bool; *floating* the first four. Operands of different types are promoted as in PyTorch, shapes
broadcast, dimensions may be negative, tensors may be empty or without dimensions. float16 and
bfloat16 are computed in float32 and rounded once. Operators with a star are core ATen.

Of core ATen these are no kernels: views (they are lowered to the `_copy` operators),
`_fft_r2c` and `_fft_c2r` (a file holds no complex tensors), `resize_`, and questions about
strides and storage, which a program's tensors do not have.

`python benchmarks/kernel_speed.py` compares their speed with eager PyTorch's, one call a line, in
every type, on one thread at 64 k elements. On an Intel Xeon with AVX-512 each of the 2414 took less
than three times as long.

| operator | overloads | types | notes |
|---|---|---|---|
"""

_FLOATING = {
    "_adaptive_avg_pool2d_backward",
    "_cdist_forward",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_log_softmax",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_pdist_forward",
    "_softmax",
    "avg_pool2d_backward",
    "bernoulli",
    "convolution_backward",
    "elu",
    "embedding_dense_backward",
    "gelu",
    "glu",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "linalg_vector_norm",
    "max_pool2d_with_indices_backward",
    "mean",
    "native_batch_norm",
    "native_dropout",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "silu",
    "std",
    "var",
    "var_mean",
}
_ANY = {
    "_clone_dim_order",
    "_empty_dim_order",
    "_to_dim_order_copy",
    "alias_copy",
    "as_strided_copy",
    "cat",
    "clone",
    "constant_pad_nd",
    "detach_copy",
    "diagonal_copy",
    "embedding",
    "empty",
    "empty_permuted",
    "empty_strided",
    "expand_copy",
    "flip",
    "gather",
    "index",
    "index_select",
    "lift_fresh_copy",
    "masked_scatter",
    "masked_select",
    "narrow_copy",
    "permute_copy",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "repeat",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "roll",
    "select_copy",
    "select_scatter",
    "slice_copy",
    "slice_scatter",
    "split_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "stack",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_copy",
}
_BITS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
_RANDOM = "not PyTorch's numbers; the same in every run of a program that runs alone"
_NOTES = {
    "bernoulli": _RANDOM,
    "embedding": "indices int64 or int32",
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
    "upsample_bicubic2d": "uint8 is computed in float32 and rounded",
    "_upsample_bilinear2d_aa": "uint8 is computed in float32 and rounded",
}


def markdown() -> str:
    """The whole page. Imports the runtime."""
    from edgewise.runtime import Runtime

    overloads: dict[tuple[str, str], list[str]] = defaultdict(list)
    for full in Runtime.get().operator_registry.operator_names:
        name, _, overload = full.partition(".")
        namespace, _, short = name.partition("::")
        if namespace != "executorch_prim" and not short.startswith("sym_"):
            overloads[namespace, short].append(overload or "(in place)")
    lines = []
    for namespace, name in sorted(overloads):
        star = " *" if namespace == "aten" and _is_core(name) else ""
        shown = name if namespace == "aten" else f"{namespace}::{name}"
        listed = ", ".join(f"`{o}`" for o in sorted(overloads[namespace, name]))
        types = _types(namespace, name)
        lines.append(f"| {shown}{star} | {listed} | {types} | {_NOTES.get(name, '')} |\n")
    return _HEAD + "".join(lines)


def _types(namespace: str, name: str) -> str:
    if namespace not in ("aten", "dim_order_ops"):
        if namespace == "llama":
            return "any" if name == "update_cache" else "float32, float16, bfloat16"
        return "quantized integers, floating scales"
    if name in _FLOATING:
        return "floating"
    if name.startswith(("upsample", "_upsample")):
        return "floating, uint8"
    if name in _BITS:
        return "integers, bool"
    return "any" if name in _ANY else "numbers"


def _is_core(name: str) -> bool:
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None)
    packets = [p for p in (packet, getattr(torch.ops.aten, name, None)) if p is not None]
    return any(torch.Tag.core in getattr(p, o).tags for p in packets for o in p.overloads())


if __name__ == "__main__":
    print(markdown(), end="")
