"""What a scheme was asked to quantize and leaves in floating point, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import (
    dtype_name,
    is_call,
    is_getitem,
    module_path,
    op_name,
    source_line,
    tensors_of,
)
from edgewise.partition.report_data import Unquantized
from edgewise.quantize.selection import is_within

_WEIGHTS = {
    "linear",
    "bilinear",
    "addmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "embedding",
    "embedding_bag",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
}
"""Operators that a scheme for weights means, by name; products of activations besides."""
_PRODUCTS = {"matmul", "mm", "bmm", "baddbmm", "einsum", "scaled_dot_product_attention"}
_RECURRENT = ("lstm", "gru", "rnn_")
_CONVERSIONS = {"to", "_to_copy", "type_as"}
_MOVES = {"detach", "alias", "copy", "lift_fresh_copy", "_assert_tensor_metadata", *_CONVERSIONS}
_TURNS = {"t", "numpy_T", "mT", "transpose", "permute", "unsqueeze", "view", "reshape", "expand"}


def _name(node: Node) -> str:
    """`conv2d` of `aten.conv2d.default`; empty for what is no operator of torch's."""
    parts = op_name(node).split(".")
    return parts[1].removesuffix("_") if parts[0] == "aten" and len(parts) > 1 else ""


def is_product(node: Node) -> bool:
    """Whether the node multiplies matrices that may both be computed."""
    return _name(node) in _PRODUCTS


def has_weights(node: Node) -> bool:
    """Whether the node is a layer with weights."""
    return _name(node) in _WEIGHTS


def computes_real(node: Node) -> bool:
    """Whether the node computes real numbers from such, or from a table of them."""
    name = _name(node)
    if not name or name in _MOVES or is_getitem(node):
        return False
    read = [t for n in node.all_input_nodes for t in tensors_of(n)]
    return any(t.is_floating_point() for t in tensors_of(node)) and any(
        t.is_floating_point() for t in read
    )


def strange_dtype(node: Node, dtypes: Sequence[torch.dtype]) -> str | None:
    """Says that the node computes with real numbers of none of the types."""
    for one in (node, *node.all_input_nodes):
        for tensor in tensors_of(one):
            if tensor.is_floating_point() and tensor.dtype not in dtypes:
                return (
                    f"it computes in {_text(tensor.dtype)}, not "
                    f"{' or '.join(map(_text, dtypes))}; try model.float()"
                )
    return None


def _text(dtype: torch.dtype) -> str:
    return dtype_name(dtype)


def why_unknown(node: Node) -> str | None:
    """What is to be said of operators that no quantizer has a pattern for."""
    name = _name(node)
    if name == "embedding":
        return (
            "tables of embeddings are quantized by int4-weight and int4-dynamic (to 8 bits), or "
            "by quantize_ with IntxWeightOnlyConfig"
        )
    if name.startswith(_RECURRENT):
        return (
            "a recurrent layer is written out for integers, up to 256 steps, whose number must be "
            "known before"
        )
    if name in _PRODUCTS:
        return "a product of two activations"
    return None


def unquantized(node: Node, why: str) -> Unquantized:
    """The node as the delegation report names it."""
    return Unquantized(
        name=node.name,
        operator=op_name(node),
        reason=why,
        has_weights=has_weights(node),
        module=module_path(node),
        source=source_line(node),
    )


def left_by_modules(program: ExportedProgram, keep_float: Sequence[str]) -> list[Unquantized]:
    """Layers of a program whose weights torchao's `quantize_` did not replace."""
    found = []
    signature = program.graph_signature
    constants = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    for node in program.graph.nodes:
        if not is_call(node) or not computes_real(node):
            continue
        if not (has_weights(node) or is_product(node)) or _reads_integers(node):
            continue
        path = module_path(node)
        if not any(is_within(path, kept) for kept in keep_float):
            found.append(unquantized(node, _why_not_replaced(node, constants)))
    return found


def _why_not_replaced(node: Node, constants: Collection[str]) -> str:
    """constants: names of placeholders of parameters and buffers."""
    name = _name(node)
    if name == "linear" or (
        name in _PRODUCTS and any(_is_of(n, constants) for n in node.all_input_nodes)
    ):
        return "its weight is not that of an nn.Linear module, which is what the scheme replaces"
    if name == "embedding":
        return "its table is not that of an nn.Embedding module, which is what the scheme replaces"
    if name in _PRODUCTS:
        return "a product of two activations"
    if name in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"):
        return "4 bits are for linear layers; try quantize='int8-weight'"
    return "4 bits are for linear layers"


def _is_of(node: Node, constants: Collection[str]) -> bool:
    """Whether it is one of them, moved."""
    while len(node.all_input_nodes) == 1 and _name(node) in _MOVES | _TURNS:
        node = node.all_input_nodes[0]
    return node.name in constants


def _reads_integers(node: Node) -> bool:
    """Whether an operand is a dequantized constant."""
    return any("dequantize" in str(source.target) for source in node.all_input_nodes)


def quantizes(program: ExportedProgram) -> bool:
    """Whether anything in the program is quantized."""
    return any("quantize" in str(n.target) for n in program.graph.nodes if is_call(n))


__all__ = ["Unquantized", "left_by_modules", "quantizes", "unquantized"]
