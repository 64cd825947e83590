"""Comparisons, which only U85 has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import within
from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import Args, Lowering, Refused, define
from edgewise.backends.ethosu.lowering.tosa import BOOL, INT8, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Constant, Stored
from edgewise.backends.ethosu.operators.selection import NO_BOOL
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import Elementwise

aten = torch.ops.aten

_MIRRORED = {"eq": "eq", "ne": "ne", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_HEADROOM = {INT8: 19, "INT16": 13}
"""Bits below a step of the larger scale with which tensors of two scales are compared."""


def _comparison(name: str) -> Callable[[Lowering, Node, Args], Tensor]:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        x, y = to.real(args["self"]), to.real(args["other"])
        if isinstance(y, Constant):
            return _with_known(to, name, to.stored(args["self"]), y.values)
        if isinstance(x, Constant):
            return _with_known(to, _MIRRORED[name], to.stored(args["other"]), x.values)
        return _of_two(to, name, to.stored(args["self"]), to.stored(args["other"]))

    return lower


def _with_known(to: Lowering, name: str, x: Stored, known: torch.Tensor) -> Tensor:
    """Of stored numbers with thresholds: they rise as the real numbers do that the program
    compares."""
    if bool(known.isnan().any()):
        raise Refused(Refusal("numbers that can be compared", "NaN"))
    first, last = _thresholds(x.quant, known)
    b, t = to.b, to.b.rescale(x.tensor, [1.0], INT32)
    if name in ("eq", "ne"):
        beyond = torch.full_like(first, torch.iinfo(x.quant.dtype).max + 1)
        same = torch.where(first < last, first, beyond)
        return _compared(to, name, t, b.const(same.numpy(), INT32))
    if name in ("ge", "lt"):
        return _compared(to, name, t, b.const(first.numpy(), INT32))
    mirrored = "ge" if name == "gt" else "lt"
    return _compared(to, mirrored, t, b.const(last.numpy(), INT32))


def _thresholds(quant: Quant, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first stored number whose real number is not below `known`, and the first one above."""
    info = torch.iinfo(quant.dtype)
    real = quant.dequantize(torch.arange(info.min, info.max + 1, dtype=torch.int32))
    given = known.float().contiguous()
    below = torch.searchsorted(real, given)
    up_to = torch.searchsorted(real, given, right=True)
    return below + info.min, up_to + info.min


def _of_two(to: Lowering, name: str, x: Stored, y: Stored) -> Tensor:
    wide = any(s.tensor.dtype != INT8 for s in (x, y))
    larger = max(x.quant.scale, y.quant.scale)
    step = (
        larger
        if x.quant.scale == y.quant.scale
        else larger / 2 ** _HEADROOM["INT16" if wide else INT8]
    )
    parts = [
        to.b.rescale(s.tensor, [s.quant.scale / step], INT32, s.quant.zero_point) for s in (x, y)
    ]
    return _compared(to, name, parts[0], parts[1])


def _compared(to: Lowering, name: str, x: Tensor, y: Tensor) -> Tensor:
    if name in ("lt", "le"):
        name, x, y = _MIRRORED[name], y, x
    operator = {"eq": "EQUAL", "ne": "EQUAL", "gt": "GREATER", "ge": "GREATER_EQUAL"}[name]
    made = to.b.binary(operator, x, y, BOOL)
    return to.b.unary("LOGICAL_NOT", made) if name == "ne" else made


for _name in _MIRRORED:
    _packet = getattr(aten, _name)
    define(
        _name,
        (_packet.Tensor, _packet.Scalar),
        _comparison(_name),
        only=("U85",),
        why=NO_BOOL,
        also="in 32 bits; with a number or constant: of stored numbers with thresholds",
        bounds=within(0, 0),
        quantization=Elementwise(numbers=True, real=False),
    )
