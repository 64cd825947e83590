"""`executorch.backends.xnnpack`: what our backend has under no name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewise.backends.xnnpack import ConfigPrecisionType, XnnpackPartitioner
from edgewise.compat.exir import EdgeCompileConfig, ExecutorchBackendConfig


class XnnpackQuantizedPartitioner(XnnpackPartitioner):
    """Delegates only what is statically quantized."""

    def __init__(self) -> None:
        super().__init__(config_precisions=ConfigPrecisionType.STATIC_QUANT)


def get_xnnpack_edge_compile_config(skip_dim_order: bool = False) -> EdgeCompileConfig:
    """Options of `to_edge` for programs that XNNPACK is to take."""
    return EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=skip_dim_order)


def get_transform_passes(additional_passes: Sequence[Any] | None = None) -> list[Any]:
    """Passes before partitioning: none but the caller's."""
    return list(additional_passes or [])


def get_xnnpack_executorch_backend_config(
    additional_passes: Sequence[Any] | None = None,
) -> ExecutorchBackendConfig:
    """Options of `to_executorch`."""
    return ExecutorchBackendConfig(passes=list(additional_passes or []))
