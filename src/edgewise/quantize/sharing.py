"""Which annotations share a scale, told so that torchao can find out.

torchao follows `SharedQuantizationSpec` from one value to the next and joins, on its own, values
that quantize one tensor alike. Where both together lead back to where they began (two
concatenations, one of which reads the other's operand), it recurses without an end. Here the
groups are found first; in each, one value keeps the specification and all others refer to it.
"""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from edgewise.quantize._torchao import Q_ANNOTATION_KEY, SharedQuantizationSpec

EdgeOrNode = Node | tuple[Node, Node]
"""A node's result, or what a node reads of another: (read, reader)."""

_ALIKE = (
    "dtype", "is_dynamic", "quant_min", "quant_max", "qscheme", "ch_axis", "scale", "zero_point",
)  # fmt: skip
"""What torchao compares before it joins values of one tensor."""


def refer_to_one_value(model: GraphModule) -> None:
    """Rewrites the shared specifications of `model`; who shares with whom stays as it is."""
    specs = _specs(model)
    real = {value: _followed(value, specs) for value in specs}
    groups = _Groups(specs)
    for value, spec in specs.items():
        if isinstance(spec, SharedQuantizationSpec) and spec.edge_or_node in specs:
            groups.join(value, spec.edge_or_node)
    for read in model.graph.nodes:
        values = [p for p in (read, *((read, u) for u in read.users)) if p in specs]
        # The result joins nobody by itself: the readers do, unless they say no.
        joins = [p for p in values if isinstance(p, Node) or _joins(p[1])]
        alike: dict[Any, EdgeOrNode] = {}
        for value in joins:
            if real[value] is not None:
                groups.join(alike.setdefault(_key(real[value]), value), value)
    for members in groups.all():
        if not any(isinstance(specs[m], SharedQuantizationSpec) for m in members):
            continue
        kept = next((m for m in members if not isinstance(specs[m], SharedQuantizationSpec)), None)
        if kept is None:
            continue  # nobody says how: torchao's error tells of it
        for member in members:
            if member != kept:
                _set(member, SharedQuantizationSpec(kept))


class _Groups:
    """Disjoint sets of values."""

    def __init__(self, values: dict[EdgeOrNode, Any]) -> None:
        self._parents: dict[EdgeOrNode, EdgeOrNode] = {value: value for value in values}

    def _root(self, value: EdgeOrNode) -> EdgeOrNode:
        while self._parents[value] != value:
            self._parents[value] = value = self._parents[self._parents[value]]
        return value

    def join(self, a: EdgeOrNode, b: EdgeOrNode) -> None:
        self._parents[self._root(b)] = self._root(a)

    def all(self) -> list[list[EdgeOrNode]]:
        """The sets, their members in the order of the graph."""
        found: dict[EdgeOrNode, list[EdgeOrNode]] = {}
        for value in self._parents:
            found.setdefault(self._root(value), []).append(value)
        return list(found.values())


def _specs(model: GraphModule) -> dict[EdgeOrNode, Any]:
    found: dict[EdgeOrNode, Any] = {}
    for node in model.graph.nodes:
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        if annotation is None:
            continue
        found.update({(read, node): s for read, s in annotation.input_qspec_map.items()})
        if annotation.output_qspec is not None:
            found[node] = annotation.output_qspec
    return found


def _followed(value: EdgeOrNode, specs: dict[EdgeOrNode, Any]) -> Any:
    """The specification that a value's own, or what it refers to, ends in; None if in nothing."""
    seen = set()
    while value in specs and value not in seen:
        seen.add(value)
        spec = specs[value]
        if not isinstance(spec, SharedQuantizationSpec):
            return spec
        value = spec.edge_or_node
    return None


def _joins(reader: Node) -> bool:
    return bool(reader.meta[Q_ANNOTATION_KEY].allow_implicit_sharing)


def _key(spec: Any) -> tuple[Any, ...]:
    return tuple(getattr(spec, name, None) for name in _ALIKE)


def _set(value: EdgeOrNode, spec: Any) -> None:
    if isinstance(value, Node):
        value.meta[Q_ANNOTATION_KEY].output_qspec = spec
    else:
        read, reader = value
        reader.meta[Q_ANNOTATION_KEY].input_qspec_map[read] = spec
