"""`executorch.backends.arm`: what its script for compiling a model takes beside the Ethos-U."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer
from edgewise.compat.passes import QuantFusionPass

__all__ = ["ArmCompileSpec", "ReplaceQuantNodesPass", "create_partitioner", "create_quantizer"]


class ArmCompileSpec(EthosUCompileSpec):
    """Of Arm's targets edgewise has the Ethos-U."""

    class DebugMode(Enum):
        """Formats of ExecuTorch's, which edgewise does not write: `edgewise report` does more."""

        JSON = 1
        TOSA = 2


class ReplaceQuantNodesPass(QuantFusionPass):
    """Of no effect: what is quantized outside of the NPU keeps PyTorch's operators."""


def create_partitioner(
    compile_spec: EthosUCompileSpec, additional_checks: Sequence[Any] | None = None
) -> EthosUPartitioner:
    """The partitioner for a target. TypeError for other than the Ethos-U's."""
    _check(compile_spec)
    return EthosUPartitioner(compile_spec, additional_checks)


def create_quantizer(compile_spec: EthosUCompileSpec) -> EthosUQuantizer:
    """The quantizer for a target. TypeError for other than the Ethos-U's."""
    _check(compile_spec)
    return EthosUQuantizer(compile_spec)


def _check(spec: object) -> None:
    if not isinstance(spec, EthosUCompileSpec):
        raise TypeError(
            f"[executorch.backends.arm] compile_spec must be an EthosUCompileSpec; got "
            f"{type(spec).__name__}; try EthosUCompileSpec('ethos-u55-128')"
        )
