"""Which annotations share a scale, told so that torchao can find out.

torchao follows `SharedQuantizationSpec` from one place to the next and joins, on its own, places
that quantize one tensor alike. Where both together lead back to where they began (two
concatenations, one of which reads the other's operand), it recurses without an end. Here the
groups are found first; in each, one place keeps the specification and all others refer to it.
"""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from edgewise.quantize._torchao import Q_ANNOTATION_KEY, SharedQuantizationSpec

Place = Node | tuple[Node, Node]
"""A node's result, or what a node reads of another: (read, reader)."""

_ALIKE = (
    "dtype", "is_dynamic", "quant_min", "quant_max", "qscheme", "ch_axis", "scale", "zero_point",
)  # fmt: skip
"""What torchao compares before it joins places of one tensor."""


def refer_to_one_place(model: GraphModule) -> None:
    """Rewrites the shared specifications of `model`; who shares with whom stays as it is."""
    specs = _specs(model)
    real = {place: _followed(place, specs) for place in specs}
    groups = _Groups(specs)
    for place, spec in specs.items():
        if isinstance(spec, SharedQuantizationSpec) and spec.edge_or_node in specs:
            groups.join(place, spec.edge_or_node)
    for read in model.graph.nodes:
        places = [p for p in (read, *((read, u) for u in read.users)) if p in specs]
        # The result joins nobody by itself: the readers do, unless they say no.
        joins = [p for p in places if isinstance(p, Node) or _joins(p[1])]
        alike: dict[Any, Place] = {}
        for place in joins:
            if real[place] is not None:
                groups.join(alike.setdefault(_key(real[place]), place), place)
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
    """Disjoint sets of places."""

    def __init__(self, places: dict[Place, Any]) -> None:
        self._parents: dict[Place, Place] = {place: place for place in places}

    def _root(self, place: Place) -> Place:
        while self._parents[place] != place:
            self._parents[place] = place = self._parents[self._parents[place]]
        return place

    def join(self, a: Place, b: Place) -> None:
        self._parents[self._root(b)] = self._root(a)

    def all(self) -> list[list[Place]]:
        """The sets, their members in the order of the graph."""
        found: dict[Place, list[Place]] = {}
        for place in self._parents:
            found.setdefault(self._root(place), []).append(place)
        return list(found.values())


def _specs(model: GraphModule) -> dict[Place, Any]:
    found: dict[Place, Any] = {}
    for node in model.graph.nodes:
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        if annotation is None:
            continue
        found.update({(read, node): s for read, s in annotation.input_qspec_map.items()})
        if annotation.output_qspec is not None:
            found[node] = annotation.output_qspec
    return found


def _followed(place: Place, specs: dict[Place, Any]) -> Any:
    """The specification that a place's own, or what it refers to, ends in; None if in nothing."""
    seen = set()
    while place in specs and place not in seen:
        seen.add(place)
        spec = specs[place]
        if not isinstance(spec, SharedQuantizationSpec):
            return spec
        place = spec.edge_or_node
    return None


def _joins(reader: Node) -> bool:
    return bool(reader.meta[Q_ANNOTATION_KEY].allow_implicit_sharing)


def _key(spec: Any) -> tuple[Any, ...]:
    return tuple(getattr(spec, name, None) for name in _ALIKE)


def _set(place: Place, spec: Any) -> None:
    if isinstance(place, Node):
        place.meta[Q_ANNOTATION_KEY].output_qspec = spec
    else:
        read, reader = place
        reader.meta[Q_ANNOTATION_KEY].input_qspec_map[read] = spec
