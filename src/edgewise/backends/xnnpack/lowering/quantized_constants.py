"""Constants of a program, with those that are stored quantized.

A call that dequantizes constants counts as a constant itself: definitions read its real numbers.
What they stand for is kept by the address of the tensor that was handed out, so that a
permutation or another view of it is still known when it becomes a value of the subgraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.graph import Value
from edgewise.backends.xnnpack.lowering.quant import (
    PerBlock,
    PerChannel,
    PerTensor,
    Quant,
    dequantize,
    is_scale,
)
from edgewise.edge.graph import arguments, fake, is_call, op_name
from edgewise.edge.integer_constants import IntegerConstants

DEQUANTIZERS = {
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_channel.default",
    "quantized_decomposed.dequantize_per_channel_group.default",
    "torchao.dequantize_affine.default",
}
"""By name: the packages that define them need not be imported."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A quantized constant as it is stored: contiguous integers, and what they mean."""

    data: torch.Tensor
    quant: PerTensor | PerChannel | PerBlock
    dtype: torch.dtype
    """Of the real numbers."""

    def view(self, like: torch.Tensor) -> tuple[torch.Tensor, Quant] | None:
        """The integers of a view of this tensor. None if scales do not fit the view."""
        if like.numel() != self.data.numel():
            return None
        data = self.data.as_strided(like.shape, like.stride(), like.storage_offset())
        quant = self.quant
        if isinstance(quant, PerTensor):
            return data, quant
        if isinstance(quant, PerBlock):
            same = like.shape == self.data.shape and like.is_contiguous()
            return (data, quant) if same else None
        channels = quant.scales.numel()
        step = self.data.stride(quant.axis)
        for dim in range(like.dim()):
            if like.shape[dim] == channels and (channels == 1 or like.stride(dim) == step):
                return data, PerChannel(quant.scales, dim, quant.bits)
        return None


class QuantizedConstants(IntegerConstants):
    """`stored` knows the quantized tensors that were handed out, by address."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program)
        self.stored: dict[int, Stored] = {}
        self._real: dict[Node, torch.Tensor] = {}
        self._forms: dict[Node, Stored | None] = {}
        self._shared: dict[tuple[object, ...], list[Stored]] = {}

    def dequantizes(self, node: Node) -> bool:
        """Those of torchao, too."""
        return is_dequantizer(node)

    def tensor(self, node: Node) -> torch.Tensor:
        """The real numbers."""
        if node.op == "placeholder":
            return super().tensor(node)
        known = self._real
        if node not in known:
            known[node] = super().tensor(node).contiguous()
            stored = self.stored_as(node)
            if stored is not None:
                self.stored[known[node].data_ptr()] = stored
        return known[node]

    def weight(self, node: Node) -> torch.Tensor:
        """The stored integers if the constant is quantized so that they can be used, else the
        real numbers. For definitions that pass weights on without looking at them."""
        stored = self.stored_as(node) if node.op != "placeholder" else None
        if stored is None:
            return self.tensor(node)
        self.stored[stored.data.data_ptr()] = stored
        return stored.data

    def stored_as(self, node: Node) -> Stored | None:
        """How a dequantized constant is stored, or None if the subgraph cannot express it."""
        if node not in self._forms:
            self._forms[node] = self._stored_as_now(node)
        return self._forms[node]

    def _stored_as_now(self, node: Node) -> Stored | None:
        if not self.is_dequantized(node):
            return None
        args = arguments(node)
        data = super().tensor(args["input"])
        if data.dtype not in (torch.int8, torch.uint8) or data.numel() == 0:
            return None
        scales, zeros = args.get("scale", args.get("scales")), _zeros(args)
        if isinstance(scales, Node):
            scales = super().tensor(scales)
        if isinstance(zeros, Node):
            zeros = super().tensor(zeros)
        quant = _quant(
            data, _block(args, data), _floats(scales), _floats(0 if zeros is None else zeros), args
        )
        # A tensor of its own: its address is its name.
        if quant is None:
            return None
        return self._one(data, quant, fake(node).dtype)

    def _one(
        self, data: torch.Tensor, quant: PerTensor | PerChannel | PerBlock, dtype: torch.dtype
    ) -> Stored:
        """The same for equal constants: steps of a recurrent layer have one weight."""
        known = self._shared.setdefault((type(quant), tuple(data.shape), data.dtype, dtype), [])
        for one in known:
            if _same(one.quant, quant) and torch.equal(one.data, data):
                return one
        known.append(Stored(data.detach().clone().contiguous(), quant, dtype))
        return known[-1]


def _same(first: object, second: object) -> bool:
    """Whether two quantizations of one class have equal fields."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def store(value: Value, stored: Stored, tensor: torch.Tensor, order: Sequence[int]) -> None:
    """Turns a constant made of `tensor`, laid out as `order`, into integers if it can be."""
    view = stored.view(tensor.permute(tuple(order)) if tensor.dim() else tensor)
    if view is not None:
        data, value.quant = view
        value.data = data.contiguous().reshape(value.dims)
        value.dtype = stored.dtype
    elif value.data is not None and not value.data.is_floating_point():
        real = dequantize(stored.data, stored.quant, stored.dtype)
        real = real.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        value.data = real.permute(tuple(order)).contiguous()
        value.dtype = stored.dtype


