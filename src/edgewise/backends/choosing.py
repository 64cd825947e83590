"""From names of backends to what partitions and quantizes for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from edgewise.backends.names import ETHOS_U, NEUTRON, ON_HOST
from edgewise.partition.spec import Partitioner

if TYPE_CHECKING:
    from edgewise.backends.ethosu import EthosUCompileSpec
    from edgewise.quantize.quantizer import TableQuantizer


@dataclass(frozen=True)
class VelaOptions:
    """Sections of Vela's configuration file; None: the target's default."""

    system_config: str | None = None
    memory_mode: str | None = None

    def spec(self, target: str) -> EthosUCompileSpec:
        """Raises as `EthosUCompileSpec` for sections that there are not."""
        from edgewise.backends.ethosu import EthosUCompileSpec

        return EthosUCompileSpec(target, self.system_config, self.memory_mode)


def partitioners_of(backends: Sequence[str], vela: VelaOptions | None = None) -> list[Partitioner]:
    """One for each backend's name, in order; none for "none"."""
    return [one for name in backends for one in _partitioners(name, vela or VelaOptions())]


def _partitioners(backend: str, vela: VelaOptions) -> list[Partitioner]:
    if backend == "xnnpack":
        from edgewise.backends.xnnpack import XnnpackPartitioner

        return [XnnpackPartitioner()]
    if backend.startswith(ETHOS_U):
        from edgewise.backends.ethosu import EthosUPartitioner

        return [EthosUPartitioner(vela.spec(backend))]
    if backend.startswith(NEUTRON):
        return [_neutron(backend.removeprefix(NEUTRON))]
    return []


def _neutron(target: str) -> Partitioner:
    from edgewise.backends.neutron import NeutronPartitioner, generate_neutron_compile_spec
    from edgewise.backends.neutron.converter import required_converter

    if target.endswith(ON_HOST):
        flavor = "reference"
        target = target.removesuffix(ON_HOST)
    else:
        flavor = None
        required_converter(
            flavor,
            f"backend='neutron-{target}{ON_HOST}' (neutron_converter_flavor='reference')",
        )
    return NeutronPartitioner(
        generate_neutron_compile_spec(target, neutron_converter_flavor=flavor)
    )


def quantizer_of(backend: str, vela: VelaOptions | None = None) -> Callable[[], TableQuantizer]:
    """What makes the quantizer that goes with a backend's name."""
    if backend == "xnnpack":
        from edgewise.backends.xnnpack.quantizer import XNNPACKQuantizer

        return XNNPACKQuantizer
    if backend.startswith(NEUTRON):
        from edgewise.backends.neutron.quantizer import NeutronQuantizer

        return NeutronQuantizer
    from edgewise.backends.ethosu import EthosUQuantizer

    return partial(EthosUQuantizer, (vela or VelaOptions()).spec(backend))
