"""Rows of a dequantized constant become one call that dequantizes only the rows it takes.

    embedding(dequantize(integers, scales), ids) -> embedding_4bit(packed, scales, ids)

The operators and their packings are those of ExecuTorch's quantized kernels, under the names of
which they are written to the file (`emit.out_variants`). They are defined here under a name of
our own, so that both packages can be imported by one program. Two or four weights share a byte
where a row, and each group of it, has a whole number of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls, erase_dead, fake
from edgewise.edge.program import Constants, drop_unused_constants, fake_mode

aten = torch.ops.aten

DEQUANTIZERS = {
    "quantized_decomposed.dequantize_per_channel.default",
    "quantized_decomposed.dequantize_per_channel_group.default",
    "torchao.dequantize_affine.default",
}
NAMES = {8: "embedding_byte", 4: "embedding_4bit", 2: "embedding_2bit"}
"""By bits of a weight."""

_ARGUMENTS = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, "
    "int weight_quant_min, int weight_quant_max, Tensor indices"
)
_library: Any = torch.library.Library("edgewise", "DEF")  # type: ignore[no-untyped-call]


def pack(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """int8 [N, D] as bytes [N, D * bits / 8]."""
    if bits == 8:
        return weight
    parts = (weight.to(torch.int16) + (1 << (bits - 1))).reshape(weight.shape[0], -1, 8 // bits)
    shifts = (4, 0) if bits == 4 else (0, 2, 4, 6)
    return sum(parts[..., i] << shift for i, shift in enumerate(shifts)).to(torch.uint8)  # type: ignore[union-attr]


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of `pack`, as int32."""
    wide = packed.to(torch.int32)
    if bits == 8:
        return wide
    shifts = (4, 0) if bits == 4 else (0, 2, 4, 6)
    parts = [((wide >> shift) & ((1 << bits) - 1)) - (1 << (bits - 1)) for shift in shifts]
    return torch.stack(parts, -1).reshape(packed.shape[0], -1)