def is_dequantizer(node: Node) -> bool:
    return is_call(node) and op_name(node) in DEQUANTIZERS


def _zeros(args: dict[str, object]) -> object:
    return args.get("zero_point", args.get("zero_points"))


def _floats(values: object) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values.detach().float().reshape(-1)
    return torch.tensor([float(values)])  # type: ignore[arg-type]


def _block(args: dict[str, object], data: torch.Tensor) -> list[int]:
    """The shape of what shares a scale."""
    shape = list(data.shape)
    if "block_size" in args:
        sizes = args["block_size"]
        assert isinstance(sizes, Sequence)
        return [s if b == -1 else b for s, b in zip(shape, sizes, strict=True)]
    if "group_size" in args:
        size = args["group_size"]
        assert isinstance(size, int)
        return [*[1] * (len(shape) - 1), size]
    if "axis" in args:
        axis = args["axis"]
        assert isinstance(axis, int)
        shape[axis] = 1
    return shape


def _quant(
    data: torch.Tensor,
    block: list[int],
    scales: torch.Tensor,
    zeros: torch.Tensor,
    args: dict[str, object],
) -> PerTensor | PerChannel | PerBlock | None:
    if not all(is_scale(s) for s in (float(scales.min()), float(scales.max()))):
        return None
    shape = list(data.shape)
    low, high = args["quant_min"], args["quant_max"]
    narrow = low is not None and high is not None and low >= -8 and high <= 7  # type: ignore[operator]
    bits = 4 if narrow and data.dtype == torch.int8 else 8
    split = [d for d in range(len(shape)) if block[d] != shape[d]]
    if not split:
        if scales.numel() != 1 or zeros.numel() != 1 or not float(zeros).is_integer():
            return None
        if "axis" in args or bits == 4:
            # A dimension of one channel; 4 bits are stored by channels.
            axis = args.get("axis", 0)
            assert isinstance(axis, int)
            plain = data.dtype == torch.int8 and not zeros.any() and shape and shape[axis] == 1
            if plain:
                return PerChannel(scales, axis % len(shape), bits)
        return PerTensor(float(scales), int(zeros), data.dtype)
    if data.dtype != torch.int8 or bool(zeros.any()):
        return None
    if len(split) == 1 and block[split[0]] == 1:
        return PerChannel(scales, split[0], bits) if scales.numel() == shape[split[0]] else None
    blocks = len(shape) == 2 and block[0] == 1 and shape[1] % block[1] == 0
    if blocks and scales.numel() == shape[0] * (shape[1] // block[1]):
        return PerBlock(scales.reshape(shape[0], -1), block[1], bits)
    return None


__all__ = ["DEQUANTIZERS", "QuantizedConstants", "Stored", "is_dequantizer", "store"]
