"""Reading a plan's values; errors name the key they are about."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_MOST_SIZE = 1e18


class PlanError(ValueError):
    """A plan that cannot be run: "[key] rule; got X; try Y"."""


def fail(key: str, rule: str, got: Any, hint: str = "") -> PlanError:
    return PlanError(f"[{key}] {rule}; got {got}{'; try ' + hint if hint else ''}")


class Section:
    """A mapping of the plan, whose keys are all asked for or refused."""

    def __init__(self, value: Any, key: str) -> None:
        if not isinstance(value, Mapping):
            raise fail(key, "must be a mapping", _shown(value))
        self.key = key
        self._values = {str(k): v for k, v in value.items()}
        self._asked: list[str] = []

    def at(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.append(name)
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        self._asked.append(name)
        return self._values.get(name) is not None

    def items(self) -> list[tuple[str, Any]]:
        """All of them: the keys are the user's names."""
        self._asked += self._values
        return list(self._values.items())

    def text(self, name: str, default: str | None = None) -> str:
        value = self.get(name, default)
        if not isinstance(value, str) or not value:
            raise fail(self.at(name), "must be text", _shown(value))
        return value

    def number(
        self, name: str, default: float | None, *, least: float = 0.0, whole: bool = False
    ) -> Any:
        """None where the default is and nothing is given."""
        value = self.get(name, default)
        if value is None:
            return None
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or value < least:
            kind = "a whole number" if whole else "a number"
            raise fail(self.at(name), f"must be {kind} of at least {least:g}", _shown(value))
        return value

    def size(self, name: str) -> int | None:
        """Bytes: a number, or text such as "2 GiB"."""
        value = self.get(name)
        if value is None:
            return None
        found = re.fullmatch(
            r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmg]?i?)b?", str(value).strip().lower()
        )
        if found is None or found[2] not in _UNITS or not 0 < float(found[1]) < _MOST_SIZE:
            raise fail(self.at(name), "must be a size", _shown(value), "2 GiB")
        return int(float(found[1]) * _UNITS[found[2]])

    def texts(self, name: str) -> list[str]:
        """A list of texts, or one; empty if not given."""
        value = self.get(name)
        if value is None:
            return []
        values = value if isinstance(value, list) else [value]
        for index, one in enumerate(values):
            if not isinstance(one, str) or not one:
                raise fail(f"{self.at(name)}[{index}]", "must be text", _shown(one))
        return list(values)

    def done(self) -> None:
        """PlanError for a key that nobody asked for."""
        for name in self._values:
            if name not in self._asked:
                close = difflib.get_close_matches(name, self._asked, 1)
                known = ", ".join(dict.fromkeys(self._asked))
                raise fail(
                    self.at(name),
                    f"is no key here; there are {known}",
                    _shown(name),
                    close[0] if close else "",
                )


def one_of(value: str, known: Sequence[str], key: str) -> str:
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        raise fail(
            key, f"must be one of {', '.join(known)}", repr(value), close[0] if close else ""
        )
    return value


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
