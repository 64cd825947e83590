"""Linear layers put together again from what decomposition made of them.

    linear(x, w, b)  <-  view(addmm(b, view(x), permute(w, [1, 0])))

Quantized weights and activations belong to a layer: a backend that computes it with integers
must see it whole. Of a constant weight decomposition leaves the transpose, which is undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import transform_bodies
from edgewise.edge.fold_constants import fold_constants
from edgewise.edge.graph import arguments, call, calls, erase_dead, fake, replace, same_shape
from edgewise.edge.normalize import normalize
from edgewise.edge.program import Constants, drop_unused_constants, sync_outputs
from edgewise.edge.provenance import forget
from edgewise.edge.resolve_symbolic_shapes import resolve_symbolic_shapes

aten = torch.ops.aten
LINEAR = aten.linear.default


@dataclass(frozen=True)
class _Parts:
    """A product that is a linear layer: [..., k] times the transpose of [n, k], plus [n]."""

    source: Node
    weight: Node
    """[n, k], or the constant [k, n] of which `transposed` tells."""
    transposed: bool
    bias: Node | None
    result: Node


def recompose(
    program: ExportedProgram, keeper: Callable[[ExportedProgram], Callable[[Node], bool]]
) -> ExportedProgram:
    """Requires the edge dialect. Makes whole, in place, the layers that `keeper(program)` keeps,
    those in branches and loops as well, and leaves the others in the dialect. Returns it."""
    constants = Constants(program)
    made: set[Node] = set()
    for node in calls(program.graph):
        if node.target in (aten.mm.default, aten.addmm.default):
            parts = _parts(node, constants)
            if parts is not None:
                made.add(_whole(parts, constants))
    if made:
        erase_dead(program.graph)
        keeps = keeper(program)
        normalize(program, lambda node: node not in made or keeps(node))
        fold_constants(program)
        resolve_symbolic_shapes(program)
        drop_unused_constants(program)
        sync_outputs(program)
    transform_bodies(program, lambda body, _: recompose(body, keeper))
    return program


def _parts(node: Node, constants: Constants) -> _Parts | None:
    named = arguments(node)
    bias = None
    source: Any = named.get("mat1", named.get("self"))
    weight: Any = named["mat2"]
    if node.target is aten.addmm.default:
        bias = named["self"]
        plain = named["alpha"] == 1 and named["beta"] == 1
        if not plain or not same_shape(fake(bias).shape, fake(node).shape[-1:]):
            return None
    transposed = weight.target is aten.permute_copy.default and list(weight.args[1]) == [1, 0]
    if not transposed and weight not in constants:
        return None
    if transposed:
        weight = weight.args[0]
    return _Parts(
        _unflat(source, node) or source, weight, not transposed, bias, _result(node, source)
    )


def _unflat(flat: Any, product: Node) -> Node | None:
    """[..., k] that was made [m, k] for the product, whose result is made [..., n] again."""
    if flat.target is not aten.view_copy.default or len(product.users) != 1:
        return None
    (user,) = product.users
    source = flat.args[0]
    if user.target is not aten.view_copy.default or user.args[0] is not product:
        return None
    shape = fake(source).shape
    rows = shape[:-1]
    same = same_shape(rows, fake(user).shape[:-1])
    widths = [shape[-1:], fake(user).shape[-1:]] if len(shape) else []
    fits = widths and same_shape([*widths[0], *widths[1]], [_width(flat), _width(product)])
    return source if same and fits else None


def _width(node: Node) -> Any:
    return fake(node).shape[-1]


def _result(product: Node, source: Any) -> Node:
    return next(iter(product.users)) if _unflat(source, product) is not None else product


def _whole(parts: _Parts, constants: Constants) -> Node:
    graph = parts.result.graph
    weight = parts.weight
    if parts.transposed:
        name = weight.name.removeprefix("c_").removeprefix("p_").removesuffix("_folded")
        weight = constants.add(name, constants.tensor(weight).t().contiguous())
    args = (parts.source, weight) + ((parts.bias,) if parts.bias is not None else ())
    with graph.inserting_before(parts.result):
        new = call(graph, LINEAR, args, parts.result, fake(parts.result))
    forget(new)
    replace(parts.result, new)
    return new
