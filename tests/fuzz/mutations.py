"""Damage to files: of bytes, of words as FlatBuffers and command streams have them, of trees.

Everything is drawn from the generator that is given: the same seed gives the same files.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

_MOST = 1 << 16
"""Bytes of what mutations make; more is cut."""
_MOST_YAML = 2000
"""Bytes of what is read as a tree: the reader is slow where brackets nest."""
_NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    *_NUMBERS,
    -(2**63),
    10**40,
    0.5,
    -1e308,
    math.inf,
    math.nan,
    "",
    "x",
    "\x1b[31m",
    "<script>",
    "\ud800",
    "a" * 300,
    "../../x",
    [],
    {},
    [None],
    {"": 0},
    [[]],
)
_PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\n", b" ", b"- ", b"&a ", b"*a", b"!!set "),
    *(b"!!python/object:os.system ", b"2001-99-99", b"1e999", b"1.2.3", b"0x", b"\xff", b"\0"),
    *(b"<<: ", b"\\u0000", b"\\ud800", b"NaN", b"[" * 40, b"{a: " * 200, b'{"a":' * 1500),
)


def of_bytes(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Words overwritten, pieces removed, doubled, or taken from another file."""
    made = bytearray(data)
    for _ in range(1 + rng.randrange(3)):
        if not made:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(16)))
        kind = rng.randrange(10)
        if kind < 6:
            _change_word(made, rng)
        elif kind == 6:
            _change_byte(made, rng)
        elif kind == 7:
            begin, end = _piece(made, rng)
            del made[begin:end]
        elif kind == 8:
            begin, end = _piece(made, rng)
            made[begin:begin] = made[begin:end]
        else:
            other = rng.choice(others)
            begin, end = _piece(other, rng)
            at = rng.randrange(len(made))
            made[at : at + end - begin] = other[begin:end]
    return bytes(made[:_MOST])


def of_text(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """As `of_bytes`; and pieces of JSON and YAML where they do not belong."""
    if rng.randrange(3) == 0:
        return of_bytes(data, others, rng)
    made = bytearray(data)
    for _ in range(1 + rng.randrange(3)):
        begin, end = _piece(made, rng)
        made[begin : end if rng.randrange(2) else begin] = rng.choice(_PIECES)
    return bytes(made[:_MOST])


def of_tree(value: Any, rng: random.Random) -> Any:
    """Plain data with some of its values replaced, removed, doubled or exchanged."""
    made = copy.deepcopy(value)
    for _ in range(1 + rng.randrange(3)):
        places = list(_places(made))
        if not places:
            return rng.choice(_VALUES)
        holder, key = rng.choice(places)
        kind = rng.randrange(8)
        if kind < 4:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        elif kind == 4:
            del holder[key]
        elif kind == 5:
            other, at = rng.choice(places)
            if at in other if isinstance(other, dict) else at < len(other):
                holder[key] = copy.deepcopy(other[at])
        elif kind == 6 and isinstance(holder[key], (int, float)):
            holder[key] = -holder[key] if rng.randrange(2) else holder[key] + rng.choice(_NUMBERS)
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[rng.choice(("x", "", "name", "version"))] = holder[key]
    return made


def of_json(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """JSON or gzip of it: as a tree mostly, else as text."""
    packed = data[:2] == b"\x1f\x8b"
    if packed and rng.randrange(4) == 0:
        return of_bytes(data, others, rng)
    try:
        text = gzip.decompress(data) if packed else data
        tree = json.loads(text)
    except (ValueError, OSError, EOFError, RecursionError, zlib.error):
        return of_text(data, others, rng)
    if rng.randrange(5) == 0:
        text = of_text(text, others, rng)
    else:
        text = json.dumps(of_tree(tree, rng)).encode()
    return gzip.compress(text, 1, mtime=0) if packed else text


def of_yaml(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """YAML: as a tree half of the time, written as JSON, else as text."""
    if rng.randrange(2) or len(data) > _MOST_YAML:
        return of_text(data, others, rng)
    import yaml

    try:
        tree = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        return json.dumps(of_tree(tree, rng)).encode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return of_text(data, others, rng)


Mutation = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def _places(value: Any) -> Any:
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, item in pairs:
        yield value, key
        yield from _places(item)


def _piece(data: bytes | bytearray, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 2, 4, 8, 16, 64, 256)))


def _change_byte(made: bytearray, rng: random.Random) -> None:
    made[rng.randrange(len(made))] = rng.choice((0, 1, 255, rng.randrange(256)))


def _change_word(made: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 4, 4, 8))
    if len(made) < size:
        return
    at = rng.randrange(len(made) // size) * size
    value = int.from_bytes(made[at : at + size], "little")
    changed = (
        value + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8)),
        rng.randrange(16),
        1 << rng.randrange(8 * size),
        -rng.randrange(16),
        int.from_bytes(made[(other := rng.randrange(len(made) // size) * size) :][:size], "little"),
        rng.randrange(len(made)),
        rng.choice(_NUMBERS),
        struct.unpack("<I", struct.pack("<f", rng.choice((math.inf, math.nan, -0.0, 1e-40))))[0],
    )
    del other
    made[at : at + size] = (rng.choice(changed) % (1 << 8 * size)).to_bytes(size, "little")
