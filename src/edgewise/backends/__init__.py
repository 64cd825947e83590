"""One folder a backend; none knows of another, and nobody outside knows their names.

Each has a `plugin`, which `edgewise.registry` finds by its entry point. docs/backends.md shows how
to write one in a package of your own.
"""

from edgewise.registry import Backend, OperatorFacts

__all__ = ["Backend", "OperatorFacts"]
