"""Neutron: the NPUs of NXP's chips, in 8-bit integers.

from edgewise.backends.neutron import NeutronPartitioner, generate_neutron_compile_spec
partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"))
program = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
"""

from typing import TYPE_CHECKING, Any

from edgewise.backends.neutron.backend import NeutronBackend
from edgewise.backends.neutron.compile_spec import (
    CustomDelegationOptions,
    NeutronCompileSpecBuilder,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.converter import NeutronConverterError
from edgewise.backends.neutron.partitioner import NeutronPartitioner
from edgewise.lazy import attribute

if TYPE_CHECKING:
    from edgewise.backends.neutron.quantizer import NeutronQuantizer

_LAZY = {"NeutronQuantizer": "edgewise.backends.neutron.quantizer"}


def __getattr__(name: str) -> Any:
    """torchao takes a second to import: only when it is needed."""
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
