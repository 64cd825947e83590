"""Convolutions of images, and of sequences as images of one row; linear layers; products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import (
    Args,
    Ask,
    Constraint,
    Lowering,
    Refused,
    define,
    integer_weight,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored, Sums
from edgewise.edge.graph import fake, shape_of
from edgewise.edge.integer_biases import in_coarser_steps, least_scales
from edgewise.edge.orders import NHWC, identity
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.partition.constraints import constant, rank
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import BINARY, Weighted, convolutions

aten = torch.ops.aten


def weight_and_bias(
    to: Lowering, weight: Node, bias: Node | None, x: Stored, count: int
) -> tuple[torch.Tensor, np.ndarray[Any, Any], torch.Tensor]:
    """The weight's integers, the bias in steps of the sums, and these steps (float64), for each
    output channel."""
    found = to.constants.integers(weight)
    assert found is not None
    if bias is None:
        return found.data, np.zeros(count, np.int64), x.quant.scale * found.scales
    real = to.constants.tensor(bias).double().reshape(-1).expand(count)
    bits = 32 if x.tensor.dtype == INT8 else 40
    least = least_scales(real, x.quant.scale, bits)
    data, scales = in_coarser_steps(found.data, found.scales, found.axis, least)
    steps = x.quant.scale * scales
    if len(steps) not in (1, count):  # the channels of all groups have the same scales
        real = real.reshape(-1, len(steps))
    return data, (real / steps).round().reshape(-1).numpy().astype(np.int64), steps


def _convolution(to: Lowering, node: Node, args: Args) -> Real:
    x, shape = to.stored(args["input"]), [int(s) for s in shape_of(node)]
    groups, transposed = int(args["groups"]), bool(args["transposed"])
    shape_of_weight = fake(args["weight"]).shape
    outputs = int(shape_of_weight[1] * groups if transposed else shape_of_weight[0])
    weight, bias, steps = weight_and_bias(to, args["weight"], args["bias"], x, outputs)
    settings = {k: list(args[k]) for k in ("stride", "padding", "dilation", "output_padding")}
    if weight.dim() == 3:
        one = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        settings = {k: [one[k], *v] for k, v in settings.items()}
        weight = weight.unsqueeze(2)
        n, c, length = x.shape
        x = Stored(_row(to, x.tensor, (n, c, 1, length)), x.quant)
    sizes = [1, 1, *shape[2:]][-2:]
    if not transposed and groups > 1 and weight.shape[1] == 1 and groups == x.shape[1]:
        parts: list[Real] = [_depthwise(to, x, weight, bias, steps, settings)]
    else:
        parts = []
        per, out = x.shape[1] // groups, outputs // groups
        for g in range(groups):
            image = to.b.slice(x.tensor, {1: g * per}, {1: per})
            mine = slice(g * out, (g + 1) * out)
            if transposed:
                filters = weight[g * per : (g + 1) * per].permute(1, 2, 3, 0)
            else:
                filters = weight[mine].permute(0, 2, 3, 1)
            own = steps if len(steps) == 1 or (transposed and groups > 1) else steps[mine]
            parts.append(
                _image(
                    to,
                    Stored(image, x.quant),
                    filters,
                    bias[mine],
                    own,
                    settings,
                    sizes if transposed else None,
                )
            )
    result = parts[0]
    if len(parts) > 1:
        whole = (shape[0], outputs, *sizes)
        result = Combined(tuple(parts), whole, lambda ts, quant: to.b.concat(ts, 1))
    if len(shape) == 3:
        result = Combined((result,), tuple(shape), lambda ts, quant: _row(to, ts[0], shape))
    return result


def _row(to: Lowering, t: Tensor, shape: Sequence[int]) -> Tensor:
    """[N, C, L] <-> [N, C, 1, L]: images lie with their channels last."""
    if t.rank == 4:
        t = to.b.in_order(t, NHWC)
        dims = [t.dims[0], t.dims[2], t.dims[3]]
        return to.b.reshaped_to(t, dims, (0, 2, 1))
    t = to.b.in_order(t, (0, 2, 1))
    dims = [t.dims[0], 1, t.dims[1], t.dims[2]]
    return to.b.reshaped_to(t, dims, NHWC)


def _array(weight: torch.Tensor) -> Any:
    return weight.contiguous().numpy()


def _depthwise(
    to: Lowering,
    x: Stored,
    weight: torch.Tensor,
    bias: Any,
    steps: torch.Tensor,
    settings: dict[str, list[int]],
) -> Sums:
    channels = x.shape[1]
    # [C * M, 1, kh, kw] -> [kh, kw, C, M]
    split = weight.reshape(channels, -1, *weight.shape[2:]).permute(2, 3, 0, 1)
    return _sums(to, x, _array(split), bias, steps, settings, depthwise=True)


def _image(
    to: Lowering,
    x: Stored,
    filters: torch.Tensor,
    bias: Any,
    steps: torch.Tensor,
    settings: dict[str, list[int]],
    transposed_to: Sequence[int] | None,
) -> Sums:
    if transposed_to is None:
        return _sums(to, x, _array(filters), bias, steps, settings)
    stride, padding = settings["stride"], settings["padding"]
    sizes, behind, around = list(transposed_to), [0, 0], []
    for i in range(2):
        size, k = x.shape[2 + i], filters.shape[1 + i]
        if sizes[i] == 1 < size and stride[i] > 1:
            sizes[i] = 2  # of a single row Vela forgets the stride
        after = sizes[i] - (size - 1) * stride[i] - k + padding[i]
        # What no element reaches, weights of 0 do: Vela takes it for what another group wrote.
        behind[i] = max(after, 0)
        around += [-padding[i], min(after, 0)]
    filters = torch.nn.functional.pad(filters, (0, 0, 0, behind[1], 0, behind[0]))
    made = to.b.transpose_conv2d(
        x.tensor,
        _array(filters),
        bias,
        x.quant.zero_point,
        stride=(stride[0], stride[1]),
        pad=tuple(around),  # type: ignore[arg-type]
        sizes=(sizes[0], sizes[1]),
    )
    made = to.b.slice(made, {}, {2 + i: transposed_to[i] for i in range(2)})
    return Sums(made, tuple(steps.tolist()))


def _sums(
    to: Lowering,
    x: Stored,
    weight: Any,
    bias: Any,
    steps: torch.Tensor,
    settings: dict[str, list[int]],
    depthwise: bool = False,
) -> Sums:
    stride, pad, dilation = (settings[k] for k in ("stride", "padding", "dilation"))
    made = to.b.conv2d(
        x.tensor,
        weight,
        bias,
        x.quant.zero_point,
        stride=(stride[0], stride[1]),
        pad=(pad[0], pad[0], pad[1], pad[1]),
        dilation=(dilation[0], dilation[1]),
        depthwise=depthwise,
    )
    return Sums(made, tuple(steps.tolist()))


def _planar(q: Ask) -> str | None:
    found = len(q.args["stride"])
    return None if found in (1, 2) else f"{found}-D"


def _no_dilated_transpose(q: Ask) -> str | None:
    if q.args["transposed"] and any(d != 1 for d in q.args["dilation"]):
        return f"dilation={q.args['dilation']}"
    return None


def _small_steps(q: Ask) -> str | None:
    stride, x = q.args["stride"], fake(q.args["input"])
    if q.target.family == "U85" or max(stride) <= (2 if q.args["transposed"] else 3):
        return None
    depthwise = q.args["groups"] > 1 and q.args["groups"] == x.shape[1]
    return f"stride={stride}" if depthwise or q.args["transposed"] else None


def _even_steps(q: Ask) -> str | None:
    """Rows are left out by another number than columns only of images of one row."""
    stride, x = q.args["stride"], fake(q.args["input"])
    if q.target.family == "U85" or not q.args["transposed"] or len(set(stride)) == 1:
        return None
    rows = (int(x.shape[2]), int(fake(q.args["weight"]).shape[2]))
    return None if rows == (1, 1) else f"stride={stride} with {rows[0]} and {rows[1]} rows"


def _transposed_in_16(q: Ask) -> str | None:
    source = q.args["input"]
    if not q.args["transposed"] or q.target.family == "U85" or not is_dequantize(source):
        return None
    return "int16" if Quant.of(source).dtype == torch.int16 else None


def _output_axis(q: Ask) -> str | None:
    transposed = bool(q.args["transposed"])
    node = q.args["weight"]
    found = q.constants.integers(node) if node in q.constants else None
    if found is None or found.axis is None:
        return None
    if found.axis != (1 if transposed else 0):
        return f"scales along dimension {found.axis}"
    return f"{q.args['groups']} groups" if transposed and q.args["groups"] > 1 else None


define(
    "conv2d",
    (aten.convolution.default,),
    _convolution,
    (
        rank("input", 3, 4),
        Constraint("1-D or 2-D convolution", _planar),
        integer_weight("weight", 0, 1),
        constant("bias"),
        Constraint("transposed convolution without dilation", _no_dilated_transpose),
        Constraint(
            "strides up to 3 if depthwise, up to 2 if transposed, except on U85", _small_steps
        ),
        Constraint(
            "equal strides if transposed, or one row in image and filter, except on U85",
            _even_steps,
        ),
        Constraint("a transposed convolution in 8 bits, except on U85", _transposed_in_16),
        Constraint("scales by output channel (one for all if transposed in groups)", _output_axis),
    ),
    also="1-D: as an image of one row; groups: one after the other",
    quantization=convolutions(),
)


def _linear(to: Lowering, node: Node, args: Args) -> Real:
    return _fully(to, node, args["input"], args["weight"], args["bias"])


def _fully(
    to: Lowering, node: Node, input: Node, weight: Node, bias: Node | None, flip: bool = False
) -> Real:
    """A linear layer is a convolution of an image of one column, a row for each vector."""
    x, shape = to.stored(input), tuple(int(s) for s in shape_of(node))
    data, steps_of, steps = weight_and_bias(to, weight, bias, x, shape[-1])
    data = data.t() if flip else data
    outputs, inputs = data.shape
    t = to.b.in_order(x.tensor, identity(x.tensor.rank))
    dims = [1, t_rows(x.shape), 1, inputs]
    if t.dims != tuple(dims):
        t = to.b.reshaped_to(t, dims, NHWC)
    else:
        t = Tensor(t.name, t.dims, t.dtype, NHWC)
    made = to.b.conv2d(t, _array(data.reshape(outputs, 1, 1, inputs)), steps_of, x.quant.zero_point)
    sums = Sums(made, tuple(steps.tolist()))

    def unfold(ts: Sequence[Tensor], quant: Any) -> Tensor:
        return to.b.reshaped_to(ts[0], shape, identity(len(shape)))

    return Combined((sums,), shape, unfold)


def t_rows(shape: Sequence[int]) -> int:
    """How many vectors a tensor has along its last dimension."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows


