"""Names of targets that edgewise has not, for scripts that import all and use one.

Each is a class that says so when it is used.
"""

from __future__ import annotations

from typing import Any, NoReturn


class _Elsewhere(type):
    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"{_said(cls.__name__)}; got {cls.__name__}.{name}")

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(_said(cls.__name__))


def _said(name: str) -> str:
    return (
        f"[{name}] is of a target that edgewise has not: it has XNNPACK, Ethos-U and Neutron; "
        "try one of these, or ExecuTorch itself for this target"
    )


def __getattr__(name: str) -> type:
    if name.startswith("_"):
        raise AttributeError(name)
    return _Elsewhere(name, (), {})
