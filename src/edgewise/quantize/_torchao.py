"""What is used of torchao, imported without its messages about kernels for other machines."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from edgewise.edge.quiet_torchao import quiet_torchao

with quiet_torchao():
    from torch.ao.quantization.fx.utils import assert_and_get_unique_device
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.pt2e import (
        FakeQuantize,
        FixedQParamsObserver,
        FusedMovingAvgObsFakeQuantize,
        HistogramObserver,
        MinMaxObserver,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        ObserverBase,
        PerChannelMinMaxObserver,
        PlaceholderObserver,
        quantize_pt2e,
    )
    from torchao.quantization.pt2e.quantizer import (
        FixedQParamsQuantizationSpec,
        QuantizationAnnotation,
        QuantizationSpec,
        Quantizer,
        SharedQuantizationSpec,
    )
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY
    from torchao.quantization.pt2e.quantizer.utils import QuantizationConfig
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_
    from torchao.quantization.quant_api import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.utils import _assert_and_get_unique_device


@contextmanager
def _forgetting_models() -> Iterator[None]:
    """Modules whose device was asked for are not kept: two caches hold them, with their weights,
    for as long as the process lives."""
    try:
        yield
    finally:
        for asked in (assert_and_get_unique_device, _assert_and_get_unique_device):
            if hasattr(asked, "cache_clear"):
                asked.cache_clear()


@contextmanager
def _keeping_bodies() -> Iterator[None]:
    """Branches within branches of control flow stay: torchao lets fx delete all modules that the
    outermost graph does not name, and then asks for those of the inner ones."""
    delete = torch.fx.GraphModule.delete_all_unused_submodules

    def delete_but_bodies(self: torch.fx.GraphModule) -> None:
        inner = [m for m in self.modules() if isinstance(m, torch.fx.GraphModule) and m is not self]
        bodies = [(module, dict(module.named_children())) for module in inner]
        delete(self)
        for module, children in bodies:
            for name, child in children.items():
                module.add_module(name, child)

    torch.fx.GraphModule.delete_all_unused_submodules = delete_but_bodies  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.fx.GraphModule.delete_all_unused_submodules = delete  # type: ignore[method-assign]


def prepare_pt2e(model: torch.fx.GraphModule, quantizer: Quantizer) -> torch.fx.GraphModule:
    """torchao's, which forgets the model."""
    with _forgetting_models():
        prepared: torch.fx.GraphModule = quantize_pt2e.prepare_pt2e(model, quantizer)
        return prepared


def prepare_qat_pt2e(model: torch.fx.GraphModule, quantizer: Quantizer) -> torch.fx.GraphModule:
    """torchao's, which forgets the model."""
    with _forgetting_models():
        prepared: torch.fx.GraphModule = quantize_pt2e.prepare_qat_pt2e(model, quantizer)
        return prepared


def convert_pt2e(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """torchao's, which forgets the model."""
    with _forgetting_models(), _keeping_bodies():
        converted: torch.fx.GraphModule = quantize_pt2e.convert_pt2e(model)
        return converted


def fuse_batch_norms(model: torch.fx.GraphModule) -> None:
    """Folds batch normalizations into the layers before them, in place, as `prepare_pt2e` does."""
    _fuse_conv_bn_(model)
    _fuse_linear_bn_(model)


__all__ = [
    "Q_ANNOTATION_KEY",
    "FakeQuantize",
    "FixedQParamsObserver",
    "FixedQParamsQuantizationSpec",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "Int8DynamicActivationIntxWeightConfig",
    "IntxWeightOnlyConfig",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "ObserverBase",
    "PerAxis",
    "PerChannelMinMaxObserver",
    "PerGroup",
    "PlaceholderObserver",
    "QuantizationAnnotation",
    "QuantizationConfig",
    "QuantizationSpec",
    "Quantizer",
    "SharedQuantizationSpec",
    "convert_pt2e",
    "fuse_batch_norms",
    "prepare_pt2e",
    "prepare_qat_pt2e",
    "quantize_",
]
