"""What `edgewise --version` prints."""

from __future__ import annotations

import json
from pathlib import Path

import edgewise

BUILD = Path(edgewise.__file__).with_name("runtime") / "_build.json"
"""Written into wheels by cmake/edgewise_wheel.cmake; a source tree has none."""


def version_text() -> str:
    """The version, and what a wheel was made of: `0.1.0 (commit 2a0464687f3b, XNNPACK 2024…)`."""
    try:
        build = json.loads(BUILD.read_text())
    except FileNotFoundError:
        return edgewise.__version__
    parts = [("commit", build.get("commit")), ("XNNPACK", build.get("xnnpack"))]
    known = ", ".join(f"{name} {value}" for name, value in parts if value)
    return f"{edgewise.__version__} ({known})" if known else edgewise.__version__
