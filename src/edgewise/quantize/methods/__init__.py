"""Methods that keep accuracy: each a function on an exported graph, usable alone.

By name: `edgewise.compile(..., quantize="int8", methods=["smooth", "equalize"])`. By hand, around
torchao's flow:

    graph = torch.export.export(model, inputs).module()
    smooth(graph, batches)
    prepared = prepare_pt2e(graph, quantizer)
    ...  # calibrate
    correct_biases(prepared, batches)
    convert_pt2e(prepared)
"""

from typing import Any

from edgewise.lazy import attribute

_LAZY = {
    "METHODS": "edgewise.quantize.methods.registry",
    "awq": "edgewise.quantize.methods.activation_aware",
    "adaround": "edgewise.quantize.methods.adaptive_rounding",
    "correct_biases": "edgewise.quantize.methods.bias_correction",
    "equalize": "edgewise.quantize.methods.equalization",
    "gptq": "edgewise.quantize.methods.gptq_rounding",
    "keep_sums_float": "edgewise.quantize.methods.float_sums",
    "scale_outputs": "edgewise.quantize.methods.output_scales",
    "smooth": "edgewise.quantize.methods.smoothing",
    "with_ranges": "edgewise.quantize.methods.ranges",
}


def __getattr__(name: str) -> Any:
    """torchao takes a second to import: only when it is needed."""
    return attribute(__name__, _LAZY, name)


__all__ = list(_LAZY)
