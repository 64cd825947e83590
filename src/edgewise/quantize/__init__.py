"""Quantizing: named schemes, and quantizers for torchao's PT2E flow.

`edgewise.compile(..., quantize="int8")` is the short way. A backend's own quantizer is a
table of operators for `TableQuantizer`; see `edgewise.backends.xnnpack.XNNPACKQuantizer`.
Calibration and conversion are torchao's `prepare_pt2e`, `prepare_qat_pt2e`, `convert_pt2e`.
"""

from typing import Any

from edgewise.lazy import attribute
from edgewise.quantize.schemes import SCHEMES, Scheme

_LAZY = {
    "QuantizationConfig": "edgewise.quantize.config",
    "TableQuantizer": "edgewise.quantize.quantizer",
    "get_symmetric_quantization_config": "edgewise.quantize.config",
    "quantize": "edgewise.quantize.flow",
}


def __getattr__(name: str) -> Any:
    """torchao takes a second to import: only when it is needed."""
    return attribute(__name__, _LAZY, name)


__all__ = ["SCHEMES", "Scheme", *_LAZY]
