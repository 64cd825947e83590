"""What a node computes in, and which nodes go together because of it.

Quantized programs are in floating point with quantizations around every operator. An
operator is static if what it computes from was dequantized with known scales and its result
is quantized, dynamic if it multiplies activations that are quantized at run time with
quantized weights, and of floating point otherwise. Activation functions and views between
an operator and its quantization do not matter.

The operator, the dequantizations and quantizations around it, and its dequantized constants
are one unit: delegated together, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from torch.fx import Node

from edgewise.backends.xnnpack.lowering.dynamic_quant import (
    CHOOSE,
    chooser,
    cluster,
    is_dynamic,
    is_dynamic_product,
    is_one_of,
)
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.edge.graph import is_call, is_getitem, op_name
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import DEQUANTIZE, QUANTIZE
from edgewise.quantize.patterns import GATES

STATIC = (QUANTIZE, DEQUANTIZE)

_FOLLOWERS = {
    "clamp",
    "clone",
    "dropout",
    "flatten",
    "hardtanh",
    "permute",
    "permute_copy",
    "relu",
    "relu6",
    "reshape",
    "select_copy",
    "slice",
    "slice_copy",
    "squeeze",
    "squeeze_copy",
    "transpose",
    "unsqueeze",
    "unsqueeze_copy",
    "view",
    "view_copy",
}


_VIEWS = {
    "flatten",
    "permute_copy",
    "reshape",
    "squeeze_copy",
    "transpose",
    "unsqueeze_copy",
    "view_copy",
}
"""Of these, what only says how values lie: one-dimensional pooling is between two of them."""

_PRODUCTS = {
    "aten.addmm.default",
    "aten.baddbmm.default",
    "aten.bmm.default",
    "aten.linear.default",
    "aten.mm.default",
}
"""What a linear layer is decomposed into, and itself behind a view."""


class ConfigPrecisionType(Enum):
    """What a node computes in."""

    FP32 = auto()
    STATIC_QUANT = auto()
    DYNAMIC_QUANT = auto()


def is_quantization(node: Node) -> bool:
    """Whether the node only quantizes or dequantizes (or serves that)."""
    return is_one_of(node, STATIC) or chooser(node) is not None


def precision(node: Node, constants: QuantizedConstants) -> ConfigPrecisionType:
    """Of an operator; of a quantization that of the operators that it is for."""
    if is_dynamic_product(node) or chooser(node) is not None:
        return ConfigPrecisionType.DYNAMIC_QUANT
    if op_name(node) in _PRODUCTS and _reads_dynamic(node):
        return ConfigPrecisionType.DYNAMIC_QUANT
    if is_one_of(node, STATIC) and node not in constants:
        return ConfigPrecisionType.STATIC_QUANT
    if _is_fed(node, constants) and _is_read(node):
        return ConfigPrecisionType.STATIC_QUANT
    if is_one_of(_before_views(node), STATIC[1:]) and not is_one_of(node, STATIC):
        return precision(next(iter(node.users)), constants)
    return ConfigPrecisionType.FP32


def in_8_bits(node: Node, constants: Constants) -> bool:
    """Whether the node's operands and results are integers."""
    if not isinstance(constants, QuantizedConstants):
        return False
    return precision(node, constants) == ConfigPrecisionType.STATIC_QUANT


def _reads_dynamic(node: Node) -> bool:
    """Whether what is multiplied was quantized at run time, before views of it."""
    for source in node.all_input_nodes:
        while _follows(source) and source.all_input_nodes:
            source = source.all_input_nodes[0]
        if is_dynamic(source):
            return True
    return False


def _is_aten(node: Node, names: Collection[str]) -> bool:
    target = str(node.target)
    return is_call(node) and target.startswith("aten.") and target.split(".")[1] in names


def _follows(node: Node) -> bool:
    return _is_aten(node, _FOLLOWERS)


def _is_fed(node: Node, constants: QuantizedConstants) -> bool:
    while True:
        sources = [n for n in node.all_input_nodes if n not in constants]
        if any(is_one_of(_before_views(n), STATIC[1:]) for n in sources):
            return True
        if not (_follows(node) and len(sources) == 1 and len(sources[0].users) == 1):
            return False
        node = sources[0]


def _before_views(node: Node) -> Node:
    while _is_aten(node, _VIEWS) and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return node


def _is_read(node: Node) -> bool:
    while True:
        users = list(node.users)
        if users and all(is_one_of(u, STATIC[:1]) for u in users):
            return True
        if len(users) != 1:
            return False
        node = users[0]
        if not (_follows(node) or is_getitem(node) or node.target in GATES):
            return False


def units(
    nodes: Sequence[Node], constants: QuantizedConstants, good: Collection[Node]
) -> dict[Node, list[Node]]:
    """All nodes by the operator that they belong to, each unit in the order of `nodes`.

    Nodes that are not `good` have nobody belong to them, but for a choice of scales and what
    uses it. The order of operators is one in which every unit comes after those it reads.
    """
    position = {node: i for i, node in enumerate(nodes)}
    owner: dict[Node, Node] = {}
    for node in nodes:
        if is_one_of(node, CHOOSE):
            found = cluster(node, constants)
            if not isinstance(found, str):
                first = min(found.products, key=position.__getitem__)
                owner.update(dict.fromkeys(found.nodes, first))
    for node in nodes:
        if node not in owner:
            owner[node] = _owner(node, owner, constants, good)
    for node in reversed(nodes):
        user = next(iter(node.users), None)
        if user is None or user not in good or is_one_of(user, STATIC):
            continue
        dequantizes = is_one_of(node, STATIC[1:]) and len(node.users) == 1
        if (dequantizes and owner[node] is node) or node in constants:
            owner[node] = owner[user]
    found_units: dict[Node, list[Node]] = {}
    for node in nodes:
        found_units.setdefault(owner[node], []).append(node)
    return dict(sorted(found_units.items(), key=lambda item: position[item[0]]))


def _owner(
    node: Node,
    owner: dict[Node, Node],
    constants: QuantizedConstants,
    good: Collection[Node],
) -> Node:
    """Of a node whose predecessors' are known."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or source not in owner or source in constants:
        return node
    if is_getitem(node):
        return owner[source]
    alone = len(source.users) == 1 and source in good and not is_one_of(source, STATIC)
    if alone and is_one_of(node, STATIC[:1]):
        return owner[source]
    static = ConfigPrecisionType.STATIC_QUANT
    if alone and node in good and _follows(node) and len(node.all_input_nodes) == 1:
        return owner[source] if precision(node, constants) == static else node
    return node
