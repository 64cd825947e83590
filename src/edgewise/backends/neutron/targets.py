"""What is known of the chips that carry a Neutron NPU.

Figures come from the converter if it is installed, else from the table below. Its sources: the
names are those that NXP's tools list for `--target`; cores are named by NXP by generation and
multiply-accumulates per cycle (N1-16, N3-64, N3-1024S, where S stands for a subsystem with a
controller of its own). `macs` and `pipes` of a core without subsystem are the square root of
that number: 8 x 8 for the N3-64, as NXP's own tests for imxrt700 say, and 4 x 4 for the N1-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NeutronTarget:
    """A chip, by the name that NXP's converter knows."""

    name: str
    core: str
    """Generation and multiply-accumulates per cycle, for people."""
    subsystem: bool
    """Whether the NPU has a controller and data mover of its own (Neutron-S)."""
    macs: int | None
    """Multiply-accumulates that a pipeline does per cycle: channels are padded to a multiple.
    None: known to the converter only."""
    pipes: int | None
    """Pipelines: output channels computed at a time."""


KERNEL_LIMIT = 4096
"""Largest kernel, stride and dilation of convolutions and pooling."""
WEIGHTS_OF_AN_OUTPUT_LIMIT = 65535
"""Largest kh * kw * (input channels, raised to a multiple of `macs`)."""
SOFTMAX_POSITIONS_LIMIT = 4096
"""Most rows of a softmax."""
SOFTMAX_SIZE_LIMIT = 65536
"""Most elements of a softmax divided by `macs`."""
RESHAPE_RANK_LIMIT = 7

_TABLE = (
    NeutronTarget("imxrt700", "N3-64", False, 8, 8),
    NeutronTarget("mcxn54x", "N1-16", False, 4, 4),
    NeutronTarget("mcxn94x", "N1-16", False, 4, 4),
    NeutronTarget("imx95", "N3-1024S", True, 16, 16),
    NeutronTarget("imx943", "N3S", True, None, None),
    NeutronTarget("imx952", "N3S", True, None, None),
    NeutronTarget("s32k5", "N3", False, None, None),
    NeutronTarget("s32n79", "N3S", True, None, None),
)
TARGETS = {target.name: target for target in _TABLE}


def target_of(name: str, converter: Any = None) -> NeutronTarget:
    """The description of a target.

    converter: NXP's module, if it is installed; it may know more targets than the table.
    ValueError if neither knows the name, or nobody knows the figures that partitioning needs.
    """
    described = converter.target(name) if converter is not None else None
    found = described or TARGETS.get(name)
    if found is None:
        raise ValueError(
            f"[Neutron] config must name a chip with a Neutron NPU; got {name!r}; "
            f"try one of {', '.join(TARGETS)}"
        )
    if found.macs is None or found.pipes is None:
        raise ValueError(
            f"[Neutron] the figures of {name!r} are known to NXP's converter only; got none; "
            f"try installing the converter (eiq_neutron_sdk), or config='imxrt700'"
        )
    return found
