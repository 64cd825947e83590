"""`executorch.backends.nxp`: the target under ExecuTorch's name."""

from __future__ import annotations

from edgewise.backends.neutron.targets import TARGETS


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
