"""XNNPACK: CPUs, in float32, float16 and integers.

from edgewise.backends.xnnpack import XnnpackPartitioner
program = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
"""

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.backends.xnnpack.lowering.backend import XnnpackBackend
    from edgewise.backends.xnnpack.lowering.partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackFloatingPointPartitioner,
        XnnpackPartitioner,
    )
    from edgewise.backends.xnnpack.lowering.precision import ConfigPrecisionType
    from edgewise.backends.xnnpack.lowering.quantizer import XNNPACKQuantizer
    from edgewise.quantize.config import get_symmetric_quantization_config

_LAZY = {
    "ConfigPrecisionType": "edgewise.backends.xnnpack.lowering.precision",
    "XNNPACKQuantizer": "edgewise.backends.xnnpack.lowering.quantizer",
    "XnnpackBackend": "edgewise.backends.xnnpack.lowering.backend",
    "XnnpackDynamicallyQuantizedPartitioner": "edgewise.backends.xnnpack.lowering.partitioner",
    "XnnpackFloatingPointPartitioner": "edgewise.backends.xnnpack.lowering.partitioner",
    "XnnpackPartitioner": "edgewise.backends.xnnpack.lowering.partitioner",
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
