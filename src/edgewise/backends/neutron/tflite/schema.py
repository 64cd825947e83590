"""The tables of a TFLite file (identifier TFL3, version 3), as far as they are used here.

Source: the schema of TensorFlow Lite / LiteRT. Fields stand in its order up to the last one that
is used; what follows takes its default.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from edgewise.flatbuffer import (
    BOOL,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    Table,
    scalar,
    string,
    table,
    tables,
    union,
    vector,
)

IDENTIFIER = b"TFL3"
VERSION = 3
BUFFER_ALIGNMENT = 16


class TensorType(enum.IntEnum):
    """Data types of tensors."""

    FLOAT32 = 0
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    BOOL = 6
    INT16 = 7
    INT8 = 9


class BuiltinOperator(enum.IntEnum):
    """Operators, by the number that an operator code holds."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    FULLY_CONNECTED = 9
    LOGISTIC = 14
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU_N1_TO_1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    SOFTMAX = 25
    TANH = 28
    CUSTOM = 32
    PAD = 34
    TRANSPOSE = 39
    MEAN = 40
    SUB = 41
    EXP = 47
    PRELU = 54
    MAXIMUM = 55
    MINIMUM = 57
    PADV2 = 60
    SLICE = 65
    TRANSPOSE_CONV = 67
    LOG = 73
    SUM = 74
    RSQRT = 76
    REDUCE_MAX = 82
    REDUCE_MIN = 89
    RESIZE_NEAREST_NEIGHBOR = 97
    LEAKY_RELU = 98
    MIRROR_PAD = 100
    ABS = 101
    QUANTIZE = 114
    HARD_SWISH = 117
    BATCH_MATMUL = 126
    RELU_0_TO_1 = 152


class Padding(enum.IntEnum):
    """How much a window is padded."""

    SAME = 0
    VALID = 1


class Activation(enum.IntEnum):
    """Clamps that an operator applies to its result."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3


@dataclass
class QuantizationParameters(Table):
    """real = scale * (stored - zero_point), for a tensor or each index of a dimension."""

    min: Any = vector(FLOAT32)
    max: Any = vector(FLOAT32)
    scale: Any = vector(FLOAT32)
    zero_point: Any = vector(INT64)
    details_type: int = scalar(UINT8)
    details: Any = table(Table)
    quantized_dimension: int = scalar(INT32)


@dataclass
class Tensor(Table):
    """A value: an input, a constant (a buffer that is not empty) or a result."""

    shape: Any = vector(INT32)
    type: int = scalar(INT8)
    buffer: int = scalar(UINT32)
    name: Any = string()
    quantization: Any = table(QuantizationParameters)


@dataclass
class Conv2DOptions(Table):
    """CONV_2D."""

    padding: int = scalar(INT8)
    stride_w: int = scalar(INT32)
    stride_h: int = scalar(INT32)
    fused_activation_function: int = scalar(INT8)
    dilation_w_factor: int = scalar(INT32, 1)
    dilation_h_factor: int = scalar(INT32, 1)


@dataclass
class DepthwiseConv2DOptions(Table):
    """DEPTHWISE_CONV_2D."""

    padding: int = scalar(INT8)
    stride_w: int = scalar(INT32)
    stride_h: int = scalar(INT32)
    depth_multiplier: int = scalar(INT32)
    fused_activation_function: int = scalar(INT8)
    dilation_w_factor: int = scalar(INT32, 1)
    dilation_h_factor: int = scalar(INT32, 1)


@dataclass
class Pool2DOptions(Table):
    """AVERAGE_POOL_2D and MAX_POOL_2D."""

    padding: int = scalar(INT8)
    stride_w: int = scalar(INT32)
    stride_h: int = scalar(INT32)
    filter_width: int = scalar(INT32)
    filter_height: int = scalar(INT32)
    fused_activation_function: int = scalar(INT8)


@dataclass
class FullyConnectedOptions(Table):
    """FULLY_CONNECTED."""

    fused_activation_function: int = scalar(INT8)
    weights_format: int = scalar(INT8)
    keep_num_dims: bool = scalar(BOOL, False)


@dataclass
class SoftmaxOptions(Table):
    """SOFTMAX."""

    beta: float = scalar(FLOAT32, 0.0)


@dataclass
class ConcatenationOptions(Table):
    """CONCATENATION."""

    axis: int = scalar(INT32)
    fused_activation_function: int = scalar(INT8)


@dataclass
class AddOptions(Table):
    """ADD."""

    fused_activation_function: int = scalar(INT8)
    pot_scale_int16: bool = scalar(BOOL, True)


@dataclass
class SubOptions(Table):
    """SUB."""

    fused_activation_function: int = scalar(INT8)
    pot_scale_int16: bool = scalar(BOOL, True)


@dataclass
class MulOptions(Table):
    """MUL."""

    fused_activation_function: int = scalar(INT8)


@dataclass
class ReshapeOptions(Table):
    """RESHAPE."""

    new_shape: Any = vector(INT32)


@dataclass
class ResizeBilinearOptions(Table):
    """RESIZE_BILINEAR; two fields are no longer used."""

    new_height: int = scalar(INT32)
    new_width: int = scalar(INT32)
    align_corners: bool = scalar(BOOL, False)
    half_pixel_centers: bool = scalar(BOOL, False)


@dataclass
class ResizeNearestNeighborOptions(Table):
    """RESIZE_NEAREST_NEIGHBOR."""

    align_corners: bool = scalar(BOOL, False)
    half_pixel_centers: bool = scalar(BOOL, False)


@dataclass
class ReducerOptions(Table):
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN."""

    keep_dims: bool = scalar(BOOL, False)


