"""Transposed convolutions as convolutions, by their polyphase components.

For processors that have no transposed ones, or only some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from edgewise.quantize.decompose import Decomposition

aten = torch.ops.aten
Tensor = torch.Tensor


@dataclass(frozen=True)
class Geometry:
    """Of a transposed convolution; a number for each dimension of its images."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        groups: int,
        dilation: Sequence[int],
    ) -> Geometry:
        """Of the operator's arguments, in which one number may stand for every dimension."""

        def each(numbers: Sequence[int]) -> tuple[int, ...]:
            return tuple((list(numbers) * len(kernel))[: len(kernel)])

        return cls(
            tuple(kernel), each(stride), each(padding), each(output_padding), each(dilation), groups
        )


def polyphase(native: Callable[[Geometry], bool]) -> dict[object, Decomposition | None]:
    """Decompositions of transposed convolutions but those that are `native`, for `decompose`.

    Result i * stride + r is a convolution with each stride-th weight from r on. These components
    are channels of one convolution, then interleaved.
    """

    def components(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        output_padding: Sequence[int] = (0,),
        groups: int = 1,
        dilation: Sequence[int] = (1,),
    ) -> Any:
        kernel = weight.shape[2:]
        geometry = Geometry.of(kernel, stride, padding, output_padding, groups, dilation)
        if x.dim() != weight.dim() or native(geometry):
            return NotImplemented
        return _components(x, weight, bias, geometry)

    return {aten.conv_transpose1d.default: components, aten.conv_transpose2d.input: components}


def _components(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    stride, padding, groups = geometry.stride, geometry.padding, geometry.groups
    rank = len(stride)
    weight = _dilated(weight, geometry.dilation)
    kernel = weight.shape[2:]
    beyond = [max(more - p, 0) for more, p in zip(geometry.output_padding, padding, strict=True)]
    taps = [-(-(k + b) // s) for k, b, s in zip(kernel, beyond, stride, strict=True)]
    missing = [t * s - k for t, s, k in zip(taps, stride, kernel, strict=True)]
    weight = F.pad(weight, [side for m in reversed(missing) for side in (0, m)])

    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    by_phase = [n for pair in zip(taps, stride, strict=True) for n in pair]
    weight = weight.reshape(groups, inputs, outputs, *by_phase)
    phases, windows = [4 + 2 * i for i in range(rank)], [3 + 2 * i for i in range(rank)]
    weight = weight.permute(0, 2, *phases, 1, *windows)
    weight = weight.flatten(0, rank + 1).flip(*range(2, rank + 2))
    if bias is not None:
        bias = bias.repeat_interleave(weight.shape[0] // bias.shape[0])

    reach = [t - 1 for t in taps]
    if rank == 1:
        y = _interleaved(F.conv1d(x, weight, bias, padding=reach, groups=groups), 2, stride[0])
    else:
        y = F.conv2d(x, weight, bias, padding=reach, groups=groups)
        if stride[0] == stride[1]:
            y = F.pixel_shuffle(y, stride[0]) if stride[0] > 1 else y
        else:
            y = _interleaved(_interleaved(y, 3, stride[1]), 2, stride[0])
    for i in range(rank):
        size = (x.shape[2 + i] - 1) * stride[i] - 2 * padding[i]
        y = y.narrow(2 + i, padding[i], size + kernel[i] + geometry.output_padding[i])
    return y


def _dilated(weight: Tensor, dilation: tuple[int, ...]) -> Tensor:
    """With zeros between the elements."""
    for dim, gap in enumerate(dilation, 2):
        if gap > 1:
            size = weight.shape[dim]
            weight = F.pad(weight.unsqueeze(-1), [0, gap - 1]).movedim(-1, dim + 1)
            weight = weight.flatten(dim, dim + 1).narrow(dim, 0, gap * (size - 1) + 1)
    return weight


def _interleaved(x: Tensor, dim: int, step: int) -> Tensor:
    """The last of `step` factors of the channels as the inner one of a dimension."""
    if step == 1:
        return x
    x = x.reshape(x.shape[0], x.shape[1] // step, step, *x.shape[2:])
    return x.movedim(2, dim + 1).flatten(dim, dim + 1)


__all__ = ["Geometry", "polyphase"]
