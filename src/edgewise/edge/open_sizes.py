"""Sizes that the export left open stay open.

Whoever asks a symbolic size for its number, or whether it equals one, fixes it to the example's: a
rule, a backend, or a decomposition of torch's. The program would then compute something else for
other sizes, which no file format of ours can tell a runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.program import fake_mode
from edgewise.errors import InvalidGraphError, at_node


@contextmanager
def sizes_stay_open(program: ExportedProgram, where: str) -> Iterator[None]:
    """InvalidGraphError if what is done inside fixes one of the program's sizes.

    where: the stage, such as "to_edge".
    """
    environment = getattr(fake_mode(program), "shape_env", None)
    before = _fixed(environment)
    places = _places(program) if environment is not None else {}
    yield
    _check(environment, before, places, f"[{where}]")


@contextmanager
def sizes_stay_open_at(node: Node, mode: Any) -> Iterator[None]:
    """The same for what is done with one node."""
    environment = getattr(mode, "shape_env", None)
    before = _fixed(environment)
    yield
    _check(environment, before, {}, at_node(node))


def has_symbols(value: Any) -> bool:
    """Whether a node's value is, or has, a size that is not known."""
    sizes = getattr(value, "shape", None)
    return any(not isinstance(size, int) for size in ((value,) if sizes is None else sizes))


def _fixed(environment: Any) -> dict[Any, int]:
    replacements = getattr(environment, "replacements", {})
    return {symbol: int(value) for symbol, value in replacements.items() if value.is_Integer}


def _places(program: ExportedProgram) -> dict[Any, str]:
    """Where each symbol is the size of an input."""
    places: dict[Any, str] = {}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            break
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if expression is not None:
                places.setdefault(expression, f"dimension {dim} of {node.name}")
    return places


def _check(environment: Any, before: dict[Any, int], places: dict[Any, str], where: str) -> None:
    new = {s: value for s, value in _fixed(environment).items() if s not in before}
    if not new:
        return
    shown = ", ".join(f"{places.get(s, s)} fixed to {value}" for s, value in new.items())
    raise InvalidGraphError(
        f"{where} sizes that the export left open must stay open; got {shown}; try an export in "
        f"which it is a number"
    )
