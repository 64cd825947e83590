"""Matrix products: linear layers and batched products of computed matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Operand, Ref, identity
from edgewise.backends.xnnpack.graph import TRANSPOSE_B
from edgewise.backends.xnnpack.table import (
    Constraint,
    Lowering,
    OpRow,
    Query,
    add_row,
    constant,
    equals,
)

aten = torch.ops.aten
Args = dict[str, Any]


def _linear(to: Lowering, node: Node, args: Args) -> Operand:
    return to.b.fully_connected(
        to.ref(args["input"]), to.tensor(args["weight"]), to.optional(args["bias"])
    )


add_row(OpRow("linear", (aten.linear.default,), _linear, (constant("weight", "bias"),), keep=True))


def _addmm(to: Lowering, node: Node, args: Args) -> Operand:
    bias = to.tensor(args["self"])
    return to.b.fully_connected(to.ref(args["mat1"]), to.tensor(args["mat2"]).t(), bias.reshape(-1))


def _bias_is_vector(q: Query) -> str | None:
    bias, outputs = q.args["self"].meta["val"], q.node.meta["val"].shape[1]
    fits = bias.dim() > 0 and bias.numel() == outputs and bias.shape[-1] == outputs
    return None if fits else f"shape {list(bias.shape)} for {outputs} outputs"


add_row(
    OpRow(
        "addmm",
        (aten.addmm.default,),
        _addmm,
        (
            constant("self", "mat2"),
            equals("alpha", 1),
            equals("beta", 1),
            Constraint("bias is a vector of the outputs", _bias_is_vector),
        ),
    )
)


def batch_product(to: Lowering, a: Ref, b: Ref) -> Ref:
    """a [..., m, k] times b [..., k, n]: b may lie transposed in memory."""
    r = a.rank
    a = to.b.in_order(a, identity(r))
    swapped = (*range(r - 2), r - 1, r - 2)
    flags = TRANSPOSE_B if b.perm == swapped else 0
    b = to.b.in_order(b, swapped if flags else identity(r))
    dims = (*a.value.dims[:-1], b.shape[-1])
    value = to.b.node("BatchMatrixMultiply", [a.value, b.value], dims, a.dtype, flags=flags)
    return Ref(value, identity(r))


def _mm(to: Lowering, node: Node, args: Args) -> Operand:
    a, b = args["self"], args["mat2"]
    if b in to.constants:
        return to.b.fully_connected(to.ref(a), to.tensor(b).t(), None)
    left, right = to.ref(a), to.ref(b)
    left, right = (to.b.view(x, (1, *x.shape)) for x in (left, right))
    product = batch_product(to, left, right)
    return to.b.view(product, product.shape[1:])


def _bmm(to: Lowering, node: Node, args: Args) -> Operand:
    return batch_product(to, to.ref(args["self"]), to.ref(args["mat2"]))


add_row(OpRow("mm", (aten.mm.default,), _mm))
add_row(OpRow("bmm", (aten.bmm.default,), _bmm))
