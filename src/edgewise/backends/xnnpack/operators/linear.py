"""Matrix products: linear layers and batched products of computed matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import SUMS
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.graph import TRANSPOSE_B
from edgewise.backends.xnnpack.lowering.table import WEIGHTS, Constraint, Lowering, Query, define
from edgewise.edge.graph import fake, shape_of
from edgewise.edge.orders import identity
from edgewise.edge.sizes import broadcast, shown, symbolic_sizes
from edgewise.quantize.patterns import Weighted, always

aten = torch.ops.aten
Args = dict[str, Any]


def _of_matrices(q: Query) -> str | None:
    """A constant weight may be multiplied with a vector, too."""
    shapes = [shape_of(q.args[k]) for k in ("input", "weight")]
    good = q.args["weight"] in q.constants or all(len(s) >= 2 for s in shapes)
    return None if good else " and ".join(map(shown, shapes))


def _linear(to: Lowering, node: Node, args: Args) -> Operand:
    weight, bias = args["weight"], args["bias"]
    if weight in to.constants and (bias is None or bias in to.constants):
        return to.b.fully_connected(to.ref(args["input"]), to.weight(weight), to.optional(bias))
    if weight in to.constants:
        product = to.b.fully_connected(to.ref(args["input"]), to.weight(weight), None)
    else:
        product = batch_product(to, to.ref(args["input"]), to.b.permute(to.ref(weight), (1, 0)))
    return product if bias is None else to.b.binary("Add", product, to.operand(bias))


define(
    "linear",
    (aten.linear.default,),
    _linear,
    (Constraint("a matrix, or several, times a matrix", _of_matrices),),
    keep=True,
    also="of a computed weight: as bmm, then add",
    accuracy=SUMS,
    quantization=Weighted(not_dynamic=always),
    integers=f"static or dynamic int8, {WEIGHTS}; dynamic int8, 4-bit weights per channel "
    "or in blocks; weights alone, 8-bit or 4-bit per channel, 4-bit in blocks",
)


def _addmm(to: Lowering, node: Node, args: Args) -> Operand:
    """beta * self + alpha * mat1 @ mat2, in one node where the layer is a constant's."""
    bias, weight = args["self"], args["mat2"]
    alpha, beta = float(args["alpha"]), float(args["beta"])
    if weight in to.constants and bias in to.constants and alpha == beta == 1:
        vector = to.tensor(bias)
        if vector.dim() > 0 and vector.shape[-1] == vector.numel() == shape_of(node)[1]:
            return to.b.fully_connected(
                to.ref(args["mat1"]), to.tensor(weight).t(), vector.reshape(-1)
            )
    product = to.b.scale(_product(to, args["mat1"], weight), alpha)
    if beta != 1:
        return to.b.binary("Add", product, to.b.scale(to.ref(bias), beta))
    return to.b.binary("Add", product, to.operand(bias))


define(
    "addmm",
    (aten.addmm.default,),
    _addmm,
    also="of a computed matrix: as mm, then add",
    accuracy=SUMS,
)


def batch_product(to: Lowering, a: Ref, b: Ref) -> Ref:
    """a [..., m, k] times b [..., k, n]: b may lie transposed in memory, and what leads is
    broadcast."""
    r = max(a.rank, b.rank)
    a, b = (to.b.view(x, (*(1,) * (r - x.rank), *x.shape)) for x in (a, b))
    a = to.b.in_order(a, identity(r))
    swapped = (*range(r - 2), r - 1, r - 2)
    flags = TRANSPOSE_B if b.perm == swapped else 0
    b = to.b.in_order(b, swapped if flags else identity(r))
    dims = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    value = to.b.node("BatchMatrixMultiply", [a.value, b.value], dims, a.dtype, flags=flags)
    return Ref(value, identity(r))


def _product(to: Lowering, a: Node, b: Node) -> Ref:
    """Of two matrices."""
    if b in to.constants:
        return to.b.fully_connected(to.ref(a), to.tensor(b).t(), None)
    left, right = to.ref(a), to.ref(b)
    left, right = (to.b.view(x, (1, *x.shape)) for x in (left, right))
    product = batch_product(to, left, right)
    return to.b.view(product, product.shape[1:])


def _mm(to: Lowering, node: Node, args: Args) -> Operand:
    return _product(to, args["self"], args["mat2"])


def _bmm(to: Lowering, node: Node, args: Args) -> Operand:
    return batch_product(to, to.ref(args["self"]), to.ref(args["mat2"]))


define("mm", (aten.mm.default,), _mm, accuracy=SUMS)
define("bmm", (aten.bmm.default,), _bmm, accuracy=SUMS)


def _matmul(to: Lowering, node: Node, args: Args) -> Operand:
    a, b = args["self"], args["other"]
    if b in to.constants and fake(b).dim() == 2:
        return to.b.fully_connected(to.ref(a), to.tensor(b).t(), None)
    return batch_product(to, to.ref(a), to.ref(b))


def _worth_it(q: Query) -> str | None:
    """Other products are spelt as `mm` or `bmm`, where needed between reshapes: these are
    copies, and impossible with several symbolic sizes."""
    shapes = [shape_of(q.args[k]) for k in ("self", "other")]
    many = len(shape_of(q.node)) > 3 or symbolic_sizes(shape_of(q.node)) > 1
    return None if many and all(len(s) >= 2 for s in shapes) else " and ".join(map(shown, shapes))


define(
    "matmul",
    (aten.matmul.default,),
    _matmul,
    (Constraint("matrices, with more than three dimensions or symbolic sizes", _worth_it),),
    keep=True,
    accuracy=SUMS,
)
