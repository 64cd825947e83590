"""What lowering raises. The runtime's errors are in `edgewise.runtime`."""

from __future__ import annotations


class EdgewiseError(Exception):
    """Base of all errors of lowering. Messages read "[where] rule; got X; try Y"."""


class ExportError(EdgewiseError):
    """torch could not export a model; `__cause__` is what it raised."""


class InvalidGraphError(EdgewiseError):
    """A graph contains what the edge dialect does not allow."""


class UnsupportedOperatorError(EdgewiseError):
    """An operator can neither be delegated, decomposed nor emitted."""


class QuantizationError(EdgewiseError, ValueError):
    """A scale or zero point that devices cannot compute with."""


class PartitionError(EdgewiseError):
    """A partitioner or backend broke its contract."""


class EmitError(EdgewiseError):
    """A value or operator cannot be written to a program."""


class InternalError(EdgewiseError):
    """A defect of edgewise, not of the model; `__cause__` is what was raised."""
