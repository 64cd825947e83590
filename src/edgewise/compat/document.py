"""`python -m edgewise.compat.document > docs/compat-imports.md`"""

from __future__ import annotations

from collections.abc import Mapping

from edgewise.compat.advice import ADVICE
from edgewise.compat.table import REMOVED, SERVED

_HEAD = """# ExecuTorch's import paths that are served

Made by `python -m edgewise.compat.document` from the table that the imports are served from;
[compat.md](compat.md) says how to use them. A path that is not here raises `ImportError`, which
names what to use instead.

| path | names | from |
|---|---|---|
"""

_REMOVED_HEAD = """
## Modules that torch has removed

Scripts that are older than the torch they run on import these; they are served where torch has
none. `torch.export.export_for_training` is `torch.export.export` where torch has no such function.

| path | names | from |
|---|---|---|
"""

_ADVICE_HEAD = """
## What to use instead of what is not served

| below | instead |
|---|---|
"""


def markdown() -> str:
    """The page."""
    own = {path: names for path, names in SERVED.items() if path not in REMOVED}
    text = _HEAD + "".join(_section(path, names) for path, names in sorted(own.items()))
    text += _REMOVED_HEAD
    text += "".join(_section(path, names) for path, names in sorted(REMOVED.items()))
    return text + _ADVICE_HEAD + "".join(f"| `{path}` | {said} |\n" for path, said in ADVICE)


def _section(path: str, names: Mapping[str, str]) -> str:
    if not names:
        return f"| `{path}` | none: the import is enough | |\n"
    by_home: dict[str, list[str]] = {}
    for name, target in sorted(names.items()):
        home, _, attribute = target.partition(":")
        renamed = f" (`{attribute}`)" if attribute != name else ""
        by_home.setdefault(home, []).append(f"`{name}`{renamed}")
    return "".join(
        f"| `{path}` | {', '.join(found)} | `{home}` |\n" for home, found in by_home.items()
    )


if __name__ == "__main__":
    print(markdown(), end="")
