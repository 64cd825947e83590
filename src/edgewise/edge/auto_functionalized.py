"""Calls that a trace has wrapped because their operators write arguments.

Torch makes a program with such operators functional by `auto_functionalized(operator, x=x, ...)`,
which returns the operator's results and then each argument that it writes, and, where somebody ran
`run_decompositions()`, by `auto_functionalized_v2(operator, _x_base_index=0, _all_bases=[b], ...)`,
which returns the results and then all of `b` anew, whatever views of them the operator writes:

    auto_functionalized_v2(op, _x_slice_dim=0, _x_slice_start=1, ..., _all_bases=[b])[1]
        = slice_scatter(b, auto_functionalized(op, x=slice(b, 0, 1, ...))[1], 0, 1, ...)

Operators over caches have functional twins (`cache_operators`), which are called instead of either.
What a twin writes in the file is the cache itself: one that is no buffer is copied before.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.cache_operators import CACHES, functional_twin
from edgewise.edge.graph import AUTO_FUNCTIONALIZED, inherit_meta, is_getitem
from edgewise.edge.program import fake_mode, state_placeholders, sync_outputs

aten = torch.ops.aten

AUTO_FUNCTIONALIZED_V2 = torch.ops.higher_order.auto_functionalized_v2


@dataclass(frozen=True)
class _View:
    """What of a base an operator writes: all, or what `read(base, *region)` gives, which
    `scatter(base, value, *region)` puts back."""

    base: int
    read: Any = None
    scatter: Any = None
    region: tuple[Any, ...] = ()


_SLICE = (aten.slice.Tensor, aten.slice_scatter.default)
_STRIDED = (aten.as_strided.default, aten.as_strided_scatter.default)
_REGIONS = (
    (_SLICE, ("slice_dim", "slice_start", "slice_end")),
    (_STRIDED, ("size", "stride", "storage_offset")),
)


def expand_auto_functionalized(program: ExportedProgram) -> bool:
    """Returns whether it modified. Calls of a list that the operator writes stay as they are."""
    found = [
        node
        for node in program.graph.nodes
        if node.target is AUTO_FUNCTIONALIZED_V2
        or (node.target is AUTO_FUNCTIONALIZED and functional_twin(node.args[0]) is not None)
    ]
    changed = False
    for node in found:
        changed |= _Expansion(program, node).run()
    if changed:
        sync_outputs(program)
    return changed


class _Expansion:
    """Of one call."""

    def __init__(self, program: ExportedProgram, node: Node) -> None:
        self.program = program
        self.node = node
        self.called = node.args[0]

    def run(self) -> bool:
        """Whether the call is another one now."""
        if not isinstance(self.called, torch._ops.OpOverload):
            return False
        given = dict(self.node.kwargs)
        names = [
            a.name
            for a in self.called._schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        ]
        if self.node.target is AUTO_FUNCTIONALIZED:
            versions: list[Any] = [given[name] for name in names]
            views: dict[str, _View] = {name: _View(i) for i, name in enumerate(names)}
        else:
            if any(f"_{name}_length" in given for name in names):
                return False
            versions = list(given.pop("_all_bases"))  # type: ignore[arg-type]
            views = {n: v for n in names if (v := _popped(given, f"_{n}")) is not None}
        with self.program.graph.inserting_before(self.node), fake_mode(self.program):
            if functional_twin(self.called) is not None:
                versions = [self._own(version) for version in versions]
            written = {name: self._read(view, versions) for name, view in views.items()}
            results, after = self._call({**given, **written}, names)
            for name, view in views.items():
                versions[view.base] = self._write(view, versions, after[name])
        self._replace([*results, *versions])
        return True

    def _own(self, cache: Node) -> Node:
        """The cache, or a copy of what is neither a buffer nor made by a twin."""
        source = cache.args[0] if is_getitem(cache) else None
        made_by_twin = isinstance(source, Node) and source.target in CACHES
        if made_by_twin or cache in state_placeholders(self.program, of_users=False):
            return cache
        return self._add(aten.clone.default, (cache,))

    def _read(self, view: _View, versions: list[Any]) -> Node:
        base: Node = versions[view.base]
        return base if view.read is None else self._add(view.read, (base, *view.region))

    def _write(self, view: _View, versions: list[Any], value: Node) -> Node:
        if view.scatter is None:
            return value
        return self._add(view.scatter, (versions[view.base], value, *view.region))

    def _call(self, given: dict[str, Any], names: list[str]) -> tuple[list[Node], dict[str, Node]]:
        """Results, and what each written argument is afterwards."""
        assert isinstance(self.called, torch._ops.OpOverload)
        count = max(1, len(self.called._schema.returns))
        values = [*_results(self.node, count), *(given[n].meta["val"] for n in names if given[n])]
        twin = functional_twin(self.called)
        graph = self.program.graph
        if twin is not None:
            order = [a.name for a in twin._schema.arguments]
            kwargs = {a.name: a.default_value for a in twin._schema.arguments} | given
            made = graph.call_function(twin, tuple(kwargs[name] for name in order))
        else:
            made = graph.call_function(AUTO_FUNCTIONALIZED, (self.called,), given)
        made.meta["val"] = tuple(values)
        inherit_meta(made, self.node)
        items = []
        for index, value in enumerate(values):
            items.append(graph.call_function(operator.getitem, (made, index)))
            items[-1].meta["val"] = value
            inherit_meta(items[-1], self.node)
        written = [name for name in names if given[name] is not None]
        return items[:count], dict(zip(written, items[count:], strict=True))

    def _replace(self, values: list[Any]) -> None:
        for user in list(self.node.users):
            if is_getitem(user):
                index = user.args[1]
                assert isinstance(index, int)
                user.replace_all_uses_with(values[index])
                self.program.graph.erase_node(user)
        self.program.graph.erase_node(self.node)

    def _add(self, target: Any, args: tuple[Any, ...]) -> Node:
        node: Node = self.program.graph.call_function(target, args)
        values = torch.fx.node.map_arg(args, lambda a: a.meta["val"])
        node.meta["val"] = target(*values)
        inherit_meta(node, self.node)
        return node


def _popped(given: dict[str, Any], name: str) -> _View | None:
    """The view that an argument is, taken out of the call's; None for an argument that is None."""
    base = given.pop(f"{name}_base_index")
    if base is None:
        return None
    given.pop(f"{name}_alias", None)
    for operators, fields in _REGIONS:
        if f"{name}_{fields[-1]}" in given:
            return _View(base, *operators, tuple(given.pop(f"{name}_{field}") for field in fields))
    return _View(base)


def _results(node: Node, count: int) -> list[Any]:
    value = node.meta["val"]
    return list(value[:count])


__all__ = ["expand_auto_functionalized"]
