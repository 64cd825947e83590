"""`executorch.version`: the release whose names are served, which scripts ask for."""

from __future__ import annotations

from edgewise.releases import KNOWN, shown

__version__ = f"{shown(KNOWN[-1])}.0"
