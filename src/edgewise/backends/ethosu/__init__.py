"""Arm Ethos-U NPUs: lowering through TOSA and Vela, and a simulator of their programs.

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner
partitioner = EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"))
"""

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.backends.ethosu.lowering.backend import EthosUBackend
    from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
    from edgewise.backends.ethosu.lowering.partitioner import EthosUPartitioner
    from edgewise.backends.ethosu.lowering.quantizer import (
        EthosUQuantizer,
        get_symmetric_a16w8_quantization_config,
    )
    from edgewise.quantize.config import get_symmetric_quantization_config

_LAZY = {
    "EthosUBackend": "edgewise.backends.ethosu.lowering.backend",
    "EthosUCompileSpec": "edgewise.backends.ethosu.lowering.compile_spec",
    "EthosUPartitioner": "edgewise.backends.ethosu.lowering.partitioner",
    "EthosUQuantizer": "edgewise.backends.ethosu.lowering.quantizer",
    "get_symmetric_a16w8_quantization_config": "edgewise.backends.ethosu.lowering.quantizer",
    "get_symmetric_quantization_config": "edgewise.quantize.config",
}


def __getattr__(name: str) -> Any:
    """The simulator and the payload need neither torch nor Vela."""
    return attribute(__name__, _LAZY, name)


__all__ = [
    "EthosUBackend",
    "EthosUCompileSpec",
    "EthosUPartitioner",
    "EthosUQuantizer",
    "get_symmetric_a16w8_quantization_config",
    "get_symmetric_quantization_config",
]
