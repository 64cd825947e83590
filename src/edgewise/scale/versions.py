"""What results depend on besides their arguments: the packages that make them, the processor."""

from __future__ import annotations

import functools
import hashlib
import platform
from importlib import metadata
from pathlib import Path

from edgewise.registry import backends

_PACKAGES = ("torch", "torchao", "numpy")


@functools.lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """By name. edgewise's own holds a digest of its code: a changed source is another version."""
    import edgewise

    found = {
        "python": platform.python_version(),
        "edgewise": f"{edgewise.__version__}+{_code_digest(Path(edgewise.__file__).parent)}",
    }
    for package in (*_PACKAGES, *(name for one in backends() for name in one.packages)):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu() -> str:
    """This machine's processor, for results that depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    names = (found.get("model name"), found.get("cpu family"), found.get("model"))
    return " ".join(name for name in names if name) or platform.machine()


def _code_digest(folder: Path) -> str:
    """Of what decides on results; how they are scheduled, shown and reported does not."""
    content = hashlib.sha256()
    apart = {"cli", "scale", "report", "llm", "compat"}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        stages = relative.parts[0] == "scale" and relative.name in _DECISIVE
        if relative.parts[0] in apart and not stages:
            continue
        if path.suffix in (".py", ".so"):
            content.update(f"{relative}\0".encode())
            content.update(path.read_bytes())
    return content.hexdigest()[:12]


_DECISIVE = (
    *("stages.py", "metrics.py", "sources.py", "fingerprint.py", "models.py"),
    *("shards.py", "observers.py", "sharded_metric.py"),
)