def define(library: Any, bits: int) -> None:
    """Adds the operator for weights of so many bits to a library, with and without a data type."""
    name = NAMES[bits]

    def rows(
        weight: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        low: int,
        high: int,
        indices: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        numbers = unpack(weight, bits)[indices].float()
        scale = scales.reshape(scales.shape[0], -1)
        groups = scale.shape[1]
        numbers = numbers.reshape(*numbers.shape[:-1], groups, -1)
        if zeros is not None:
            numbers = numbers - zeros.float().reshape_as(scale)[indices].unsqueeze(-1)
        real = numbers * scale.float()[indices].unsqueeze(-1)
        return real.flatten(-2).to(dtype or scales.dtype)

    def shape(
        weight: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        low: int,
        high: int,
        indices: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        columns = weight.shape[1] * (8 // bits)
        return scales.new_empty((*indices.shape, columns), dtype=dtype or scales.dtype)

    library.define(f"{name}({_ARGUMENTS}) -> Tensor")
    library.define(f"{name}.dtype({_ARGUMENTS}, *, ScalarType? dtype=None) -> Tensor")
    for overload in (name, f"{name}.dtype"):
        library.impl(overload, rows, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{overload}", shape, lib=library)


for _bits in NAMES:
    define(_library, _bits)


@dataclass(frozen=True)
class _Table:
    weight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    low: int
    high: int

    @property
    def bits(self) -> int:
        """Of the narrowest packing that holds the range and divides rows and groups."""
        group = self.weight.shape[1] // (self.scales.shape[1] if self.scales.dim() == 2 else 1)
        for bits in (2, 4):
            limit = 1 << (bits - 1)
            fits = self.weight.dtype == torch.int8 and -limit <= self.low and self.high < limit
            if fits and group % (8 // bits) == 0:
                return bits
        return 8


def fuse_quantized_embeddings(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    constants = Constants(program)
    made: dict[Node, tuple[int, list[Node | None], int, int]] = {}
    changed = False
    for node in list(calls(program.graph)):
        if node.target is not aten.embedding.default:
            continue
        source = arguments(node)["weight"]
        if source not in made:
            table = _table(source, constants)
            if table is None:
                continue
            made[source] = _stored(table, source.name, constants)
        bits, stored, low, high = made[source]
        _replace(program, node, bits, [*stored, low, high])
        changed = True
    if changed:
        erase_dead(program.graph)
        drop_unused_constants(program)
    return changed


def _stored(
    table: _Table, name: str, constants: Constants
) -> tuple[int, list[Node | None], int, int]:
    bits = table.bits
    limit = 1 << (bits - 1)
    low, high = (-limit, limit - 1) if bits < 8 else (table.low, table.high)
    tensors = {"packed": pack(table.weight, bits), "scales": table.scales, "zeros": table.zeros}
    nodes = [
        None if t is None else constants.add(f"{name}_{key}", t.contiguous())
        for key, t in tensors.items()
    ]
    return bits, nodes, low, high


def _replace(program: ExportedProgram, node: Node, bits: int, stored: list[object]) -> None:
    scales = stored[1]
    assert isinstance(scales, Node)
    dtype = fake(node).dtype
    packet = getattr(torch.ops.edgewise, NAMES[bits])
    same = fake(scales).dtype == dtype
    with program.graph.inserting_before(node):
        call = program.graph.call_function(
            packet.default if same else packet.dtype,
            (*stored, node.args[1]),
            {} if same else {"dtype": dtype},
        )
    call.meta = dict(node.meta)
    with fake_mode(program):
        call.meta["val"] = node.meta["val"].contiguous()
    node.replace_all_uses_with(call)
    program.graph.erase_node(node)


def _table(node: object, constants: Constants) -> _Table | None:
    """What the node dequantizes, if it is a constant with scales for rows or parts of rows."""
    if not isinstance(node, Node) or str(node.target) not in DEQUANTIZERS:
        return None
    if not all(n in constants for n in node.all_input_nodes):
        return None
    args = arguments(node)
    weight = constants.tensor(args["input"])
    scales = constants.tensor(args["scale"] if "scale" in args else args["scales"])
    zeros = args.get("zero_point", args.get("zero_points"))
    groups = _groups(args, weight)
    if weight.dtype not in (torch.int8, torch.uint8) or groups is None:
        return None
    rows = weight.shape[0]
    if not scales.is_floating_point() or scales.numel() != rows * groups:
        return None
    if scales.dtype == torch.float64:
        scales = scales.float()
    shape = (rows,) if groups == 1 else (rows, groups)
    points = None
    if isinstance(zeros, Node) and bool(constants.tensor(zeros).any()):
        points = constants.tensor(zeros).to(scales.dtype).reshape(shape)
    info = torch.iinfo(weight.dtype)
    low, high = args["quant_min"], args["quant_max"]
    return _Table(
        weight,
        scales.reshape(shape),
        points,
        info.min if low is None else int(low),
        info.max if high is None else int(high),
    )


def _groups(args: dict[str, object], weight: torch.Tensor) -> int | None:
    """How many scales a row has; None if scales are not those of rows."""
    if weight.dim() != 2 or weight.numel() == 0:
        return None
    columns = weight.shape[1]
    if "block_size" in args:
        sizes = args["block_size"]
        assert isinstance(sizes, Sequence)
        size = columns if sizes[1] == -1 else sizes[1]
        return columns // size if sizes[0] == 1 and columns % size == 0 else None
    if "group_size" in args:
        size = args["group_size"]
        assert isinstance(size, int)
        return columns // size if columns % size == 0 else None
    return 1 if args.get("axis") in (0, -2) else None


__all__ = ["DEQUANTIZERS", "NAMES", "define", "fuse_quantized_embeddings", "pack", "unpack"]
