"""Neutron: the NPUs of NXP's chips, in 8-bit integers.

from edgewise.backends.neutron import NeutronPartitioner, generate_neutron_compile_spec
partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"))
program = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
"""

from typing import TYPE_CHECKING, Any

from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.backends.neutron.lowering.backend import NeutronBackend
    from edgewise.backends.neutron.lowering.compile_spec import (
        CustomDelegationOptions,
        NeutronCompileSpecBuilder,
        generate_neutron_compile_spec,
    )
    from edgewise.backends.neutron.lowering.converter import NeutronConverterError
    from edgewise.backends.neutron.lowering.partitioner import NeutronPartitioner
    from edgewise.backends.neutron.lowering.quantizer import NeutronQuantizer

_HERE = "edgewise.backends.neutron"
_LAZY = {
    "CustomDelegationOptions": f"{_HERE}.lowering.compile_spec",
    "NeutronBackend": f"{_HERE}.lowering.backend",
    "NeutronCompileSpecBuilder": f"{_HERE}.lowering.compile_spec",
    "NeutronConverterError": f"{_HERE}.lowering.converter",
    "NeutronPartitioner": f"{_HERE}.lowering.partitioner",
    "NeutronQuantizer": f"{_HERE}.lowering.quantizer",
    "generate_neutron_compile_spec": f"{_HERE}.lowering.compile_spec",
}


def __getattr__(name: str) -> Any:
    """All of it when it is needed: `reference` runs programs without torch."""
    return attribute(__name__, _LAZY, name)


__all__ = [
    "CustomDelegationOptions",
    "NeutronBackend",
    "NeutronCompileSpecBuilder",
    "NeutronConverterError",
    "NeutronPartitioner",
    "NeutronQuantizer",
    "generate_neutron_compile_spec",
]
