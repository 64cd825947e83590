"""What is known of a method before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgewise.runtime.errors import InvalidArgumentError

if TYPE_CHECKING:
    from edgewise.runtime import _native

__all__ = ["DelegateMeta", "MethodMeta", "TensorInfo"]

_DYNAMISMS = ("static", "bounded", "unbounded")


class TensorInfo:
    """A tensor that goes into or comes out of a method."""

    def __init__(self, info: _native.ValueInfo) -> None:
        self._info = info

    def sizes(self) -> tuple[int, ...]:
        """The shape; upper bounds where it is dynamic."""
        return tuple(self._info.sizes)

    def dtype(self) -> int:
        """The element type as the number that the file has for it (6 is float32)."""
        return self._info.scalar_type

    @property
    def dtype_name(self) -> str:
        """The element type by name: "float32", "int64", "bfloat16", ..."""
        return self._info.scalar_type_name

    def dim_order(self) -> tuple[int, ...]:
        """Dimensions from outermost to innermost in memory; (0, 2, 3, 1) is channels last."""
        return tuple(self._info.dim_order)

    @property
    def dynamism(self) -> str:
        """Whether the shape is "static", "bounded" by `sizes()`, or "unbounded"."""
        return _DYNAMISMS[self._info.dynamism]

    def is_memory_planned(self) -> bool:
        """Whether the program brings the memory for it, which is so up to unbounded shapes."""
        return self.dynamism != "unbounded"

    def nbytes(self) -> int:
        """Bytes of all elements, at the upper bound of a dynamic shape."""
        return self._info.nbytes

    def __repr__(self) -> str:
        sizes = list(self._info.sizes)
        return f"TensorInfo(sizes={sizes}, dtype={self.dtype_name}, nbytes={self.nbytes()})"


@dataclass(frozen=True)
class DelegateMeta:
    """A part of a method that a backend runs."""

    backend: str
    payload_bytes: int


class MethodMeta:
    """A method's inputs and outputs, and what running it takes."""

    def __init__(self, info: _native.MethodInfo) -> None:
        self._info = info
        self._inputs = tuple(info.inputs)
        self._outputs = tuple(info.outputs)

    def name(self) -> str:
        return self._info.name

    def num_inputs(self) -> int:
        """Inputs of all kinds: tensors, numbers and None."""
        return len(self._inputs)

    def num_outputs(self) -> int:
        return len(self._outputs)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """Raises IndexError out of range, InvalidArgumentError for what is no tensor."""
        return self._tensor("input", self._inputs, index)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """Raises IndexError out of range, InvalidArgumentError for what is no tensor."""
        return self._tensor("output", self._outputs, index)

    @property
    def attributes(self) -> Mapping[str, TensorInfo]:
        """Mutable buffers, by name, of programs lowered with `emit_mutable_buffer_names`."""
        return {name: TensorInfo(info) for name, info in self._info.attributes.items()}

    @property
    def input_kinds(self) -> tuple[str, ...]:
        """For each input "Tensor", "int", "float", "bool", "str" or "None"."""
        return tuple(value.kind for value in self._inputs)

    @property
    def output_kinds(self) -> tuple[str, ...]:
        """As `input_kinds`, for the outputs."""
        return tuple(value.kind for value in self._outputs)

    @property
    def delegates(self) -> tuple[DelegateMeta, ...]:
        return tuple(DelegateMeta(d.backend, d.payload_bytes) for d in self._info.delegates)

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators that the runtime computes itself: "aten::add.out", ..."""
        return tuple(self._info.operators)

    @property
    def planned_memory(self) -> tuple[int, ...]:
        """Bytes of each arena for inputs, outputs and what is between them."""
        return tuple(self._info.planned_memory)

    @property
    def instruction_count(self) -> int:
        return self._info.instruction_count

    @property
    def input_spec(self) -> str:
        """The structure of the inputs, a pytree in torch's JSON form; may be empty."""
        return self._info.input_spec

    @property
    def output_spec(self) -> str:
        """The structure of the outputs, as `input_spec`."""
        return self._info.output_spec

    def _tensor(self, role: str, values: tuple[_native.ValueInfo, ...], index: int) -> TensorInfo:
        if not 0 <= index < len(values):
            raise IndexError(
                f"[metadata] method '{self.name()}' has {len(values)} {role}s; got index {index}"
            )
        value = values[index]
        if value.kind != "Tensor":
            raise InvalidArgumentError(
                f"[metadata] {role} {index} of method '{self.name()}' must be a tensor to have "
                f"a TensorInfo; got {value.kind}; try {role}_kinds"
            )
        return TensorInfo(value)

    def __repr__(self) -> str:
        def show(values: tuple[_native.ValueInfo, ...]) -> str:
            return ", ".join(
                f"{v.scalar_type_name}{list(v.sizes)}" if v.kind == "Tensor" else v.kind
                for v in values
            )

        return (
            f"MethodMeta(name='{self.name()}', inputs=[{show(self._inputs)}], "
            f"outputs=[{show(self._outputs)}])"
        )
