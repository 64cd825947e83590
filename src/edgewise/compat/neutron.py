"""`executorch.backends.nxp`: the target under ExecuTorch's name, and passes of its scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewise.backends.neutron.targets import TARGETS
from edgewise.compat.passes import PassManager, QuantFusionPass

core_aten_ops_exception_list: list[Any] = []
"""Operators that the check of the edge dialect lets pass: there is no need for any."""


class NeutronEdgePassManager(PassManager):
    """The caller's passes; NXP's own are part of the lowering."""

    def __init__(self, passes: Sequence[Any] | None = None) -> None:
        super().__init__(passes)


class RemoveAdditionalQDQClustersPass(QuantFusionPass):
    """Of no effect: operators outside of the NPU are computed as they stand."""


class NeutronTargetSpec:
    """A chip by its name. ValueError, with the known ones, for others."""

    def __init__(self, target: str) -> None:
        if target not in TARGETS:
            raise ValueError(
                f"[NeutronTargetSpec] target must be a chip with a Neutron NPU; got {target!r}; "
                f"try one of {', '.join(TARGETS)}"
            )
        self.neutron_target = TARGETS[target]

    def get_name(self) -> str:
        """The chip's name."""
        return self.neutron_target.name
