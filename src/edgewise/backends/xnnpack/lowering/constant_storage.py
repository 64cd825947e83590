"""Where a payload's constants lie: in the program's named data, or in the payload itself.

XNNPACK copies a convolution's or a fully connected node's weights when the delegate is made
(it packs them). Every other constant it reads in place, each time that the program runs.
Releases of ExecuTorch up to 1.3.1, and builds of later ones with a weights cache, give named
data back once the delegate is made. So named data holds what is packed, and only that; what is
read in place lies in the payload, which then stays for as long as the program
(`PreprocessResult.is_read_while_running`).
"""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value

_PACKING = frozenset({"FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d"})


def read_in_place(graph: Graph) -> set[Value]:
    """The constants that belong into the payload."""
    found = {
        value
        for node in graph.nodes
        for position, value in enumerate(node.inputs)
        if value is not None and value.data is not None and (position == 0 or not _packs(node))
    }
    # A weights cache knows packed weights by the filter's key and the bias's. Without the
    # bias's, filters of equal content would be taken for one: so neither has a key.
    for node in graph.nodes:
        if _packs(node) and any(bias in found for bias in node.inputs[2:]):
            filters = node.inputs[1]
            assert filters is not None
            found.add(filters)
    return found


def _packs(node: Node) -> bool:
    """Weights are packed if all of them are constants."""
    return node.kind in _PACKING and all(v is None or v.data is not None for v in node.inputs[1:])
