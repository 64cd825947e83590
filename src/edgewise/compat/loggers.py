"""What edgewise logs under the names of ExecuTorch's loggers, whose levels scripts set.

`logging.getLogger("executorch.backends.arm").setLevel(logging.INFO)` shows the nodes that the
Ethos-U partitioner rejects.
"""

from __future__ import annotations

import logging

NAMES = {
    "edgewise.backends.ethosu.lowering.partitioner": "executorch.backends.arm.tosa.partitioner",
    "edgewise.backends.xnnpack.lowering.partitioner": (
        "executorch.backends.xnnpack.partition.xnnpack_partitioner"
    ),
    "edgewise.lowering.managers": "executorch.exir.program._program",
}
"""Our loggers, and those of ExecuTorch that say the same."""

_ROOT = "executorch"


class _Renamed(logging.Filter):
    """Records are ExecuTorch's logger's."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.name = NAMES.get(record.name, record.name)
        return True


class _IfNobodyElse(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error as long as the script has not set logging up itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_renamed = _Renamed()
_parents: dict[str, logging.Logger | None] = {}


def connect() -> None:
    """Our loggers take level and handlers from ExecuTorch's from now on."""
    for ours, theirs in NAMES.items():
        logger = logging.getLogger(ours)
        _parents.setdefault(ours, logger.parent)
        logger.parent = logging.getLogger(theirs)
        logger.addFilter(_renamed)
        logger.setLevel(logger.level)  # forgets which levels were enabled


def disconnect() -> None:
    """Undoes `connect`."""
    for ours, parent in _parents.items():
        logger = logging.getLogger(ours)
        logger.parent = parent
        logger.removeFilter(_renamed)
        logger.setLevel(logger.level)
    _parents.clear()


def show_without_handlers() -> None:
    """For scripts that set a level and no handler: Python alone would show warnings only."""
    root = logging.getLogger(_ROOT)
    if not any(isinstance(handler, _IfNobodyElse) for handler in root.handlers):
        root.addHandler(_IfNobodyElse())
