"""Errors that name the node, and those that edgewise did not foresee."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from torch.fx import Node

from edgewise.edge.graph import op_name, source_line
from edgewise.errors import EdgewiseError, InternalError

F = TypeVar("F", bound=Callable[..., Any])

_REPORT = "this is a defect of edgewise, not of your model: please report it with the traceback"
_NOT_OURS = (EdgewiseError, OSError, ImportError, MemoryError, Warning)
"""Own conditions, and those of the machine and the installation."""
_USERS = "_edgewise_users_code"


@contextmanager
def internal_errors(where: str, node: Node | None = None) -> Iterator[None]:
    """What is raised inside, and is no condition that edgewise tells of, becomes an InternalError.

    where: the stage, such as "to_backend". node: what is worked on; if not given, the node that
    the innermost function was at. Errors whose text starts with "[" are edgewise's own rules.
    """
    try:
        yield
    except _NOT_OURS:
        raise
    except Exception as error:
        if str(error.args[0] if error.args else "").startswith("[") or hasattr(error, _USERS):
            raise
        found = node if node is not None else _node_at(error)
        location = f"[{where}]" if found is None else f"{at_node(found)} {where}:"
        raise InternalError(
            f"{location} must not fail; got {type(error).__name__}: {error}; {_REPORT}"
        ) from error


@contextmanager
def users_code() -> Iterator[None]:
    """What a function of the user's raises is the user's: `internal_errors` lets it pass."""
    try:
        yield
    except Exception as error:
        setattr(error, _USERS, True)
        raise


def as_users(function: F) -> F:
    """The function, whose errors are the user's."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with users_code():
            return function(*args, **options)

    return cast(F, called)


def _node_at(error: Exception) -> Node | None:
    """The node that the innermost function on the traceback was at, for the message alone."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        here = trace.tb_frame.f_locals.get("node")
        found = here if isinstance(here, Node) else found
        trace = trace.tb_next
    return found


def at_node(node: Node) -> str:
    """`[name: op, file:line]`, the location that an error message about a node starts with."""
    line = source_line(node)
    return f"[{node.name}: {op_name(node)}{', ' + line if line else ''}]"
