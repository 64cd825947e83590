"""The kinds of nodes in an XNNPACK payload, each declared once.

From this table follow the node tables of `payload`, the fields that `graph` writes, what the
builder and the passes know about a kind, and two files that `tools/generate_node_kinds.py`
writes: the node part of `schema/xnnpack_graph.fbs`, and `native/backends/xnnpack/node_kinds.inc`,
of which the runtime's reader, checks and builder are made.

The order is the wire format: a kind's number in the payload is its position. Append only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import cached_property


@dataclass(frozen=True)
class Layout:
    """A table of the schema, which several kinds may share.

    Fields are `name` (a uint) or `name:type`. Those that end in `_id` name values: results
    begin with `output`, all others are operands, in the order of `Node.inputs`.
    """

    name: str
    declared: str
    comment: str = ""
    open_sizes: tuple[str, ...] = ()
    """Fields with sizes, of which a symbolic one is written as 0."""

    @cached_property
    def fields(self) -> dict[str, str]:
        """Type by name, in the order of the wire format."""
        pairs = (field.partition(":") for field in self.declared.split())
        return {name: kind or "uint" for name, _, kind in pairs}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.fields if n.endswith("_id") and not n.startswith("output"))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.fields if n.endswith("_id") and n.startswith("output"))


class Types(Flag):
    """Element types that a node takes."""

    FLOAT32 = auto()
    FLOAT16 = auto()
    QUANTIZED = auto()
    """int8 and uint8 with a scale and a zero point for the tensor."""
    INT32 = auto()


class TypeRule(Enum):
    """How the types of a node's operands and result go together."""

    UNARY = "operand and result have one type; a conversion has two"
    BINARY = "both operands and the result have one type; scales within XNNPACK's limits"
    SAME = "all have one type"
    MOVED = "all have one type, scale and zero point: elements are moved"
    FILTERED = "input, filter, bias and result are one of the combinations with kernels"


class Bounds(Enum):
    """Whether a node can bound its result, as a clamp behind it would."""

    NEVER = "no"
    FLOATING = "yes, other than of int32"
    ALWAYS = "yes"


FLOATS = Types.FLOAT32 | Types.FLOAT16
NUMBERS = FLOATS | Types.QUANTIZED


