"""What XNNPACK's kernels compute of programs whose activations are quantized at run time.

PT2E's programs have one scale for all of an activation, the kernels one for each row of a matrix
and for each image of a batch, over all of int8's range; torchao's have scales of groups in float32,
which the file holds in bfloat16. Here the program runs in eager mode with that in its place, so
that every element can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Interpreter

_Q = torch.ops.quantized_decomposed
_LOW, _HIGH = -128, 127


def reference(program: torch.export.ExportedProgram, inputs: Sequence[Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(_ByRows(program.module()).run(*inputs))


def of_layers(layers: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Of linear layers with weights of torchao's, each behind such an activation."""
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer, torch.nn.Linear):
                scale, zero_point = _scales(x)
                x = (_quantized(x, scale, zero_point) - zero_point) * scale
                weight = layer.weight.dequantize()
                x = torch.nn.functional.linear(x, weight, layer.bias)
            else:
                x = layer(x)
    return x


class _ByRows(Interpreter):
    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is _Q.choose_qparams.tensor:
            return _scales(args[0])
        if target is _Q.quantize_per_tensor.tensor:
            return _quantized(*args[:3])
        if target is _Q.dequantize_per_tensor.tensor:
            x, scale, zero_point = args[:3]
            return (x.float() - zero_point) * scale
        if target is torch.ops.torchao.dequantize_affine.default:
            return super().call_function(target, _scales_as_stored(args), kwargs)
        return super().call_function(target, args, kwargs)


def _scales(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A range of the numbers and 0 for each row, or for each image of (N, C, H, W)."""
    of = (1, 2, 3) if x.dim() == 4 else (-1,)
    least, most = x.amin(of, keepdim=True).clamp(max=0), x.amax(of, keepdim=True).clamp(min=0)
    scale = (most - least) / (_HIGH - _LOW)
    return scale, (_LOW - torch.round(least / scale)).clamp(_LOW, _HIGH)


def _quantized(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    return (torch.round(x / scale) + zero_point).clamp(_LOW, _HIGH)


def _scales_as_stored(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of 4-bit weights with several groups a row are bfloat16 in the file."""
    values, block, scale, *rest = args
    if block[-1] == values.shape[-1]:
        return args
    return values, block, scale.bfloat16().to(scale.dtype), *rest
