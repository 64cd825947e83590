"""XNNPACK, as `edgewise.registry` finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgewise.registry import Backend, OperatorFacts

if TYPE_CHECKING:
    from edgewise.inspect.delegate_graphs import DelegateGraph
    from edgewise.inspect.needs import Need
    from edgewise.inspect.payloads import Payload
    from edgewise.partition.spec import Partitioner
    from edgewise.quantize.quantizer import TableQuantizer


class _Xnnpack(Backend):
    name = "xnnpack"
    delegate_id = "XnnpackBackend"
    in_executorch = True
    title = "XNNPACK"
    colours = ("#e3ecfc", "#2f6fde")

    def partitioner(self, target: str) -> Partitioner:
        from edgewise.backends.xnnpack import XnnpackPartitioner

        return XnnpackPartitioner()

    def quantizer(self, target: str) -> Callable[[], TableQuantizer]:
        from edgewise.backends.xnnpack import XNNPACKQuantizer

        return XNNPACKQuantizer

    def operators(self) -> Sequence[OperatorFacts]:
        from edgewise.backends.xnnpack.lowering.document import DOCUMENT

        return DOCUMENT.facts()

    def read_payload(self, payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
        from edgewise.backends.xnnpack.reading import read_payload

        return read_payload(payload, named)

    def payload_graph(self, payload: bytes | memoryview) -> Payload:
        from edgewise.backends.xnnpack.reading import payload_graph

        return payload_graph(payload)

    def needs(self, payload: bytes | memoryview) -> Iterable[Need]:
        from edgewise.backends.xnnpack.needs import needs

        return needs(payload)


BACKEND: Backend = _Xnnpack()
