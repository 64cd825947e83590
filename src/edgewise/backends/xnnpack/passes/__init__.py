"""Rewrites of a subgraph before it is written. Each returns whether it modified."""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.verify import text, verify
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
from edgewise.passes import Group, PassManager

OPTIMIZE = PassManager(
    "xnnpack",
    (
        Group(merge_reshapes, drop_dead, split_fully_connected),
        Group(fold_affine, fuse_clamp),
        move_quantization,
        drop_dead,
        quantize_steps,
        use_integer_kernels,
        fuse_clamp,
        use_dynamic_kernels,
        keep_integer_weights,
        drop_dead,
        split_fully_connected,  # what move_quantization brought next to its slices
        Group(merge_reshapes, drop_dead),
    ),
    verify,
    text,
)
"""From what definitions lower to what is written, in place."""
