"""YAML as a plan has it: plain data, and no more of it than a person writes.

A short file can stand for much: brackets nest, and an alias stands for all that its anchor holds,
aliases included. Both are bounded before anything is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
MOST_NESTED = 32
MOST_VALUES = 100_000
"""With what aliases stand for."""


def read_yaml(path: Path) -> Any:
    """The file's plain data. OSError if it cannot be read; ValueError, with a text that goes on
    after "got", if it is no YAML or beyond the bounds."""
    import yaml

    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 10} KiB")
    try:
        _check(yaml.parse(data, Loader=yaml.SafeLoader))
        return yaml.safe_load(data)
    except UnicodeDecodeError:
        raise ValueError("bytes that are no text") from None
    except (yaml.YAMLError, OverflowError, KeyError, IndexError, TypeError) as failure:
        # Others than YAMLError come of scalars that only look like a date or a number.
        raise ValueError(str(failure) or type(failure).__name__) from failure


def _check(events: Any) -> None:
    """ValueError at the first event that is beyond the bounds; what follows is not parsed."""
    anchored: dict[str, int] = {}
    # Of each collection that is open: its anchor, and the values in it so far.
    held: list[tuple[str | None, int]] = [(None, 0)]

    def add(anchor: str | None, count: int) -> None:
        if anchor is not None:
            anchored[anchor] = count
        name, before = held[-1]
        held[-1] = (name, before + count)
        if before + count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")

    for event in events:
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            held.append((event.anchor, 1))
            if len(held) > MOST_NESTED:
                raise ValueError(f"more than {MOST_NESTED} levels of values within values")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            add(*held.pop())
        elif kind == "AliasEvent":
            # Of what is still open, so that it would hold itself.
            if event.anchor not in anchored:
                raise ValueError(f"an alias of what is not there: {event.anchor}")
            add(None, anchored[event.anchor])
        elif kind == "ScalarEvent":
            add(event.anchor, 1)
