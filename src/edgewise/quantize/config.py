"""How tensors are quantized: integer ranges, schemes and the observers that find the scales."""

from __future__ import annotations

from typing import Any

import torch

from edgewise.quantize._torchao import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    PlaceholderObserver,
    QuantizationConfig,
    QuantizationSpec,
)
from edgewise.quantize.observers import (
    LEAST,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)


def get_symmetric_quantization_config(
    is_per_channel: bool = False,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """8-bit symmetric weights and 8-bit asymmetric activations.

    is_per_channel: one weight scale for each output channel instead of one for the tensor.
    is_dynamic: activations get their scale while the model runs, not by calibration.
    is_qat: observers that also simulate rounding, for `prepare_qat_pt2e`.
    ValueError if a range is empty or does not fit 8 bits, or weights' does not hold 0.
    """
    _check_range("act", act_qmin, act_qmax)
    _check_range("weight", weight_qmin, weight_qmax)
    activation = _activation(is_qat, is_dynamic, act_qmin, act_qmax)
    return QuantizationConfig(
        input_activation=activation,
        output_activation=None if is_dynamic else activation,
        weight=_weight(is_per_channel, is_qat, weight_qmin, weight_qmax),
        bias=None,
        is_qat=is_qat,
    )


def _check_range(what: str, low: int, high: int) -> None:
    if not -128 <= low < high <= 127 or not low <= 0 <= high:
        raise ValueError(
            f"[get_symmetric_quantization_config] {what}_qmin < {what}_qmax must lie in "
            f"-128..127 and hold 0; got {low}..{high}"
        )


def _activation(is_qat: bool, is_dynamic: bool, low: int, high: int) -> QuantizationSpec:
    options: dict[str, Any] = {}
    observer: Any
    if is_dynamic and is_qat:
        observer = FakeQuantize
        options["observer"] = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
    elif is_dynamic:
        observer = PlaceholderObserver
        options["eps"] = LEAST
    elif is_qat:
        observer = FusedMovingAvgObsFakeQuantize
        options["observer"] = MovingAverageMinMaxObserver
    else:
        observer = HistogramObserver
    return QuantizationSpec(
        dtype=torch.int8,
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=observer.with_args(**options),
    )


def _weight(is_per_channel: bool, is_qat: bool, low: int, high: int) -> QuantizationSpec:
    options: dict[str, Any] = {}
    observer: Any = PerChannelMinMaxObserver if is_per_channel else MinMaxObserver
    if is_qat:
        # The fused one takes a symmetric range for one step wider than it is, and so simulates
        # other scales than convert_pt2e writes: by 0.4 % with 8 bits, by 17 % with 3.
        observer = FakeQuantize
        options["observer"] = (
            MovingAveragePerChannelMinMaxObserver if is_per_channel else MovingAverageMinMaxObserver
        )
    return QuantizationSpec(
        dtype=torch.int8,
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_channel_symmetric if is_per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if is_per_channel else None,
        is_dynamic=False,
        observer_or_fake_quant_ctr=observer.with_args(**options),
    )


__all__ = ["QuantizationConfig", "get_symmetric_quantization_config"]
