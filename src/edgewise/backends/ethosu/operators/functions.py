"""Elementwise functions of one tensor: any number of them in a row is one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.backends.ethosu.lowering.table import FUNCTION, Args, Lower, Lowering, Refused, define
from edgewise.backends.ethosu.lowering.tosa import Tensor
from edgewise.backends.ethosu.lowering.values import Mapped, Real, Stored
from edgewise.backends.ethosu.operators.integers import integers
from edgewise.edge.graph import shape_of
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import Elementwise

aten = torch.ops.aten


QUANTIZE_BETWEEN = "a quantizer that quantizes what is between them"


def mapped(to: Lowering, node: Node) -> Mapped | None:
    """The call as a function of the one tensor that its operands come from; None if they come
    from several."""
    known = {n: to.constants.tensor(n) for n in node.all_input_nodes if n in to.constants}
    if any(value.numel() != 1 for value in known.values()):
        return None
    values = {n: to.value(n) for n in node.all_input_nodes if n not in known}
    sources = []
    for value in values.values():
        if not isinstance(value, (Mapped, Stored)):
            return None
        sources.append(value.source if isinstance(value, Mapped) else value)
    shape = tuple(int(s) for s in shape_of(node))
    if not sources or any(s != sources[0] for s in sources) or sources[0].shape != shape:
        return None
    target: Any = node.target

    def function(x: torch.Tensor) -> torch.Tensor:
        def operand(n: Node) -> torch.Tensor:
            if n in known:
                return known[n].reshape(())
            value = values[n]
            return value.function(x) if isinstance(value, Mapped) else x

        result: torch.Tensor = target(*map_arg(node.args, operand), **map_arg(node.kwargs, operand))
        return result

    return Mapped(sources[0], function)


def _function(to: Lowering, node: Node, args: Args) -> Real:
    for operand in node.all_input_nodes:
        to.real(operand)
    found = mapped(to, node)
    if found is None:
        raise Refused(Refusal("a function of one quantized tensor", "several", QUANTIZE_BETWEEN))
    return found


def _rows(names: Sequence[str], overload: str = "default", keep: bool = False) -> None:
    for name in names:
        target = getattr(getattr(aten, name), overload)
        also = "a table"
        row = name if overload == "default" else f"{name}.{overload}"
        first = 1 if target is aten.pow.Scalar else 0  # an exponent
        quantization = Elementwise(operands=1, first=first)
        define(
            row,
            (target,),
            _function,
            reads=FUNCTION,
            keep=keep,
            also=also,
            quantization=quantization,
        )


_CORE = """
abs acos acosh asin asinh atan atanh ceil cos cosh elu erf exp expm1 floor gelu
leaky_relu log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt
tan tanh trunc
"""
_KEPT = """
celu erfinv exp2 hardshrink hardsigmoid hardswish log_sigmoid logit mish selu silu
softplus softshrink square
"""
_rows(_CORE.split())
_rows(_KEPT.split(), keep=True)
_rows(["pow"], "Tensor_Scalar")
_rows(["pow"], "Scalar")
for _scalar in ("div", "rsub", "remainder", "fmod"):
    _rows([_scalar], "Scalar")


def _with_number(operator: str) -> Lower:
    def lower(to: Lowering, node: Node, args: Args) -> Real | Tensor:
        whole = integers(to, operator, args)
        return _function(to, node, args) if whole is None else whole

    return lower


for _scalar in ("add", "sub", "mul"):
    define(
        f"{_scalar}.Scalar",
        (getattr(aten, _scalar).Scalar,),
        _with_number(_scalar.upper()),
        reads=FUNCTION,
        also="a table; integers of 32 bits as they are",
    )
