"""A program as plain dataclasses that mirror `schema/program.fbs`, field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.flatbuffer import (
    BOOL,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    Table,
    scalar,
    string,
    table,
    tables,
    union,
    vector,
)

IDENTIFIER = b"ET12"


@dataclass
class ContainerMetadata(Table):
    encoded_inp_str: str | None = string()
    encoded_out_str: str | None = string()


@dataclass
class Null(Table):
    pass


@dataclass
class AllocationDetails(Table):
    memory_id: int = scalar(UINT32)
    memory_offset_low: int = scalar(UINT32)
    memory_offset_high: int = scalar(UINT32)


@dataclass
class ExtraTensorInfo(Table):
    mutable_data_segments_idx: int = scalar(UINT64)
    fully_qualified_name: str | None = string()
    location: int = scalar(INT8)
    device_type: int = scalar(INT8)
    device_index: int = scalar(INT8)


@dataclass
class Tensor(Table):
    scalar_type: int = scalar(INT8)
    storage_offset: int = scalar(INT32)
    sizes: Any = vector(INT32)
    dim_order: Any = vector(UINT8)
    requires_grad: bool = scalar(BOOL, False)
    data_buffer_idx: int = scalar(UINT32)
    allocation_info: AllocationDetails | None = table(AllocationDetails)
    layout: int = scalar(INT8)
    shape_dynamism: int = scalar(INT8)
    extra_tensor_info: ExtraTensorInfo | None = table(ExtraTensorInfo)


@dataclass
class Int(Table):
    int_val: int = scalar(INT64)


@dataclass
class Bool(Table):
    bool_val: bool = scalar(BOOL, False)


@dataclass
class Double(Table):
    double_val: float = scalar(FLOAT64, 0.0)


@dataclass
class String(Table):
    string_val: str | None = string()


@dataclass
class IntList(Table):
    items: Any = vector(INT64)


@dataclass
class DoubleList(Table):
    items: Any = vector(FLOAT64)


@dataclass
class BoolList(Table):
    items: Any = vector(BOOL)


@dataclass
class TensorList(Table):
    items: Any = vector(INT32)


@dataclass
class OptionalTensorList(Table):
    items: Any = vector(INT32)


@dataclass
class EValue(Table):
    val: Any = union(
        Null,
        Int,
        Bool,
        Double,
        Tensor,
        String,
        IntList,
        DoubleList,
        BoolList,
        TensorList,
        OptionalTensorList,
    )


@dataclass
class Operator(Table):
    name: str | None = string()
    overload: str | None = string()


@dataclass
class KernelCall(Table):
    op_index: int = scalar(INT32)
    args: Any = vector(INT32)


@dataclass
class DelegateCall(Table):
    delegate_index: int = scalar(INT32)
    args: Any = vector(INT32)


@dataclass
class MoveCall(Table):
    move_from: int = scalar(INT32)
    move_to: int = scalar(INT32)


@dataclass
class JumpFalseCall(Table):
    cond_value_index: int = scalar(INT32)
    destination_instruction: int = scalar(INT32)


@dataclass
class FreeCall(Table):
    value_index: int = scalar(INT32)


@dataclass
class Instruction(Table):
    instr_args: Any = union(KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall)


@dataclass
class Frame(Table):
    filename: str | None = string()
    lineno: int = scalar(INT32)
    name: str | None = string()
    context: str | None = string()


@dataclass
class FrameList(Table):
    items: Any = tables(Frame)


@dataclass
class BackendDelegateDataReference(Table):
    location: int = scalar(INT8)
    index: int = scalar(UINT32)


@dataclass
class CompileSpec(Table):
    key: str | None = string()
    value: Any = vector(UINT8)


@dataclass
class BackendDelegate(Table):
    id: str | None = string()
    processed: BackendDelegateDataReference | None = table(BackendDelegateDataReference)
    compile_specs: Any = tables(CompileSpec)


@dataclass
class Chain(Table):
    inputs: Any = vector(INT32)
    outputs: Any = vector(INT32)
    instructions: Any = tables(Instruction)
    stacktrace: Any = tables(FrameList)


@dataclass
class NonConstBufferDevice(Table):
    buffer_idx: int = scalar(INT32)
    device_type: int = scalar(INT8)
    device_index: int = scalar(INT8)


@dataclass
class ExecutionPlan(Table):
    name: str | None = string()
    container_meta_type: ContainerMetadata | None = table(ContainerMetadata)
    values: Any = tables(EValue)
    inputs: Any = vector(INT32)
    outputs: Any = vector(INT32)
    chains: Any = tables(Chain)
    operators: Any = tables(Operator)
    delegates: Any = tables(BackendDelegate)
    non_const_buffer_sizes: Any = vector(INT64)
    non_const_buffer_device: Any = tables(NonConstBufferDevice)


@dataclass
class Buffer(Table):
    storage: Any = vector(UINT8, align=16)


@dataclass
class BackendDelegateInlineData(Table):
    data: Any = vector(UINT8, align=16)


@dataclass
class DataSegment(Table):
    offset: int = scalar(UINT64)
    size: int = scalar(UINT64)


@dataclass
class SubsegmentOffsets(Table):
    segment_index: int = scalar(UINT32)
    offsets: Any = vector(UINT64)


@dataclass
class NamedData(Table):
    key: str | None = string()
    segment_index: int = scalar(UINT32)


@dataclass
class Program(Table):
    version: int = scalar(UINT32)
    execution_plan: Any = tables(ExecutionPlan)
    constant_buffer: Any = tables(Buffer)
    backend_delegate_data: Any = tables(BackendDelegateInlineData)
    segments: Any = tables(DataSegment)
    constant_segment: SubsegmentOffsets | None = table(SubsegmentOffsets)
    mutable_data_segments: Any = tables(SubsegmentOffsets)
    named_data: Any = tables(NamedData)
