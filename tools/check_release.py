"""Whether a tag may be released: python3 tools/check_release.py v0.1.0

The tag, pyproject.toml and the package name one version, and CHANGELOG.md begins with it and the
day of its release.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path) -> list[str]:
    """What keeps the tree from being released under that tag."""
    match = re.fullmatch(r"v(\d+\.\d+\.\d+)", tag)
    if match is None:
        return [f"[tag] must be v and three numbers; got {tag!r}; try v0.1.0"]
    version = match[1]
    found = []
    for name, pattern in (
        ("pyproject.toml", r'^version = "(.+)"$'),
        ("src/edgewise/_version.py", r'^__version__ = "(.+)"$'),
    ):
        stated = re.search(pattern, (root / name).read_text(), re.MULTILINE)
        if stated is None or stated[1] != version:
            found.append(f"[{name}] must say {version}; got {stated[1] if stated else 'none'}")
    heading = re.search(r"^## (.+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    text = heading[1] if heading else "no section"
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d{{2}}-\d{{2}}\)", text):
        found.append(
            f"[CHANGELOG.md] must begin with '## {version} (year-month-day)'; got {text!r}"
        )
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = problems(arguments[0], ROOT)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
