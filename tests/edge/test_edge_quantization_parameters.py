"""Scales and zero points that devices cannot compute with: refused when lowering, with the node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed
import torchao.quantization.quant_primitives  # noqa: F401  (defines torchao's operators)

import edgewise
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.errors import QuantizationError
from support import Fn, eager, export, operators, run_ours

qd = torch.ops.quantized_decomposed
I8 = torch.int8
REALS = torch.linspace(-3, 3, 24).reshape(4, 6)
INTEGERS = torch.arange(-12, 12, dtype=I8).reshape(4, 6)
DENORMAL = 1.0000002153053333e-39


def channels(**changed: Any) -> dict[str, torch.Tensor]:
    """Scales and zero points of six channels, of which the third is another."""
    scales, zeros = torch.full((6,), 0.1), torch.zeros(6, dtype=torch.int64)
    scales[2] = changed.get("scale", 0.1)
    zeros[2] = changed.get("zero", 0)
    return {"s": scales, "z": zeros}


def tensor(scale: float = 0.1, zero: int = 0, low: int = -128, high: int = 127) -> Any:
    return Fn(lambda x: qd.quantize_per_tensor(x, scale, zero, low, high, I8)), (REALS,)


def constant(scale: float = 0.1, zero: int = 0) -> Any:
    values = {"s": torch.tensor(scale), "z": torch.tensor(zero)}
    op = qd.dequantize_per_tensor.tensor
    return Fn(lambda x, s, z: op(x, s, z, -128, 127, I8).exp(), **values), (INTEGERS,)


def weight(**changed: Any) -> Any:
    def layer(x: torch.Tensor, w: Any, s: Any, z: Any) -> torch.Tensor:
        return x @ qd.dequantize_per_channel(w, s, z, 1, -128, 127, I8).t()

    return Fn(layer, w=INTEGERS, **channels(**changed)), (REALS,)


def affine(**changed: Any) -> Any:
    def layer(x: torch.Tensor, w: Any, s: Any, z: Any) -> torch.Tensor:
        real = torch.ops.torchao.dequantize_affine(w, [4, 1], s, z, I8, -128, 127)
        return x @ real.t()

    return Fn(layer, w=INTEGERS, **channels(**changed)), (REALS,)


def chosen(eps: float = 1e-5, low: int = -128, high: int = 127) -> Any:
    def dynamic(x: torch.Tensor) -> torch.Tensor:
        scale, zero = qd.choose_qparams.tensor(x, low, high, eps, I8)
        stored = qd.quantize_per_tensor.tensor(x, scale, zero, -128, 127, I8)
        return qd.dequantize_per_tensor.tensor(stored, scale, zero, -128, 127, I8)

    return Fn(dynamic), (REALS,)


BAD: dict[str, tuple[Any, str]] = {
    **{
        f"{kind}: {scale}": (
            make(scale=scale),
            f"must be finite in float32 and positive, .*; got {got}",
        )
        for kind, make, where in (
            ("a tensor's", tensor, ""),
            ("a constant", constant, ""),
            ("a channel's", weight, " at index 2 of 6"),
            ("torchao's", affine, " at index 2 of 6"),
        )
        for scale, got in (
            (math.nan, f"nan{where}"),
            (math.inf, f"inf{where}"),
            (-math.inf, f"-inf{where}"),
            (DENORMAL, f"1e-39{where}"),
            (0.0, f"0{where}"),
            (-0.1, f"-0.1{where}"),
        )
    },
    **{
        f"{kind}, zero point {zero}": (make(zero=zero), f"must be from -128 to 127.*; got {zero}")
        for kind, make in (("a tensor's", tensor), ("a constant", constant), ("channels", weight))
        for zero in (-129, 128)
    },
    "beyond float32": (tensor(scale=1e39), r"must be finite in float32 .*; got 1e\+39"),
    "eps: nan": (chosen(eps=math.nan), "eps must be finite"),
    "eps: inf": (chosen(eps=math.inf), "eps must be finite"),
    "eps: denormal": (chosen(eps=DENORMAL), "eps must be finite in float32 and positive"),
    "chosen below the type": (chosen(low=-129), "quant_min must be from -128 to 127"),
    "above the type": (tensor(high=128), "quant_max must be from -128 to 127"),
    "an empty range": (tensor(low=5, high=4), "quant_min must not be larger .* got 5 and 4"),
}

LOWERINGS: dict[str, Callable[[Any], Any]] = {
    "xnnpack": lambda p: edgewise.to_edge_transform_and_lower(
        p, partitioner=[XnnpackPartitioner()]
    ),
    "ethosu": lambda p: edgewise.to_edge_transform_and_lower(
        p, partitioner=[EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"))]
    ),
    "no backend": edgewise.to_edge,
}


@pytest.mark.parametrize("name", BAD)
def test_refused_with_the_node(name: str) -> None:
    (module, inputs), reason = BAD[name]
    program = export(module, inputs)
    for lower in LOWERINGS.values():
        with pytest.raises(QuantizationError, match=rf"(?s)^\[\w+: .*\] .*{reason}") as raised:
            lower(program)
        assert isinstance(raised.value, ValueError)


def test_one_that_a_pass_puts_in() -> None:
    def change(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(
            op="call_function", target=qd.quantize_per_tensor.default
        ):
            node.update_arg(1, math.nan)

    edge = edgewise.to_edge(export(*tensor())).transform([change])
    with pytest.raises(QuantizationError, match="got nan"):
        edge.to_backend(XnnpackPartitioner())


def test_inside_of_a_branch() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            quantize = qd.quantize_per_tensor
            return torch.cond(
                x.sum() > 0,
                lambda x: quantize(x, math.inf, 0, -128, 127, I8),
                lambda x: quantize(x, 0.1, 0, -128, 127, I8),
                (x,),
            )

    with pytest.raises(QuantizationError, match="got inf"):
        edgewise.to_edge(export(Branch(), (REALS,)))


GOOD = {
    "least normal scale": tensor(scale=float(torch.finfo(torch.float32).tiny)),
    "the type's ends": tensor(zero=127),
    "part of the type's range": tensor(low=-127),
    "eps of 0": chosen(eps=0.0),
}


@pytest.mark.parametrize("name", GOOD)
def test_accepted(name: str) -> None:
    module, inputs = GOOD[name]
    pte = edgewise.to_edge(export(module, inputs)).to_executorch().buffer
    assert operators(pte) != ["delegate"]
    torch.testing.assert_close(run_ours(pte, inputs)[0][0], eager(module, inputs)[0])