define(
    "linear",
    (aten.linear.default,),
    _linear,
    (integer_weight("weight", 0), constant("bias")),
    keep=True,
    also="a convolution of 1 x 1",
    quantization=Weighted(),
)


def _addmm(to: Lowering, node: Node, args: Args) -> Real:
    return _fully(to, node, args["mat1"], args["mat2"], args["self"], flip=True)


def _plain_sum(q: Ask) -> str | None:
    alpha, beta = q.args["alpha"], q.args["beta"]
    return None if alpha == beta == 1 else f"alpha={alpha}, beta={beta}"


def _is_vector(q: Ask) -> str | None:
    bias = q.args["self"]
    width = int(shape_of(q.node)[1])
    return None if fake(bias).numel() in (1, width) else str(list(fake(bias).shape))


define(
    "addmm",
    (aten.addmm.default,),
    _addmm,
    (
        integer_weight("mat2", 1),
        constant("self"),
        Constraint("alpha=beta=1", _plain_sum),
        Constraint("a bias of one row", _is_vector),
    ),
    also="as linear",
)


def _product(to: Lowering, node: Node, args: Args) -> Real:
    a, b = args["self"], args["mat2" if "mat2" in args else "other"]
    if b in to.constants and fake(b).dim() == 2 and to.constants.integers(b) is not None:
        return _fully(to, node, a, b, None, flip=True)
    x, y = to.stored(a), to.stored(b)
    kinds = x.quant.type, y.quant.type
    allowed = {INT8, INT16} if to.family == "U85" else {INT8}
    if kinds[0] != kinds[1] or kinds[0] not in allowed:
        rule = "both computed matrices of 8 bits, or of 16 on U85"
        raise Refused(Refusal(rule, f"{kinds[0]} and {kinds[1]}"))
    shape = tuple(int(s) for s in shape_of(node))
    batch = t_rows(shape[:-1])
    left = _batched(to, x, (batch, *x.shape[-2:]))
    right = _batched(to, y, (batch, *y.shape[-2:]))
    made = to.b.matmul(left, right, x.quant.zero_point, y.quant.zero_point)
    sums = Sums(made, (x.quant.scale * y.quant.scale,))
    return Combined((sums,), shape, lambda ts, quant: to.b.reshape(ts[0], shape))


def _batched(to: Lowering, x: Stored, shape: Sequence[int]) -> Tensor:
    return to.b.reshape(x.tensor, shape)


def _alike(q: Ask) -> str | None:
    """Operands of equal types; of one batch."""
    a, b = q.args["self"], q.args["mat2" if "mat2" in q.args else "other"]
    if b in q.constants and fake(b).dim() == 2:
        return integer_weight("_", 1).check(Ask(q.node, {"_": b}, q.constants, q.target))
    shapes = [tuple(fake(n).shape) for n in (a, b)]
    if any(len(s) < 2 for s in shapes):
        return "a vector"
    return None if shapes[0][:-2] == shapes[1][:-2] else f"batches {shapes[0]} and {shapes[1]}"


define(
    "matmul",
    (aten.mm.default, aten.bmm.default, aten.matmul.default),
    _product,
    (Constraint("matrices of one batch; a constant one of symmetric int8", _alike),),
    also="MATMUL, of 16 bits on U85; with a constant matrix as linear",
    quantization=BINARY,
)
