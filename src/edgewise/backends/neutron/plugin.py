"""NXP's Neutron, as `edgewise.registry` finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from edgewise.backends.neutron.targets import TARGETS
from edgewise.registry import Backend, BackendFactory, OperatorFacts, Tools

if TYPE_CHECKING:
    from edgewise.inspect.delegate_graphs import DelegateGraph
    from edgewise.partition.spec import Partitioner
    from edgewise.quantize.quantizer import TableQuantizer

_PREFIX = "neutron-"
_ON_HOST = "-reference"
"""Behind a target: without NXP's converter, for this machine."""


class _Neutron(Backend):
    name = "neutron"
    delegate_id = "NeutronBackend"
    in_executorch = True
    title = "Neutron"
    example = "neutron-imxrt700"
    colours = ("#dcf3f0", "#0b8f7f")
    is_simulated = True
    schemes = ("int8",)
    computes = "in integers"
    extra = "neutron"
    purpose = "runs Neutron programs on this machine"
    modules = ("ai_edge_litert",)
    packages = ("ai-edge-litert",)

    def targets(self) -> Sequence[str]:
        described = [t.name for t in TARGETS.values() if t.macs is not None]
        return [
            *(f"{_PREFIX}{name}" for name in TARGETS),
            *(f"{_PREFIX}{name}{_ON_HOST}" for name in described),
        ]

    def target(self, name: str) -> str | None:
        """The converter may know more chips than the table: it is asked later."""
        chip = name.removeprefix(_PREFIX)
        may_be = name.startswith(_PREFIX) and bool(chip) and not chip.endswith(_ON_HOST)
        return name if may_be or name in self.targets() else None

    def missing(self, target: str) -> str:
        from edgewise.backends.neutron.lowering.converter import find_converter

        if target.endswith(_ON_HOST) or find_converter(None) is not None:
            return ""
        return f"NXP's converter is not installed; try {target}{_ON_HOST}"

    def partitioner(self, target: str) -> Partitioner:
        from edgewise.backends.neutron import NeutronPartitioner, generate_neutron_compile_spec
        from edgewise.backends.neutron.lowering.converter import required_converter

        chip, flavor = target.removeprefix(_PREFIX), None
        if chip.endswith(_ON_HOST):
            chip, flavor = chip.removesuffix(_ON_HOST), "reference"
        else:
            required_converter(
                flavor,
                f"backend='{target}{_ON_HOST}' (neutron_converter_flavor='reference')",
            )
        return NeutronPartitioner(
            generate_neutron_compile_spec(chip, neutron_converter_flavor=flavor)
        )

    def quantizer(self, target: str) -> Callable[[], TableQuantizer]:
        from functools import partial

        from edgewise.backends.neutron import NeutronQuantizer

        return partial(NeutronQuantizer, target.removeprefix(_PREFIX).removesuffix(_ON_HOST))

    def operators(self) -> Sequence[OperatorFacts]:
        from edgewise.backends.neutron.lowering.document import DOCUMENT

        return DOCUMENT.facts()

    def read_payload(self, payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
        from edgewise.backends.neutron.reading import read_payload

        return read_payload(payload, named)

    def runtime_factory(self) -> BackendFactory:
        from edgewise.backends.neutron.reference import load_delegate

        return load_delegate

    def tools(self) -> Tools:
        """NXP's packages, by name: asked without torch, which the backend imports."""
        named = [m.name for m in iter_modules() if m.name.startswith("neutron_converter_")]
        sdk = ["eiq_neutron_sdk"] if find_spec("eiq_neutron_sdk") else []
        advice = "programs for Neutron NPUs need NXP's converter, eiq_neutron_sdk, from NXP"
        return Tools("neutron_converters", [*sdk, *named], advice)


BACKEND: Backend = _Neutron()
