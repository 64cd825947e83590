"""`executorch.exir.schema`: what numbers in a program are called. Its dataclasses are
`edgewise.format.program`'s."""

from __future__ import annotations

from enum import IntEnum


class TensorShapeDynamism(IntEnum):
    """Of `Tensor.shape_dynamism`."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


class TensorDataLocation(IntEnum):
    """Of `ExtraTensorInfo.location`."""

    SEGMENT = 0
    EXTERNAL = 1


class DataLocation(IntEnum):
    """Of `BackendDelegateDataReference.location`."""

    INLINE = 0
    SEGMENT = 1
