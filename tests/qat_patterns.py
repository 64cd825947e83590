"""Training with simulated rounding, without a minute of torchao's: each time it exports 114
patterns, for each kind of convolution with a batch normalization, whatever the model has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

MODULE = "torchao.quantization.pt2e.qat_utils"
HELPERS = ("_fuse_conv_bn_qat_helper", "_fold_conv_bn_qat_helper")


def leave_out_absent_convolutions() -> None:
    """Once torchao's module is imported: its patterns of convolutions that are not in the model,
    which match nothing, are not made."""
    module = sys.modules.get(MODULE)
    for name in HELPERS if module is not None else ():
        helper = getattr(module, name)
        if not hasattr(helper, "__wrapped__"):
            setattr(module, name, _of_present_convolutions(helper))


def _of_present_convolutions(helper: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(helper)
    def call(
        model: torch.fx.GraphModule, conv_fn: Callable[..., Any], *rest: Any, **more: Any
    ) -> Any:
        packet = getattr(torch.ops.aten, conv_fn.__name__)
        present = any(
            getattr(n.target, "overloadpacket", None) is packet for n in model.graph.nodes
        )
        return helper(model, conv_fn, *rest, **more) if present else model

    return call
