"""Which operators of `torch.export` become one of the edge dialect: quantizers see the former,
backends the latter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

aten = torch.ops.aten

_SPELLINGS: dict[Any, str] = {
    aten._adaptive_avg_pool2d.default: "adaptive_avg_pool1d.default adaptive_avg_pool2d.default",
    aten._log_softmax.default: "log_softmax.int",
    aten._softmax.default: "softmax.int",
    aten.avg_pool2d.default: "avg_pool1d.default",
    aten.cat.default: "concat.default concatenate.default",
    aten.clone.default: "contiguous.default detach.default dropout.default feature_dropout.default",
    aten.constant_pad_nd.default: "pad.default",
    aten.expand_copy.default: "expand_as.default",
    aten.hardtanh.default: "relu6.default",
    aten.max_pool2d.default: "max_pool1d.default",
    aten.permute_copy.default: """
        channel_shuffle.default moveaxis.int moveaxis.intlist movedim.int movedim.intlist
        pixel_shuffle.default pixel_unshuffle.default swapaxes.default swapdims.default t.default
        transpose.int
        """,
    aten.repeat.default: "tile.default",
    aten.slice_copy.Tensor: "narrow.default",
    aten.squeeze_copy.dims: "squeeze.default squeeze.dim",
    aten.view_copy.default: """
        flatten.using_ints reshape.default reshape_as.default unflatten.int view_as.default
        """,
}
"""Without views, their copies and in-place operators, which follow from names."""

CONVERSIONS = (
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
    aten.type_as.default,
    aten._to_copy.default,
)
"""To another data type, device or memory format, or to none."""


def spellings(target: torch._ops.OpOverload) -> list[torch._ops.OpOverload]:
    """The operator, and all that become it: `view` and `reshape` of `view_copy`, `relu_` of
    `relu`."""
    found = [target]
    for name in _SPELLINGS.get(target, "").split():
        packet, overload = name.split(".")
        found.append(getattr(getattr(aten, packet), overload))
    return list(with_twins(*found))


def with_twins(*targets: torch._ops.OpOverload) -> dict[torch._ops.OpOverload, None]:
    """The operators, and of each the view that it copies or the copy of the view that it is, or
    what writes its result in place; in this order."""
    return dict.fromkeys(twin for target in targets for twin in _twins(target))


def views() -> dict[torch._ops.OpOverload, None]:
    """Operators of `torch.export` that rename, reorder or choose elements, and their twins."""
    return with_twins(
        aten.expand.default,
        aten.flatten.using_ints,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    )


def _twins(target: torch._ops.OpOverload) -> Iterator[torch._ops.OpOverload]:
    yield target
    name = target.overloadpacket.__name__
    view = name.removesuffix("_copy")
    is_view = view != name or any(r.alias_info is not None for r in target._schema.returns)
    for other in (view, f"{view}_copy") if is_view else (f"{name}_",):
        packet = getattr(aten, other, None) if target.namespace == "aten" else None
        if packet is None or target._overloadname not in packet.overloads():
            continue
        twin = getattr(packet, target._overloadname)
        if _types(twin) == _types(target):  # not so of pow.Scalar and pow_.Scalar
            yield twin


def _types(target: torch._ops.OpOverload) -> list[str]:
    return [str(argument.type) for argument in target._schema.arguments]
