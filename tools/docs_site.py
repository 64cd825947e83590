"""Puts documentation that `make docs` built into a site of several versions.

    python tools/docs_site.py build/docs SITE main|1.2.3

The version's folder is written anew; the others stay as they are. SITE/versions.json lists them,
the newest release first, for the choice in each page (docs/_static/versions.js); SITE/index.html
leads to the newest release, or before there is one to `main`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

MAIN = "main"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_INDEX = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>edgewise</title>
<meta http-equiv="refresh" content="0; url={0}/">
<link rel="canonical" href="{0}/">
<a href="{0}/">The documentation of edgewise</a>
</html>
"""


def add(built: Path, site: Path, version: str) -> list[dict[str, str]]:
    """Returns what SITE/versions.json now has: a name and a folder of each version."""
    if version != MAIN and not _RELEASE.fullmatch(version):
        raise SystemExit(f"[site] a version must be {MAIN} or like 1.2.3; got {version}")
    if not (built / "index.html").exists():
        raise SystemExit(f"[site] {built} must hold index.html; it does not; try `make docs`")
    folder = site / version
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    releases = [p.name for p in site.iterdir() if p.is_dir() and _RELEASE.fullmatch(p.name)]
    releases.sort(key=lambda name: [int(n) for n in name.split(".")], reverse=True)
    versions = [{"name": name, "folder": name} for name in releases]
    if versions:
        versions[0]["name"] += " (newest)"
    if (site / MAIN).is_dir():
        versions.append({"name": "in development", "folder": MAIN})
    (site / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    (site / "index.html").write_text(_INDEX.format(versions[0]["folder"]))
    (site / ".nojekyll").touch()  # or pages of folders that begin with "_" are not served
    return versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("built", type=Path)
    parser.add_argument("site", type=Path)
    parser.add_argument("version")
    given = parser.parse_args()
    given.site.mkdir(parents=True, exist_ok=True)
    for one in add(given.built, given.site, given.version):
        print(f"{one['folder']}: {one['name']}")


if __name__ == "__main__":
    main()
