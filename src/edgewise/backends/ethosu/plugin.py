"""Arm's Ethos-U, as `edgewise.registry` finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from edgewise.backends.ethosu.targets import TARGETS
from edgewise.registry import Backend, BackendFactory, OperatorFacts

if TYPE_CHECKING:
    from edgewise.inspect.delegate_graphs import DelegateGraph
    from edgewise.partition.spec import Partitioner
    from edgewise.quantize.quantizer import TableQuantizer


class _EthosU(Backend):
    name = "ethos-u"
    delegate_id = "EthosUBackend"
    in_executorch = True
    title = "Ethos-U"
    example = "ethos-u55-128"
    colours = ("#efe6fb", "#8a4fd3")
    is_simulated = True
    schemes = ("int8",)
    computes = "in integers"
    extra = "ethosu"
    purpose = "compiles for Arm's Ethos-U"
    modules = ("ethosu", "tosa", "tosa_serializer")
    packages = ("ethos-u-vela", "tosa-tools")
    options = ("system_config", "memory_mode")

    def __init__(self, sections: Mapping[str, str] | None = None) -> None:
        self._sections = dict(sections or {})

    def configured(self, options: Mapping[str, str]) -> Backend:
        """options: names of sections of Vela's configuration file."""
        return _EthosU(options)

    def targets(self) -> Sequence[str]:
        return list(TARGETS)

    def target(self, name: str) -> str | None:
        return name.lower() if name.lower() in TARGETS else None

    def missing(self, target: str) -> str:
        from edgewise.backends.ethosu.lowering.extra import vela_folder

        there = vela_folder() is not None
        return "" if there else "Vela is not installed; try pip install 'edgewise[ethosu]'"

    def partitioner(self, target: str) -> Partitioner:
        from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner

        return EthosUPartitioner(EthosUCompileSpec(target, **self._sections))

    def quantizer(self, target: str) -> Callable[[], TableQuantizer]:
        from edgewise.backends.ethosu import EthosUCompileSpec, EthosUQuantizer

        return partial(EthosUQuantizer, EthosUCompileSpec(target, **self._sections))

    def operators(self) -> Sequence[OperatorFacts]:
        from edgewise.backends.ethosu.lowering.document import DOCUMENT

        return DOCUMENT.facts()

    def read_payload(self, payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
        from edgewise.backends.ethosu.reading import read_payload

        return read_payload(payload, named)

    def timeline(self, payload: memoryview) -> Mapping[str, Any]:
        from edgewise.backends.ethosu.page_timeline import page_timeline

        return page_timeline(payload)

    def runtime_factory(self) -> BackendFactory:
        from edgewise.backends.ethosu.simulator.backend import load_delegate

        return load_delegate

    def preload(self) -> None:
        import edgewise.backends.ethosu.lowering.partitioner  # noqa: F401


BACKEND: Backend = _EthosU()
