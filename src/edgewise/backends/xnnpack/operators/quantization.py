"""Quantization and its inverse, of activations.

With scales that are known, each is a conversion. With scales found at run time they are
taken only around the products that use them (`dynamic_quant.py`). The products themselves
are lowered in floating point by their own definitions; `passes/integer_kernels.py` and
`passes/dynamic_kernels.py` then choose integer kernels. Dequantized constants need no definition:
they are constants (`quantized_constants.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import DYNAMIC, STEPS, floating
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.dynamic_quant import (
    CHOOSE,
    DEQUANTIZE,
    QUANTIZE,
    chooser,
    cluster,
)
from edgewise.backends.xnnpack.lowering.graph import Node as GraphNode
from edgewise.backends.xnnpack.lowering.graph import Value
from edgewise.backends.xnnpack.lowering.quant import INTEGERS, PerTensor, is_scale
from edgewise.backends.xnnpack.lowering.table import FLOATS, Constraint, Lowering, Query, define
from edgewise.edge.graph import arguments, dims_of, dtype_name, fake
from edgewise.edge.quantized_decomposed import DEQUANTIZE as STATIC_DEQUANTIZE
from edgewise.edge.quantized_decomposed import QUANTIZE as STATIC_QUANTIZE
from edgewise.edge.sizes import at
from edgewise.partition.accuracy import Accuracy

Args = dict[str, Any]

EIGHT_BITS = (torch.int8, torch.uint8)


def _meaning(args: Args) -> PerTensor:
    return PerTensor(float(args["scale"]), int(args["zero_point"]), args["dtype"])


def _quantize(to: Lowering, node: Node, args: Args) -> Operand:
    x, quant = to.ref(args["input"]), _meaning(args)
    bounds = args["quant_min"], args["quant_max"]
    if bounds != INTEGERS[quant.dtype]:
        low, high = ((bound - quant.zero_point) * quant.scale for bound in bounds)
        x = to.b.unary("Clamp", x, clamp=(low, high))
    value = Value(x.value.dims, quant.dtype, quant=quant)
    to.b.graph.nodes.append(GraphNode("Convert", [x.value], [value], {}, None, to.b.origin))
    return Ref(value, x.perm)


def _dequantize(to: Lowering, node: Node, args: Args) -> Operand:
    x, quant = to.ref(args["input"]), _meaning(args)
    if x.value.quant is None:
        x.value.quant = quant  # integers from outside: they mean what their reader says
    assert x.value.quant == quant
    return Ref(to.b.node("Convert", [x.value], x.value.dims, fake(node).dtype), x.perm)


def _eight_bits(q: Query) -> str | None:
    dtype = q.args["dtype"]
    bounds = (q.args["quant_min"], q.args["quant_max"])
    low, high = INTEGERS.get(dtype, (0, 0))
    if dtype in EIGHT_BITS and low <= bounds[0] < bounds[1] <= high:
        return None
    return f"{dtype_name(dtype)} from {bounds[0]} to {bounds[1]}"


def _good_scale(q: Query) -> str | None:
    scale, zero = float(q.args["scale"]), int(q.args["zero_point"])
    low, high = q.args["quant_min"], q.args["quant_max"]
    good = is_scale(scale) and math.isfinite(scale) and low <= zero <= high
    return None if good else f"scale={scale}, zero_point={zero}"


def _real_side(q: Query) -> str | None:
    quantizes = str(q.node.target) == STATIC_QUANTIZE
    dtype = fake(q.args["input"] if quantizes else q.node).dtype
    return None if dtype in FLOATS else dtype_name(dtype)


def _one_meaning(q: Query) -> str | None:
    source = q.args["input"]
    others = [user for user in source.users if str(user.target) == STATIC_DEQUANTIZE]
    if str(source.target) == STATIC_QUANTIZE:
        others.append(source)
    for other in others:
        meaning = _meaning(arguments(other))
        if meaning != _meaning(q.args):
            return f"{other.name} has scale={meaning.scale}, zero_point={meaning.zero_point}"
    return None


_STATIC = (
    Constraint("int8 or uint8, in their range or a part of it", _eight_bits),
    Constraint("a normal positive scale, and a zero point of the range", _good_scale),
    Constraint("real numbers are float32 or float16", _real_side),
)

define(
    "quantize_per_tensor",
    (STATIC_QUANTIZE,),
    _quantize,
    _STATIC,
    dtypes=(*FLOATS, torch.float64, *EIGHT_BITS, torch.int16, torch.int32),
    accuracy=STEPS,
)
define(
    "dequantize_per_tensor",
    (STATIC_DEQUANTIZE,),
    _dequantize,
    (*_STATIC, Constraint("one scale and zero point for the same integers", _one_meaning)),
    dtypes=(*FLOATS, torch.float64, *EIGHT_BITS, torch.int16, torch.int32),
    accuracy=floating(0.501, half=Accuracy(2)),
)


# --- with scales that are found at run time ------------------------------------------------


def _choose(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    """Nothing: `Dynamic` stands for the whole of it."""
    symbols = to.b.graph.symbols
    shapes = [[at(size, symbols) for size in dims_of(v.shape)] for v in node.meta["val"]]
    return tuple(
        torch.zeros(shape, dtype=v.dtype) for shape, v in zip(shapes, node.meta["val"], strict=True)
    )


def _dynamic(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["input"])
    return Ref(to.b.node("Dynamic", [x.value], x.value.dims, x.dtype), x.perm)


def _whole_cluster(q: Query) -> str | None:
    choose = chooser(q.node)
    if choose is None:
        return "parameters that are computed otherwise"
    found = cluster(choose, q.constants)
    return found if isinstance(found, str) else None


def _floating(q: Query) -> str | None:
    choose = chooser(q.node)
    dtype = fake(choose.args[0]).dtype if choose is not None else torch.float32  # type: ignore[arg-type]
    return None if dtype in FLOATS else dtype_name(dtype)


_CLUSTER = (
    Constraint(
        "8-bit activations of linear layers or convolutions with quantized weights, no other use",
        _whole_cluster,
    ),
    Constraint("what is quantized at run time is float32 or float16", _floating),
)
_ANY = (*FLOATS, torch.float64, torch.bfloat16, *EIGHT_BITS, torch.int32, torch.int64)

define("choose_qparams", CHOOSE, _choose, _CLUSTER, dtypes=_ANY, accuracy=DYNAMIC)
define(
    "quantize_dynamic",
    QUANTIZE,
    lambda to, node, args: to.operand(args["input"]),
    _CLUSTER,
    dtypes=_ANY,
    accuracy=DYNAMIC,
)
define("dequantize_dynamic", DEQUANTIZE, _dynamic, _CLUSTER, dtypes=_ANY, accuracy=DYNAMIC)
