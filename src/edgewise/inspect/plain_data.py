"""Frozen dataclasses to and from what JSON holds. Fields that have their defaults are left out."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_LARGEST_INTEGER = 2**1023
"""That is a float, too."""


def to_plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists; numbers, text, None as they are."""
    if dataclasses.is_dataclass(value):
        found = {}
        kind: type = type(value)
        for field, default in _fields(kind):
            item = getattr(value, field)
            if default is dataclasses.MISSING or item != default:
                found[field] = to_plain(item)
        return found
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], data: Any, where: str) -> T:
    """The dataclass that `to_plain` gave `data` for. ValueError if it is of another kind;
    unknown fields are ignored, so that a reader knows files with fields added later."""
    value: T = _read(kind, data, where)
    return value


@cache
def _fields(kind: type) -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(kind):
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        found.append((field.name, default))
    return found


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, data, where)
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _read_one_of(given, data, where)
    if origin is tuple and isinstance(data, list):
        return tuple(_read(given[0], item, where) for item in data)
    if origin not in (None, tuple) and isinstance(data, dict):
        return {key: _read(given[1], item, where) for key, item in data.items()}
    plain = origin is None and isinstance(data, kind)
    if plain and not (isinstance(data, bool) and kind is not bool):
        return data
    if kind is float and isinstance(data, int) and abs(data) <= _LARGEST_INTEGER:
        return float(data)
    name = getattr(kind, "__name__", str(kind))
    raise ValueError(f"{where} must hold {name}; got {_shown(data)}")


def _read_fields(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must hold a {kind.__name__}; got {_shown(data)}")
    values = {}
    for name, default in _fields(kind):
        if name in data:
            values[name] = _read(_types(kind)[name], data[name], f"{where} {kind.__name__}.{name}")
        elif default is dataclasses.MISSING:
            raise ValueError(f"{where} a {kind.__name__} must have {name}; got {_shown(data)}")
    return kind(**values)


def _read_one_of(given: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in given:
        return None
    for one in given:
        if one is not type(None):
            try:
                return _read(one, data, where)
            except ValueError:
                if len(given) == 1 + (type(None) in given):
                    raise
    raise ValueError(f"{where} must hold one of {given}; got {_shown(data)}")


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 60 else text[:57] + "..."
