"""Windows that slide over images: convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewise.backends.neutron.lowering.context import Lowering, Tensor
from edgewise.backends.neutron.lowering.table import Constraint, Query
from edgewise.backends.neutron.targets import KERNEL_LIMIT
from edgewise.backends.neutron.tflite.schema import Padding
from edgewise.edge.orders import NHWC


def pair(value: Any, default: int = 1) -> tuple[int, int]:
    """A number for both dimensions, or one for each; of one dimension the last."""
    if isinstance(value, int):
        return value, value
    numbers = [int(v) for v in value]
    if not numbers:
        return default, default
    return (numbers[0], numbers[-1]) if len(numbers) > 1 else (default, numbers[0])


def image(to: Lowering, t: Tensor) -> Tensor:
    """As NHWC; a sequence [N, C, L] as an image of height 1."""
    if len(t.order) == 3:
        n, c, length = t.shape
        t = to.reshape(to.in_order(t, (0, 2, 1)), (n, c, 1, length), f"{t.value.name}_image")
    return to.in_order(t, NHWC)


def sequence(to: Lowering, t: Tensor, rank: int) -> Tensor:
    """What `image` made an image of, back."""
    if rank != 3:
        return t
    n, c, _, length = t.shape
    return to.reshape(t, (n, c, length), f"{t.value.name}_sequence")


def same_padding(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Padding | None:
    """TFLite's name for a padding of torch's (the same on both sides), if it has one."""
    if not any(padding):
        return Padding.VALID
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        results = (size + 2 * p - reach) // s + 1
        needed = max((-(-size // s) - 1) * s + reach - size, 0)
        # TFLite's result is ceil(size / stride), with the smaller half of the padding first.
        if results != -(-size // s) or needed // 2 != p:
            return None
    return Padding.SAME


def limited(*names: str) -> Constraint:
    """Kernels, strides and dilations within the NPU's limit."""

    def check(q: Query) -> str | None:
        for name in names:
            value = q.args[name]
            found = tuple(q.shape_of(name)[2:]) if hasattr(value, "op") else pair(value)
            if max(found, default=0) > KERNEL_LIMIT:
                return f"{name}={list(found)}"
        return None

    return Constraint(f"{' and '.join(names)} of at most {KERNEL_LIMIT}", check)
