"""What XNNPACK computes in 8-bit integers, for torchao's PT2E flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.fx import GraphModule, Node

from edgewise.backends.xnnpack.operators import TABLE
from edgewise.quantize.composites import (
    RECURRENT,
    UNFOLD,
    VOLUMES,
    multiply_as_linear,
    recurrent_steps,
)
from edgewise.quantize.constant_indices import gather_by_products
from edgewise.quantize.decompose import decompose
from edgewise.quantize.patterns import Elementwise, Fixed, Pattern
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.steps import numbers_as_constants, split_pieces

MOST = 256
"""Steps of a recurrent layer that are written out; each has some twenty operators."""


_GATES = "in 8 bits a recurrent layer's gate is never 1, and its state loses a part with every step"


class XNNPACKQuantizer(TableQuantizer):
    """Quantizes what XNNPACK runs in integers.

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    """

    table: ClassVar[Mapping[Any, Pattern]] = TABLE.patterns()
    computes_floats: ClassVar[bool] = True
    dtypes: ClassVar[Sequence[torch.dtype]] = (torch.float32, torch.float16)

    def __init__(self) -> None:
        super().__init__()
        self._steps: frozenset[Node] = frozenset()

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Recurrent layers become a linear layer and gates for each step; products with a constant
        matrix linear layers; numbers as operands tensors, which have scales; pieces slices, each
        with a scale of its own. Called by `prepare_pt2e`."""
        super().transform_for_annotation(model)
        before = set(model.graph.nodes)
        decompose(model, RECURRENT, lambda n: self._is_quantized(n) and recurrent_steps(n) <= MOST)
        self._steps = frozenset(set(model.graph.nodes) - before)
        decompose(model, {**UNFOLD, **VOLUMES}, self._is_quantized)
        gather_by_products(model, self._is_quantized, weights_only=True)
        multiply_as_linear(model, self._is_quantized)
        numbers_as_constants(model, lambda n: self._is_static(n) and n not in self._steps)
        split_pieces(model, self._is_static)
        return model

    def _annotate(self, node: Node, pattern: Pattern) -> str | None:
        if node in self._steps and isinstance(pattern, Elementwise | Fixed):
            return _GATES if self._is_quantized(node) else None
        return super()._annotate(node, pattern)


__all__ = ["XNNPACKQuantizer"]
