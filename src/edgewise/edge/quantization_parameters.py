"""Numbers by which a program quantizes must be ones that devices can compute with.

PyTorch takes any: with a scale of infinity or a denormal number it still computes something,
each runtime and each kernel something else, or nothing. So lowering refuses them.

| what                            | rule                                                        |
|---------------------------------|-------------------------------------------------------------|
| a scale, also of a channel      | finite, and at least float32's least normal number          |
| `eps` of scales chosen in a run | the same, or 0                                              |
| a zero point                    | of the range of the integers' type                          |
| quant_min, quant_max            | of the range of the integers' type, the first not the larger |
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, calls
from edgewise.edge.node_errors import at_node
from edgewise.edge.program import Constants
from edgewise.errors import QuantizationError

_NAMESPACES = ("quantized_decomposed", "torchao", "quant")
_SCALES = ("scale", "scales", "weight_scales")
_ZEROS = ("zero_point", "zero_points", "weight_zero_points")
_INTEGERS = {
    "quantize_affine": "output_dtype",
    "dequantize_affine": "input_dtype",
    "choose_qparams_affine": "target_dtype",
}
"""Which argument names the integers' type; `dtype` in other operators."""

_LEAST = torch.finfo(torch.float32).tiny
_LARGEST = torch.finfo(torch.float32).max


def check_quantization(program: ExportedProgram) -> None:
    """QuantizationError at the first operator with parameters that break a rule. Parameters
    that only a run tells are not looked at."""
    constants: Constants | None = None
    for node in calls(program.graph):
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _NAMESPACES:
            continue
        constants = constants or Constants(program)
        _check(node, arguments(node), constants)


def _check(node: Node, named: dict[str, Any], constants: Constants) -> None:
    for name in (*_SCALES, "eps"):
        values = _numbers(named.get(name), constants)
        good = (values >= _LEAST) & (values <= _LARGEST)
        if name == "eps":
            good |= values == 0
        if not bool(good.all()):
            rule = f"{name} must be finite in float32 and positive, and no denormal number of it"
            raise _error(node, rule, name, values, ~good)
    limits = _limits(node, named)
    if limits is None:
        return
    low, high = limits
    for name in (*_ZEROS, "quant_min", "quant_max"):
        values = _numbers(named.get(name), constants)
        bad = ~((values >= low) & (values <= high))
        if bool(bad.any()):
            rule = f"{name} must be from {low} to {high}, which its type holds"
            raise _error(node, rule, name, values, bad)
    first, last = (_numbers(named.get(name), constants) for name in ("quant_min", "quant_max"))
    if first.numel() == last.numel() == 1 and first.item() > last.item():
        raise QuantizationError(
            f"{at_node(node)} quant_min must not be larger than quant_max; got {first.item():g} "
            f"and {last.item():g}"
        )


def _error(
    node: Node, rule: str, name: str, values: torch.Tensor, bad: torch.Tensor
) -> QuantizationError:
    index = int(bad.reshape(-1).nonzero()[0])
    found = values.reshape(-1)[index].item()
    got = f"{found:.0f}" if name in _ZEROS and found == round(found) else f"{found:g}"
    if values.numel() > 1:
        got += f" at index {index} of {values.numel()}"
    hint = "calibration with data and weights without NaN or infinity"
    if name in _ZEROS or name.startswith("quant"):
        hint = "the type's own range"
    return QuantizationError(f"{at_node(node)} {rule}; got {got}; try {hint}")


def _numbers(value: Any, constants: Constants) -> torch.Tensor:
    """What is known of an argument, as float64; nothing, if only a run tells."""
    if isinstance(value, Node):
        if value not in constants:
            return torch.empty(0, dtype=torch.float64)
        return constants.tensor(value).to(torch.float64)
    if isinstance(value, (int, float)):
        return torch.tensor([value], dtype=torch.float64)
    return torch.empty(0, dtype=torch.float64)


def _limits(node: Node, named: dict[str, Any]) -> tuple[int, int] | None:
    """The range of the integers' type, where it has one."""
    assert isinstance(node.target, torch._ops.OpOverload)
    key = _INTEGERS.get(node.target._schema.name.split("::")[1], "dtype")
    dtype = named.get(key)
    if not isinstance(dtype, torch.dtype) or dtype.is_floating_point:
        return None
    try:
        limits = torch.iinfo(dtype)
    except TypeError:
        return None  # int4 and its like, of which torch tells no range
    return limits.min, limits.max
