"""A page about compiled programs: what runs where and why, what it costs, how exact it is.

    import edgewise.report
    edgewise.report.write("report.html", ["model.pte"])

One HTML file that opens from disk and refers to nothing else. Takes no torch.
"""

from typing import Any

from edgewise.lazy import attribute

_LAZY = {
    "Subject": "edgewise.report.subject",
    "render": "edgewise.report.writing",
    "write": "edgewise.report.writing",
}


def __getattr__(name: str) -> Any:
    """Imported when first used."""
    return attribute(__name__, _LAZY, name)


__all__ = ["Subject", "render", "write"]
