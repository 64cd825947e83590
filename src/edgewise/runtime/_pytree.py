"""Nested inputs and outputs: the pytree specs that torch writes into a file, without torch.

A spec is JSON, "[1, {type, context, children_spec}]": version 1, then a tree whose leaves
have the type null. The tree of a method's inputs is a tuple of arguments and a dict of keywords;
files of this project add the names of the arguments that a call by position fills, in order, as
"arguments" beside them.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgewise.runtime.errors import InvalidArgumentError, InvalidProgramError

__all__ = ["Tree", "flatten", "parse", "parse_call", "unflatten"]

_VERSION = 1
_MAX_DEPTH = 100

Kind = Literal["leaf", "none", "sequence", "mapping"]

_SEQUENCES: dict[str, Any] = {
    "builtins.list": list,
    "collections.deque": deque,
    "torch.fx.immutable_collections.immutable_list": list,
}
_MAPPINGS: dict[str, Any] = {
    "builtins.dict": dict,
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": dict,
    "torch.fx.immutable_collections.immutable_dict": dict,
}


@dataclass(frozen=True)
class Tree:
    """A node of a structure. `make` builds it from the list or dict of its children."""

    kind: Kind
    type_name: str = ""
    make: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()
    leaves: int = 1

    @property
    def is_flat(self) -> bool:
        """Whether it is a sequence of leaves only."""
        return self.kind == "sequence" and all(c.kind == "leaf" for c in self.children)


def parse(text: str) -> Tree:
    """Reads a spec. Raises InvalidProgramError."""
    return _parse_node(_root(text), 0)


def parse_call(text: str) -> tuple[Tree, tuple[str, ...]]:
    """Reads the spec of a method's inputs: the structure, and its arguments' names or ().

    Raises InvalidProgramError.
    """
    root = _root(text)
    tree = _parse_node(root, 0)
    names = root.get("arguments", [])
    if not _is_names(names) or len(set(names)) != len(names):
        raise _invalid("must have arguments with names of their own", repr(names)[:60])
    if names:
        is_call = tree.kind == "sequence" and len(tree.children) == 2
        positional = len(tree.children[0].children) if is_call else 0
        by_name = set(tree.children[1].keys) if is_call else set()
        if len(names) < positional or not set(names[positional:]) <= by_name:
            raise _invalid("must have a name for each argument", repr(names)[:60])
    return tree, tuple(names)


def _root(text: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid("must be JSON", str(error)) from None
    if not (isinstance(document, list) and len(document) == 2):
        raise _invalid("must be a list of a version and a tree", text[:60])
    if document[0] != _VERSION:
        raise _invalid(f"must have version {_VERSION}", repr(document[0]))
    return document[1]


def flatten(tree: Tree, value: Any, where: str = "inputs") -> list[Any]:
    """The leaves of `value`, in order. Raises InvalidArgumentError where it does not fit."""
    return list(_leaves(tree, value, where))


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves, as many as `tree.leaves`."""
    return _build(tree, iter(leaves))


def _invalid(rule: str, got: str) -> InvalidProgramError:
    return InvalidProgramError(
        f"[pytree] the spec of a method's inputs or outputs {rule}; got {got}; "
        "try Runtime.get().load_program(), which works without specs"
    )


def _parse_node(node: Any, depth: int) -> Tree:
    if depth > _MAX_DEPTH:
        raise _invalid(f"may be {_MAX_DEPTH} levels deep", "more")
    if not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
        raise _invalid("must have nodes with children_spec", repr(node)[:60])
    name = node.get("type")
    children = tuple(_parse_node(child, depth + 1) for child in node["children_spec"])
    if name is None:
        if children:
            raise _invalid("must have leaves without children", str(len(children)))
        return Tree("leaf")
    if not isinstance(name, str):
        raise _invalid("must have types that are names", repr(name)[:60])
    leaves = sum(child.leaves for child in children)
    if name in ("builtins.NoneType", "NoneType"):
        return Tree("none", name, leaves=0)
    keys, absent = _keys(node.get("context"))
    # Fields of a dataclass that were None have no child.
    children += (Tree("none", "builtins.NoneType", leaves=0),) * len(absent)
    keys += absent
    # A class of the model's own with named fields comes out as a dict, any other as a tuple.
    by_name = len(keys) == len(children) > 0 and all(isinstance(key, str) for key in keys)
    if name in _MAPPINGS or (by_name and name not in _SEQUENCES and name != "builtins.tuple"):
        if len(keys) != len(children) or len(set(keys)) != len(keys):
            raise _invalid(f"must have a key for each of {len(children)} children", repr(keys))
        return Tree("mapping", name, _MAPPINGS.get(name, dict), keys, children, leaves)
    return Tree("sequence", name, _SEQUENCES.get(name, tuple), (), children, leaves)


def _keys(context: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The keys of a mapping: a JSON list, or for defaultdict what holds one. Of a dataclass: the
    names of its fields, and those that were None."""
    if isinstance(context, str):
        try:
            context = json.loads(context)
        except (ValueError, RecursionError):
            return (), ()
    if isinstance(context, dict) and isinstance(context.get("dict_context"), list):
        context = context["dict_context"]
    if not isinstance(context, list):
        return (), ()
    if len(context) == 2 and all(_is_names(part) for part in context):
        return tuple(context[0]), tuple(context[1])
    if not all(isinstance(key, (str, int, float, bool, type(None))) for key in context):
        return (), ()
    return tuple(context), ()


def _is_names(part: Any) -> bool:
    return isinstance(part, list) and all(isinstance(name, str) for name in part)


def _leaves(tree: Tree, value: Any, where: str) -> Iterator[Any]:
    if tree.kind == "leaf":
        yield value
    elif tree.kind == "none":
        if value is not None:
            raise _unfit(where, "None", value)
    elif tree.kind == "mapping":
        value = value if isinstance(value, Mapping) else getattr(value, "__dict__", value)
        if not isinstance(value, Mapping) or set(value) != set(tree.keys):
            raise _unfit(where, f"a dict with the keys {list(tree.keys)}", value)
        for key, child in zip(tree.keys, tree.children, strict=True):
            yield from _leaves(child, value[key], f"{where}[{key!r}]")
    else:
        if not isinstance(value, (list, tuple, deque)) or len(value) != len(tree.children):
            raise _unfit(where, f"a list or tuple of {len(tree.children)}", value)
        for index, child in enumerate(tree.children):
            yield from _leaves(child, value[index], f"{where}[{index}]")


def _unfit(where: str, rule: str, value: Any) -> InvalidArgumentError:
    got = type(value).__name__
    if isinstance(value, Mapping):
        got = f"the keys {list(value)}"
    elif isinstance(value, (list, tuple)):
        got = f"{len(value)} items"
    return InvalidArgumentError(f"[call] {where} must be {rule}; got {got}")


def _build(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree.kind == "leaf":
        return next(leaves)
    if tree.kind == "none":
        return None
    if tree.kind == "mapping":
        return tree.make(
            (key, _build(child, leaves))
            for key, child in zip(tree.keys, tree.children, strict=True)
        )
    return tree.make(_build(child, leaves) for child in tree.children)
