"""Known vulnerabilities of the Python packages, as osv.dev has them: `python tools/audit.py`.

Looks up what is installed beside this Python, then the lowest versions that pyproject.toml allows.
Exit code 1 if there is one, or if the database cannot be reached. `OSV_URL`: of another database.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DATABASE = "https://api.osv.dev/v1/query"


def lowest(requirement: str) -> str:
    """`name==version` of the lower bound. ValueError without one."""
    parsed = Requirement(requirement)
    for rule in parsed.specifier:
        if rule.operator in (">=", "=="):
            return f"{parsed.name}=={rule.version}"
    raise ValueError(f"[audit] every dependency has a lower bound; got {requirement!r}")


def requirements() -> list[str]:
    """All of pyproject.toml: of the build, of the package and of its extras."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    extras = (rule for extra in project["optional-dependencies"].values() for rule in extra)
    return [*settings["build-system"]["requires"], *project["dependencies"], *extras]


def audited(what: str, *options: str) -> bool:
    """Whether pip-audit could look everything up, and found nothing."""
    print(f"{what}:", flush=True)
    url = os.environ.get("OSV_URL", DATABASE)
    command = ["pip_audit", "--vulnerability-service", "osv", "--osv-url", url, *options]
    made = subprocess.run(
        [sys.executable, "-m", *command, "--progress-spinner", "off"],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    told = made.stderr.strip().splitlines()
    if "Traceback (most recent call last):" in told:
        error = told[-1].partition(":")[0]
        print(f"[audit] {url} must answer; got {error}; try again with a network", flush=True)
    else:
        # That packages are pinned without hashes is so on purpose: these are bounds.
        print(*(line for line in told if not line.startswith("WARNING")), sep="\n", flush=True)
    return made.returncode == 0


def main() -> int:
    packages = sysconfig.get_path("purelib")
    installed = audited("installed", "--skip-editable", "--path", packages)
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder) / "lowest.txt"
        pinned.write_text("\n".join(sorted({lowest(rule) for rule in requirements()})) + "\n")
        bounds = audited("lowest versions allowed", "--no-deps", "--disable-pip", "-r", str(pinned))
    return int(not (installed and bounds))


if __name__ == "__main__":
    sys.exit(main())
