"""Runs programs of the "reference" flavor on the host, in LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.backends.neutron.payload import ReferencePayload, read_reference

Array = NDArray[Any]


def load_delegate(
    payload: bytes, compile_specs: dict[str, bytes], named_data: Callable[[str], bytes]
) -> Callable[[list[Any]], Sequence[Any]]:
    """For `edgewise.runtime.register_backend`. ValueError if the payload is for the NPU or damaged;
    ImportError without the extra `neutron`."""
    del compile_specs, named_data
    return ReferenceProgram(read_reference(payload)).run


class ReferenceProgram:
    """A TFLite program with an interpreter. `run` takes the delegate's arguments."""

    def __init__(self, payload: ReferencePayload) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as missing:
            raise ImportError(
                "[NeutronBackend] programs of the flavor 'reference' run in LiteRT's kernels; got "
                "no module ai_edge_litert; try pip install 'edgewise[neutron]'"
            ) from missing
        self._payload = payload
        self._interpreter = Interpreter(
            model_content=payload.model,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        )
        self._interpreter.allocate_tensors()
        self._inputs = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()
        counts = (len(self._inputs), len(self._outputs))
        if counts != (len(payload.inputs), len(payload.outputs)):
            raise ValueError(
                f"[NeutronBackend] the payload must be whole; got flags for {len(payload.inputs)} "
                f"inputs and {len(payload.outputs)} outputs of {counts[0]} and {counts[1]}"
            )

    def run(self, arguments: list[Any]) -> list[Array]:
        """Arguments: the inputs, then (unused) the outputs, in PyTorch's order of dimensions."""
        for detail, moved, value in zip(
            self._inputs, self._payload.inputs, arguments, strict=False
        ):
            data = np.moveaxis(value, 1, -1) if moved else np.asarray(value)
            self._interpreter.set_tensor(detail["index"], np.ascontiguousarray(data))
        self._interpreter.invoke()
        results = []
        for detail, moved in zip(self._outputs, self._payload.outputs, strict=True):
            data = np.asarray(self._interpreter.get_tensor(detail["index"]))
            results.append(np.moveaxis(data, -1, 1) if moved else data)
        return results