@dataclass
class TransposeConvOptions(Table):
    """TRANSPOSE_CONV."""

    padding: int = scalar(INT8)
    stride_w: int = scalar(INT32)
    stride_h: int = scalar(INT32)


@dataclass
class LeakyReluOptions(Table):
    """LEAKY_RELU."""

    alpha: float = scalar(FLOAT32, 0.0)


@dataclass
class BatchMatMulOptions(Table):
    """BATCH_MATMUL."""

    adj_x: bool = scalar(BOOL, False)
    adj_y: bool = scalar(BOOL, False)


@dataclass
class MirrorPadOptions(Table):
    """MIRROR_PAD. mode: 0 without the border's elements (REFLECT), 1 with them (SYMMETRIC)."""

    mode: int = scalar(UINT8)


@dataclass
class HardSwishOptions(Table):
    """HARD_SWISH."""


@dataclass
class NoOptions(Table):
    """An operator whose options are an empty table."""


OPTIONS: dict[int, type[Table]] = {
    1: Conv2DOptions,
    2: DepthwiseConv2DOptions,
    5: Pool2DOptions,
    8: FullyConnectedOptions,
    9: SoftmaxOptions,
    10: ConcatenationOptions,
    11: AddOptions,
    15: ResizeBilinearOptions,
    17: ReshapeOptions,
    21: MulOptions,
    27: ReducerOptions,
    28: SubOptions,
    49: TransposeConvOptions,
    74: ResizeNearestNeighborOptions,
    75: LeakyReluOptions,
    77: MirrorPadOptions,
    91: HardSwishOptions,
    101: BatchMatMulOptions,
}
"""Tables of options, by their number in the union BuiltinOptions."""

OPTIONS_NUMBER = {kind: number for number, kind in OPTIONS.items()}


@dataclass
class Operator(Table):
    """A step: `opcode_index` points to the model's operator codes."""

    opcode_index: int = scalar(UINT32)
    inputs: Any = vector(INT32)
    outputs: Any = vector(INT32)
    builtin_options: Any = union(
        *(OPTIONS.get(number, NoOptions) for number in range(1, max(OPTIONS) + 1))
    )


@dataclass
class SubGraph(Table):
    """The program: its operators in order."""

    tensors: Any = tables(Tensor)
    inputs: Any = vector(INT32)
    outputs: Any = vector(INT32)
    operators: Any = tables(Operator)
    name: Any = string()


@dataclass
class Buffer(Table):
    """Contents of a constant."""

    data: Any = vector(UINT8, align=BUFFER_ALIGNMENT)


@dataclass
class OperatorCode(Table):
    """Which operator: a number, or a name for CUSTOM."""

    deprecated_builtin_code: int = scalar(INT8)
    custom_code: Any = string()
    version: int = scalar(INT32, 1)
    builtin_code: int = scalar(INT32)


@dataclass
class Model(Table):
    """A file."""

    version: int = scalar(UINT32)
    operator_codes: Any = tables(OperatorCode)
    subgraphs: Any = tables(SubGraph)
    description: Any = string()
    buffers: Any = tables(Buffer)
