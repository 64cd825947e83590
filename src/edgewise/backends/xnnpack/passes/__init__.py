"""Rewrites of a subgraph before it is written. Each returns whether it modified."""

from __future__ import annotations

from collections.abc import Callable

from edgewise.backends.xnnpack.lowering.graph import Graph
from edgewise.backends.xnnpack.passes.drop_dead import drop_dead
from edgewise.backends.xnnpack.passes.dynamic_kernels import use_dynamic_kernels
from edgewise.backends.xnnpack.passes.fold_affine import fold_affine
from edgewise.backends.xnnpack.passes.fuse_clamp import fuse_clamp
from edgewise.backends.xnnpack.passes.integer_kernels import use_integer_kernels
from edgewise.backends.xnnpack.passes.integer_steps import quantize_steps
from edgewise.backends.xnnpack.passes.integer_weights import keep_integer_weights
from edgewise.backends.xnnpack.passes.merge_reshapes import merge_reshapes
from edgewise.backends.xnnpack.passes.move_quantization import move_quantization
from edgewise.backends.xnnpack.passes.split_fully_connected import split_fully_connected

PASSES: tuple[Callable[[Graph], bool], ...] = (
    merge_reshapes,
    drop_dead,
    split_fully_connected,
    merge_reshapes,
    drop_dead,
    fold_affine,
    fuse_clamp,
    move_quantization,
    drop_dead,
    quantize_steps,
    use_integer_kernels,
    fuse_clamp,
    use_dynamic_kernels,
    keep_integer_weights,
    drop_dead,
    split_fully_connected,  # products that move_quantization brought next to their slices
    merge_reshapes,
    drop_dead,
)


def optimize(graph: Graph) -> bool:
    changed = False
    for rewrite in PASSES:
        changed |= rewrite(graph)
    return changed
