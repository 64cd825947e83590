"""XNNPACK: CPUs, in float32, float16 and integers.

from edgewise.backends.xnnpack import XnnpackPartitioner
program = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
"""

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.backends.xnnpack.backend import XnnpackBackend
    from edgewise.backends.xnnpack.partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackFloatingPointPartitioner,
        XnnpackPartitioner,
    )
    from edgewise.backends.xnnpack.precision import ConfigPrecisionType
    from edgewise.backends.xnnpack.quantizer import XNNPACKQuantizer
    from edgewise.quantize.config import get_symmetric_quantization_config

_LAZY = {
    "ConfigPrecisionType": "edgewise.backends.xnnpack.precision",
    "XNNPACKQuantizer": "edgewise.backends.xnnpack.quantizer",
    "XnnpackBackend": "edgewise.backends.xnnpack.backend",
    "XnnpackDynamicallyQuantizedPartitioner": "edgewise.backends.xnnpack.partitioner",
    "XnnpackFloatingPointPartitioner": "edgewise.backends.xnnpack.partitioner",
    "XnnpackPartitioner": "edgewise.backends.xnnpack.partitioner",
    "get_symmetric_quantization_config": "edgewise.quantize.config",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: lowering takes torch, reading a payload does not."""
    return attribute(__name__, _LAZY, name)


__all__ = [
    "ConfigPrecisionType",
    "XNNPACKQuantizer",
    "XnnpackBackend",
    "XnnpackDynamicallyQuantizedPartitioner",
    "XnnpackFloatingPointPartitioner",
    "XnnpackPartitioner",
    "get_symmetric_quantization_config",
]
