"""XNNPACK: CPUs, in float32.

from edgewise.backends.xnnpack import XnnpackPartitioner
program = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
"""

from edgewise.backends.xnnpack.backend import XnnpackBackend
from edgewise.backends.xnnpack.partitioner import (
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackFloatingPointPartitioner,
    XnnpackPartitioner,
)
from edgewise.backends.xnnpack.precision import ConfigPrecisionType

__all__ = [
    "ConfigPrecisionType",
    "XnnpackBackend",
    "XnnpackDynamicallyQuantizedPartitioner",
    "XnnpackFloatingPointPartitioner",
    "XnnpackPartitioner",
]
