"""Cases of the rows that quantize: kept apart, for eager mode has no float64 for them."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed

from support import Fn

qd = torch.ops.quantized_decomposed
I8, U8, I16 = torch.int8, torch.uint8, torch.int16
BYTES = torch.arange(-60, 60, dtype=I8).reshape(4, 30)
REALS = BYTES * 0.07


def quantize(*args: Any) -> Any:
    return lambda x: qd.quantize_per_tensor(x, *args)


def dequantize(*args: Any, **options: Any) -> Any:
    return lambda x: qd.dequantize_per_tensor(x, *args, **options)


class DynamicLinear(torch.nn.Module):
    """x as 8 bits chosen at run time, times int8 weights; `twist` gets what lies in between."""

    def __init__(self, inputs: int, outputs: int, twist: Any = None, low: int = -128) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        integers = torch.randint(-127, 128, (outputs, inputs), generator=generator)
        self.register_buffer("weight", integers.to(I8))
        self.register_buffer("scales", torch.rand(outputs, generator=generator) / 100 + 0.01)
        self.register_buffer("zeros", torch.zeros(outputs, dtype=torch.int64))
        self.twist = twist
        self.low = low

    def forward(self, x: torch.Tensor) -> Any:
        scale, zero = qd.choose_qparams.tensor(x, self.low, 127, 1e-5, I8)
        stored = qd.quantize_per_tensor.tensor(x, scale, zero, self.low, 127, I8)
        real = qd.dequantize_per_tensor.tensor(stored, scale, zero, self.low, 127, I8)
        args = (self.weight, self.scales, self.zeros, 0, -127, 127, I8)
        weight = qd.dequantize_per_channel(*args)
        if self.twist is not None:
            return self.twist(scale, stored, real, weight)
        return torch.nn.functional.linear(real, weight)


class OwnScale(DynamicLinear):
    """The scale is computed by other means: of the largest number alone, and squared."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero = x.abs().amax().square() / 127, torch.zeros((), dtype=torch.int64)
        stored = qd.quantize_per_tensor.tensor(x, scale, zero, -128, 127, I8)
        real = qd.dequantize_per_tensor.tensor(stored, scale, zero, -128, 127, I8)
        weight = qd.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, I8)
        return torch.nn.functional.linear(real, weight)


