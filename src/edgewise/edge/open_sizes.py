"""Sizes that the export left open stay open.

Whoever asks a symbolic size for its number, or whether it equals one, fixes it to the example's: a
rule, a backend, or a decomposition of torch's. The program would then compute something else for
other sizes, which no file format of ours can tell a runtime.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from edgewise.edge.node_errors import at_node
from edgewise.edge.program import fake_mode
from edgewise.errors import InvalidGraphError

_TOLD: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()
"""By shape environment, the symbols whose number a warning has told."""


@contextmanager
def sizes_stay_open(program: ExportedProgram, where: str) -> Iterator[None]:
    """InvalidGraphError if what is done inside fixes one of the program's sizes.

    where: the stage, such as "to_edge".
    """
    from torch.fx.experimental import _config

    environment = getattr(fake_mode(program), "shape_env", None)
    before = _fixed(environment)
    locations = _locations(program) if environment is not None else {}
    # What torch asks for speed alone (is this contiguous, are these two equal?) is answered for all
    # sizes, not for the export's example, whose batch of two may equal a number of heads.
    with _config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        yield
    _check(environment, before, locations, where)


@contextmanager
def told_if_fixed(node: Node, mode: Any) -> Iterator[None]:
    """Warns if what is done inside with a node fixes a size: a decomposition says so of operands
    that only go together for one number, such as a query of an open length and a mask of five rows;
    an operator's rule for the sizes of its results may ask for the number itself."""
    environment = getattr(mode, "shape_env", None)
    before = _fixed(environment)
    yield
    new = _new(environment, before)
    if new:
        _TOLD.setdefault(environment, set()).update(new)
        shown = ", ".join(f"{symbol} = {value}" for symbol, value in new.items())
        warnings.warn(
            f"{at_node(node)} takes one size only where the export left it open; got {shown}: the "
            f"program takes that size alone; try an export in which it is a number",
            stacklevel=2,
        )


def has_symbols(value: Any) -> bool:
    """Whether a node's value is, or has, a size that is not known."""
    sizes = getattr(value, "shape", None)
    return any(not isinstance(size, int) for size in ((value,) if sizes is None else sizes))


def _fixed(environment: Any) -> dict[Any, int]:
    replacements = getattr(environment, "replacements", {})
    return {symbol: int(value) for symbol, value in replacements.items() if value.is_Integer}


def _locations(program: ExportedProgram) -> dict[Any, str]:
    """The program's symbols, with the input whose size each is, or its own name. Others are of
    numbers that torch made symbols of on its way: arguments that are no tensors."""
    inputs: dict[Any, str] = {}
    symbols: dict[Any, str] = {}
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            for dim, size in enumerate(getattr(value, "shape", (value,))):
                expression = getattr(getattr(size, "node", None), "expr", None)
                if expression is None:
                    continue
                if node.op == "placeholder" and isinstance(value, torch.Tensor):
                    inputs.setdefault(expression, f"dimension {dim} of {node.name}")
                symbols |= {one: str(one) for one in expression.free_symbols}
    return symbols | {one: where for one, where in inputs.items() if one in symbols}


def _new(environment: Any, before: dict[Any, int]) -> dict[Any, int]:
    return {s: value for s, value in _fixed(environment).items() if s not in before}


def _check(environment: Any, before: dict[Any, int], locations: dict[Any, str], where: str) -> None:
    told = _TOLD.get(environment, set()) if environment is not None else set()
    new = {
        symbol: value
        for symbol, value in _new(environment, before).items()
        if symbol in locations and symbol not in told
    }
    if not new:
        return
    shown = ", ".join(f"{locations[symbol]} fixed to {value}" for symbol, value in new.items())
    raise InvalidGraphError(
        f"[{where}] sizes that the export left open must stay open; got {shown}; try an export in "
        f"which it is a number"
    )
