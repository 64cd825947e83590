"""ExecuTorch's import paths, served by this project: scripts written for it run unchanged.

    python -m edgewise.compat script.py

or, before anything of ExecuTorch is imported:

    import edgewise.compat.executorch

`table` lists every path and name with the object behind it; docs/compat.md is made from it.
Whether the real package is installed makes no difference.
"""

from edgewise.compat.importer import install, uninstall

__all__ = ["install", "uninstall"]