class DynamicConv(torch.nn.Module):
    """An image as 8 bits chosen at run time, convolved with int8 weights."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(6)
        weight = torch.randint(-127, 128, (4, 3, 3, 3), generator=generator)
        self.register_buffer("weight", weight.to(I8))
        self.register_buffer("scales", torch.rand(4, generator=generator) / 100 + 0.01)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("bias", torch.randn(4, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero = qd.choose_qparams.tensor(x, -128, 127, 1e-5, I8)
        stored = qd.quantize_per_tensor.tensor(x, scale, zero, -128, 127, I8)
        real = qd.dequantize_per_tensor.tensor(stored, scale, zero, -128, 127, I8)
        args = (self.weight, self.scales, self.zeros, 0, -127, 127, I8)
        weight = qd.dequantize_per_channel(*args)
        return torch.nn.functional.conv2d(real, weight, self.bias, padding=1).relu()


class Bfloat16Linear(torch.nn.Module):
    """A linear layer that `quantize_` changed, with activations that XNNPACK has not."""

    def __new__(cls) -> torch.nn.Module:  # type: ignore[misc]
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerAxis, quantize_

        module = torch.nn.Sequential(torch.nn.Linear(30, 4, dtype=torch.bfloat16)).eval()
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int8, weight_granularity=PerAxis(0)
        )
        quantize_(module, config)
        return module


# Row: the kinds that it becomes, and a program of it. Results are within a step of eager's.
ACCEPTED = {
    "quantize_per_tensor": {
        "int8": (["Convert"], Fn(quantize(0.05, 3, -128, 127, I8)), (REALS,)),
        "uint8": (["Convert"], Fn(quantize(0.05, 3, 0, 255, U8)), (REALS,)),
        "of float16": (["Convert"], Fn(quantize(0.05, 3, -128, 127, I8)), (REALS.half(),)),
        "a part of the range": (
            ["Clamp", "Convert"],
            Fn(quantize(0.01, 3, -127, 90, I8)),
            (REALS,),
        ),
    },
    "dequantize_per_tensor": {
        "int8": (["Convert"], Fn(dequantize(0.05, 3, -128, 127, I8)), (BYTES,)),
        "uint8": (["Convert"], Fn(dequantize(0.05, 3, 0, 255, U8)), (BYTES.to(U8),)),
        "to float16": (
            ["Convert"],
            Fn(dequantize(0.05, 3, -128, 127, I8, out_dtype=torch.float16)),
            (BYTES,),
        ),
    },
    "choose_qparams": {"": (["Convert", "FullyConnected"], DynamicLinear(30, 4), (REALS,))},
    "quantize_dynamic": {
        "of an image": (
            ["StaticTranspose", "Convert", "Conv2d", "StaticTranspose"],
            DynamicConv(),
            (torch.randn(1, 3, 8, 6, generator=torch.Generator().manual_seed(7)),),
        ),
        "of rows": (["Convert", "FullyConnected"], DynamicLinear(30, 4), (REALS,)),
    },
    "dequantize_dynamic": {"": (["Convert", "FullyConnected"], DynamicLinear(30, 4), (REALS,))},
}

RANGE = "int8 or uint8, in their range or a part of it"
SCALE = "a normal positive scale, and a zero point of the range"
REAL = "real numbers are float32 or float16"
ONE = "one scale and zero point for the same integers"
CLUSTER = "8-bit activations of linear layers or convolutions with quantized weights, no other use"
FLOATING = "what is quantized at run time is float32 or float16"

# Operator and reason that the report gives.
REFUSED: dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...], str, str]] = {
    "sixteen bits": (
        Fn(dequantize(0.1, 0, -32768, 32767, I16)),
        (BYTES.to(I16),),
        "quantized_decomposed.dequantize_per_tensor.default",
        f"{RANGE}; got int16 from -32768 to 32767",
    ),
    "bfloat16": (
        Fn(dequantize(0.1, 0, -128, 127, I8, out_dtype=torch.bfloat16)),
        (BYTES,),
        "quantized_decomposed.dequantize_per_tensor.default",
        "data type must be float32 or float16",
    ),
    "float64": (
        Fn(dequantize(0.1, 0, -128, 127, I8, out_dtype=torch.float64)),
        (BYTES,),
        "quantized_decomposed.dequantize_per_tensor.default",
        f"{REAL}; got float64",
    ),
    "two meanings": (
        Fn(lambda x: dequantize(0.1, 0, -128, 127, I8)(x) + dequantize(0.2, 0, -128, 127, I8)(x)),
        (BYTES,),
        "quantized_decomposed.dequantize_per_tensor.default",
        f"{ONE}; got dequantize_per_tensor_1 has scale=0.2, zero_point=0",
    ),
    "the scale is read": (
        DynamicLinear(30, 4, lambda scale, stored, real, weight: (real @ weight.t()) * scale),
        (REALS,),
        "quantized_decomposed.choose_qparams.tensor",
        f"{CLUSTER}; got the parameters are read by",
    ),
    "the integers are read": (
        DynamicLinear(30, 4, lambda scale, stored, real, weight: (real @ weight.t(), stored + 1)),
        (REALS,),
        "quantized_decomposed.quantize_per_tensor.tensor",
        f"{CLUSTER}; got the integers are read by",
    ),
    "no product": (
        DynamicLinear(30, 4, lambda scale, stored, real, weight: real.exp()),
        (REALS,),
        "quantized_decomposed.dequantize_per_tensor.tensor",
        f"{CLUSTER}; got the result is read by exp, no linear layer or convolution",
    ),
    "parameters of one's own": (
        OwnScale(30, 4),
        (REALS,),
        "quantized_decomposed.quantize_per_tensor.tensor",
        f"{CLUSTER}; got parameters that are computed otherwise",
    ),
    "a zero point outside of the part of the range": (
        Fn(quantize(0.05, -128, -127, 127, I8)),
        (REALS,),
        "quantized_decomposed.quantize_per_tensor.default",
        f"{SCALE}; got scale=0.05, zero_point=-128",
    ),
    "bfloat16 at run time": (
        Bfloat16Linear(),
        (REALS.bfloat16(),),
        "torchao.choose_qparams_affine.default",
        FLOATING,
    ),
}
