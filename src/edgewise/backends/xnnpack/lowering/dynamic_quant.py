"""Activations that are quantized at run time: the calls that belong together.

    scale, zero_point = choose(x)
    y = dequantize(quantize(x, scale, zero_point), scale, zero_point)
    product(y, quantized weights)

XNNPACK does the first two lines in one node, row by row for a linear layer and image by
image for a convolution, and has no way to hand the parts to somebody else. So all of a
cluster is delegated, or nothing of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.quant import (
    BLOCK_MULTIPLE,
    MAX_RANK,
    SMALLEST_BLOCK,
    PerBlock,
    PerChannel,
    PerTensor,
)
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.edge.graph import arguments, dims_of, fake, is_call, is_getitem
from edgewise.edge.program import Constants
from edgewise.edge.sizes import symbolic_sizes

aten = torch.ops.aten

CHOOSE = (
    "quantized_decomposed.choose_qparams.tensor",
    "quantized_decomposed.choose_qparams_symmetric.tensor",
    "quantized_decomposed.choose_qparams_per_token.default",
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "torchao.choose_qparams_affine.default",
)
QUANTIZE = (
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_token.default",
    "torchao.quantize_affine.default",
)
DEQUANTIZE = (
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_token.default",
    "torchao.dequantize_affine.default",
)

_WEIGHTED = {
    aten.linear.default: "linear",
    aten.convolution.default: "convolution",
    aten.conv1d.default: "convolution",
    aten.conv2d.default: "convolution",
}


@dataclass(frozen=True, eq=False)
class Cluster:
    """`products` read what `quantize` made of the same tensor."""

    choose: Node
    items: list[Node]
    quantize: list[Node]
    dequantize: list[Node]
    products: list[Node]

    @property
    def nodes(self) -> list[Node]:
        return [self.choose, *self.items, *self.quantize, *self.dequantize, *self.products]


def is_one_of(node: object, names: tuple[str, ...]) -> bool:
    return isinstance(node, Node) and is_call(node) and str(node.target) in names


def chooser(node: Node) -> Node | None:
    """The node that finds the parameters by which this one quantizes or dequantizes."""
    if is_one_of(node, CHOOSE):
        return node
    if is_getitem(node):
        source = node.args[0]
    elif is_one_of(node, QUANTIZE) or is_one_of(node, DEQUANTIZE):
        args = arguments(node)
        item = args.get("scale", args.get("scales"))
        if not isinstance(item, Node) or not is_getitem(item):
            return None
        source = item.args[0]
    else:
        return None
    return source if isinstance(source, Node) and is_one_of(source, CHOOSE) else None


def is_dynamic(node: object) -> bool:
    """Whether the node dequantizes what was quantized with parameters found at run time."""
    return isinstance(node, Node) and is_one_of(node, DEQUANTIZE) and chooser(node) is not None


def is_dynamic_product(node: Node) -> bool:
    """A linear layer or convolution whose activations are quantized at run time."""
    return node.target in _WEIGHTED and is_dynamic(node.args[0])


def cluster(choose: Node, constants: Constants) -> Cluster | str:
    """All nodes that belong to the choice, or why XNNPACK cannot have them."""
    x = arguments(choose)["input"]
    items = list(choose.users)
    if not all(is_getitem(item) for item in items):
        return f"{choose.name} is read as a whole"
    quantize: list[Node] = []
    dequantize: list[Node] = []
    for user in dict.fromkeys(user for item in items for user in item.users):
        args = arguments(user) if is_call(user) and not is_getitem(user) else {}
        if is_one_of(user, QUANTIZE) and args["input"] is x:
            quantize.append(user)
        elif is_one_of(user, DEQUANTIZE):
            dequantize.append(user)
        else:
            return f"the parameters are read by {user.name}"
    for node in [*quantize, *dequantize]:
        if (found := _unusual(node)) is not None:
            return f"{node.name} with {found}"
    for node in dequantize:
        if arguments(node)["input"] not in quantize:
            return f"{node.name} reads {arguments(node)['input']}"
    for node in quantize:
        stranger = next((u for u in node.users if u not in dequantize), None)
        if stranger is not None:
            return f"the integers are read by {stranger.name}"
    products: list[Node] = []
    for node in dequantize:
        for user in node.users:
            if (found := _not_a_product(user, node, constants)) is not None:
                return found
            products.append(user)
    if not products:
        return "nobody reads the result"
    return Cluster(choose, items, quantize, dequantize, list(dict.fromkeys(products)))


def _unusual(node: Node) -> str | None:
    """What about a quantization is not XNNPACK's: 8 bits, for rows or for all. It takes their
    whole range, which is finer than a part."""
    args = arguments(node)
    if not -128 <= args["quant_min"] < args["quant_max"] <= 127:
        return f"quant_min={args['quant_min']}, quant_max={args['quant_max']}"
    block = args.get("block_size")
    if block is not None:
        shape = list(fake(node).shape)
        whole = [s if b == -1 else b for s, b in zip(shape, block, strict=True)]
        of_rows = whole[-1] == shape[-1] and all(b == 1 for b in whole[:-1])
        if not of_rows and whole != shape:
            return f"block_size={list(block)} of {shape}"
    return None


def _not_a_product(user: Node, dequantized: Node, constants: Constants) -> str | None:
    target: Any = user.target
    kind = _WEIGHTED.get(target)
    if kind is None or user.args[0] is not dequantized or dequantized in user.args[1:]:
        return f"the result is read by {user.name}, no linear layer or convolution"
    weight = user.args[1]
    assert isinstance(weight, Node)
    if weight.op == "placeholder" or weight not in constants:
        return f"{user.name} has floating-point weights"
    assert isinstance(constants, QuantizedConstants)
    stored = constants.stored_as(weight)
    if stored is None:
        return f"{user.name} has weights that are not symmetric 8-bit or 4-bit integers"
    return _unfit(user, kind, stored.quant, fake(weight))


def can_pad_blocks(product: Node, quant: PerBlock) -> bool:
    """Whether blocks get zeros up to a size of XNNPACK's, weights and activations alike: 4 bits,
    not many more zeros than numbers, and the activations can be reshaped."""
    shape = dims_of(fake(product.args[0]).shape)  # type: ignore[arg-type]
    reshapes = len(shape) < MAX_RANK and symbolic_sizes(shape) <= 1
    return quant.bits == 4 and quant.size >= SMALLEST_BLOCK and reshapes


def _unfit(
    user: Node, kind: str, quant: PerTensor | PerChannel | PerBlock, weight: torch.Tensor
) -> str | None:
    if isinstance(quant, PerTensor):
        symmetric = quant.zero_point == 0 and quant.dtype == torch.int8
        return None if symmetric else f"{user.name} has asymmetric weights"
    if isinstance(quant, PerBlock):
        if kind == "linear" and (quant.size % BLOCK_MULTIPLE == 0 or can_pad_blocks(user, quant)):
            return None
        return f"{user.name} has scales for blocks of {quant.size}"
    transposed = kind == "convolution" and user.target is aten.convolution.default and user.args[6]
    if quant.axis != (1 if transposed else 0):
        return f"{user.name} has scales along dimension {quant.axis}"
    if kind == "convolution" and not transposed:
        groups = (
            user.args[8] if user.target is aten.convolution.default else arguments(user)["groups"]
        )
        if groups != 1 and math.prod(weight.shape[1:2]) == 1:
            return f"{user.name} is depthwise"
    return None