@dataclass(frozen=True)
class NodeKind:
    """A kind of node."""

    name: str
    """In the payload's union, where it begins with XNN."""
    layout: Layout
    operator: str = ""
    """XNNPACK's enumerator, of unary and binary operators: `unary_abs`, `binary_add`."""
    rule: TypeRule = TypeRule.UNARY
    types: Types = NUMBERS
    inputs: int | None = None
    """How many of the layout's operands it has, if not all."""
    bounds: Bounds = Bounds.NEVER
    flags: tuple[str, ...] = ()
    """What it knows of XNNPACK's flags (XNN_FLAG_*)."""
    float16: bool = True
    """Whether XNNPACK computes it in float16 on any CPU."""
    integers: bool = False
    """Whether arithmetic between a dequantization and a quantization is done on integers."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        return self.layout.inputs[: self.inputs]

    @property
    def unused_fields(self) -> tuple[str, ...]:
        return () if self.inputs is None else self.layout.inputs[self.inputs :]


_PADDING = "padding_top padding_right padding_bottom padding_left "
_ONE = "input_id output_id flags"

ONE = Layout("_XNNNode1x1", _ONE)
TWO = Layout("_XNNNode2x1", "input1_id input2_id output_id flags")
CONCATENATION = Layout(
    "_XNNCat", "axis input1_id input2_id input3_id input4_id output_id flags input5_id"
)
FULLY_CONNECTED = Layout(
    "XNNFullyConnected",
    "input1_id filter_id bias_id output_id flags",
    "`bias_id` of 0xffffffff: no bias; so for convolutions.",
)
CONVOLUTION = Layout(
    "_XNNNodeConv",
    _PADDING + "kernel_height kernel_width subsampling_height subsampling_width dilation_height "
    "dilation_width group_input_channels group_output_channels groups adjustment_height "
    "adjustment_width input1_id filter_id bias_id output_id flags",
    "Depthwise: `groups` is the number of input channels, and group_output_channels /\n"
    "group_input_channels the number of output channels for each.\n"
    "In fp16 the filter and the bias are fp32 (ExecuTorch takes fp16 from 1.5 on, not of "
    "transposed\nconvolutions).",
)
POOLING = Layout(
    "_XNNPooling2D",
    _PADDING + "pooling_height pooling_width stride_height stride_width dilation_height "
    "dilation_width input_id output_id flags",
)
ARGMAX_POOLING = Layout(
    "XNNArgMaxPooling2d",
    _PADDING + "pooling_height pooling_width input_id output_value_id output_index_id flags",
    "The stride is the pooling size. The index is the position in the window, counted\n"
    "column by column, as int32.",
)
TRANSPOSE = Layout("XNNStaticTranspose", "num_dims perm:[uint] " + _ONE)
RESIZE = Layout("XNNStaticResizeBilinear2D", "new_height new_width " + _ONE)
PAD = Layout(
    "XNNStaticConstantPad",
    "pre_paddings:[uint] post_paddings:[uint] padding_value:float " + _ONE,
)
RESHAPE = Layout(
    "XNNStaticReshape",
    "num_dims new_shape:[uint] " + _ONE,
    "One size may be 0: it is what the number of elements leaves.",
    open_sizes=("new_shape",),
)
SLICE = Layout(
    "XNNStaticSlice",
    "num_dims offsets:[uint] sizes:[uint] " + _ONE,
    "A size of 0: the whole dimension.",
    open_sizes=("sizes",),
)
ATTENTION = Layout(
    "XNNScaledDotProductAttention",
    "query_id key_id value_id scale_id mask_id output_id flags",
)
LEAKY_RELU = Layout("XNNLeakyReLU", "negative_slope:float " + _ONE)
ELU = Layout("XNNELU", "alpha:float " + _ONE)


def _unary(
    name: str,
    operator: str,
    layout: Layout = ONE,
    *,
    integers: bool = True,
    float16: bool = True,
) -> NodeKind:
    return NodeKind(name, layout, f"unary_{operator}", integers=integers, float16=float16)


def _binary(
    name: str,
    operator: str,
    *,
    bounds: Bounds = Bounds.NEVER,
    types: Types = NUMBERS | Types.INT32,
    integers: bool = False,
) -> NodeKind:
    operator = f"binary_{operator}"
    return NodeKind(name, TWO, operator, TypeRule.BINARY, types, bounds=bounds, integers=integers)


def _filtered(name: str, layout: Layout, *flags: str) -> NodeKind:
    bounds = Bounds.ALWAYS
    return NodeKind(name, layout, rule=TypeRule.FILTERED, bounds=bounds, flags=flags)


def _moved(
    name: str,
    layout: Layout,
    *flags: str,
    inputs: int | None = None,
    types: Types = NUMBERS,
    bounds: Bounds = Bounds.NEVER,
) -> NodeKind:
    return NodeKind(
        name, layout, "", TypeRule.MOVED, types, inputs=inputs, bounds=bounds, flags=flags
    )


def _same(
    name: str,
    layout: Layout,
    *flags: str,
    types: Types = FLOATS,
    bounds: Bounds = Bounds.NEVER,
) -> NodeKind:
    return NodeKind(name, layout, "", TypeRule.SAME, types, bounds=bounds, flags=flags)


_SAME_PADDING = "TENSORFLOW_SAME_PADDING"

NODE_KINDS: tuple[NodeKind, ...] = (
    _binary("Add", "add", bounds=Bounds.FLOATING, integers=True),
    _filtered("FullyConnected", FULLY_CONNECTED, "TRANSPOSE_WEIGHTS", "TENSORFLOW_RESHAPE_2D"),
    _same("Softmax", ONE),
    _unary("Sigmoid", "sigmoid"),
    _moved("StaticTranspose", TRANSPOSE),
    _unary("Clamp", "clamp", integers=False),
    _filtered("Conv2d", CONVOLUTION, _SAME_PADDING),
    _binary("Div", "divide", bounds=Bounds.FLOATING),
    _moved("StaticResizeBilinear2D", RESIZE, "ALIGN_CORNERS", "TENSORFLOW_LEGACY_MODE"),
    _moved("StaticConstantPad", PAD),
    _same("AvgPooling2d", POOLING, _SAME_PADDING, bounds=Bounds.ALWAYS),
    _binary("Minimum", "minimum"),
    _filtered("DepthwiseConv2d", CONVOLUTION, _SAME_PADDING),
    _moved("MaxPooling2d", POOLING, _SAME_PADDING, bounds=Bounds.ALWAYS),
    _binary("Multiply", "multiply", bounds=Bounds.FLOATING, integers=True),
    _binary("Subtract", "subtract", bounds=Bounds.FLOATING, integers=True),
    _unary("Floor", "floor"),
    _unary("Convert", "convert", integers=False),
    _same("GlobalAvgPooling2d", ONE, "KEEP_DIMS", types=NUMBERS, bounds=Bounds.FLOATING),
    _moved("StaticReshape", RESHAPE, types=NUMBERS | Types.INT32),
    _same("ArgMaxPooling2d", ARGMAX_POOLING, types=Types.FLOAT32),
    _unary("SquareRoot", "square_root"),
    _unary("Ceiling", "ceiling"),
    _unary("Hardswish", "hardswish"),
    _unary("LeakyReLU", "leaky_relu", LEAKY_RELU),
    _binary("Maximum", "maximum"),
    _unary("Negate", "negate"),
    _unary("Square", "square"),
    _unary("ELU", "elu", ELU),
    _unary("Abs", "abs"),
    _binary("PReLU", "prelu", types=NUMBERS),
    _moved("Concatenate2", CONCATENATION, inputs=2),
    _moved("Concatenate3", CONCATENATION, inputs=3),
    _moved("Concatenate4", CONCATENATION, inputs=4),
    _moved("StaticSlice", SLICE),
    _same("ScaledDotProductAttention", ATTENTION),
    _same("BatchMatrixMultiply", TWO, "TRANSPOSE_B"),
    _moved("Concatenate5", CONCATENATION, inputs=5),
    _filtered("ConvTranspose2d", CONVOLUTION),
    _unary("ReciprocalSquareRoot", "reciprocal_square_root"),
    _unary("Log", "log", float16=False),
    _unary("Gelu", "gelu", float16=False),
    _unary("Tanh", "tanh"),
    _unary("Exp", "exp", float16=False),
    _unary("Sin", "sine", float16=False),
    _moved("Copy", ONE, types=NUMBERS | Types.INT32),
    _unary("Cos", "cosine", float16=False),
)

BY_NAME = {kind.name: kind for kind in NODE_KINDS}
NUMBERS_IN_PAYLOAD = {kind.name: number for number, kind in enumerate(NODE_KINDS, 1)}


UNARY_ON_INTEGERS = frozenset(
    kind.name for kind in NODE_KINDS if kind.rule == TypeRule.UNARY and kind.integers
)
"""Of one operand: XNNPACK computes them with a table of 256 integers."""
BINARY_ON_INTEGERS = frozenset(
    kind.name for kind in NODE_KINDS if kind.rule == TypeRule.BINARY and kind.integers
)
