"""Composite operators as functions of smaller ones, for `edgewise.quantize.decompose`.

Where torch's own decomposition would be computed worse in integers (a volume's convolution as one
sum instead of a sum of sums, a window's maximum without its indices), or has steps that quantizers
do not know. The arguments are those of the ATen operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import with_twins
from edgewise.quantize.decompose import Decomposition
from edgewise.quantize.patterns import is_float, made_of_weights
from edgewise.quantize.steps import attribute, constant, replace_calls, step

aten = torch.ops.aten
Tensor = torch.Tensor

MOST_PIECES = 64
"""Slices, or copies, that one call may become."""
MOST_WEIGHTS = 2**20
"""Of a matrix that stands for what a call chooses or weighs along one dimension: more, as for sound
of seconds, would be larger than models."""


def _three(value: Any) -> list[int]:
    found = [int(v) for v in value] if isinstance(value, Sequence) else [int(value)]
    return found * 3 if len(found) == 1 else found


def _conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Each slice of the result is a convolution of images, the depth's elements as channels."""
    if x.dim() != 5:
        return NotImplemented
    steps, gaps, kernel = _three(stride), _three(dilation), weight.shape[2:]
    if isinstance(padding, str):
        around = [
            gap * (k - 1) if padding == "same" else 0 for gap, k in zip(gaps, kernel, strict=True)
        ]
        pads = [(total // 2, total - total // 2) for total in around]
    else:
        pads = [(p, p) for p in _three(padding)]
    symmetric = all(before == after for before, after in pads[1:])
    flat = [p for pair in (pads[:1] if symmetric else pads)[::-1] for p in pair]
    if any(flat):
        x = F.pad(x, [0, 0, 0, 0, *flat] if symmetric else flat)
    batch, channels, depth, height, width = x.shape
    reach = gaps[0] * (kernel[0] - 1) + 1
    starts = range(0, depth - reach + 1, steps[0])
    if len(starts) > MOST_PIECES:
        return NotImplemented
    windows = [
        x[:, :, start : start + reach : gaps[0]].reshape(batch, channels * kernel[0], height, width)
        for start in starts
    ]
    images = windows[0] if len(windows) == 1 else torch.cat(windows)
    flattened = weight.reshape(weight.shape[0], -1, kernel[1], kernel[2])
    sides = [pads[1][0], pads[2][0]] if symmetric else [0, 0]
    y = F.conv2d(images, flattened, bias, steps[1:], sides, gaps[1:], groups)
    y = y.reshape(len(windows), batch, *y.shape[1:])
    return y.permute(1, 2, 0, 3, 4)


def _conv3d_padding(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return _conv3d(x, weight, bias, stride, padding, dilation, groups)


def _conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Layers of the result that are the depth's stride apart are sums of transposed convolutions of
    images, one for each element of the kernel that they have in common."""
    steps, pads, beyond, gaps = map(_three, (stride, padding, output_padding, dilation))
    taps = depth_taps(weight.shape[2], steps[0])
    if x.dim() != 5 or gaps[0] != 1 or not all(taps) or beyond[0] > pads[0]:
        return NotImplemented
    most = len(taps[0]) - 1
    batch, channels, depth, height, width = x.shape
    count = depth + most
    if most:
        x = F.pad(x, [0, 0, 0, 0, most, most])
    phases = []
    for of in taps:
        y: Any = None
        for shift, tap in enumerate(of):
            layers = x[:, :, most - shift : most - shift + count].transpose(1, 2)
            part = F.conv_transpose2d(
                layers.reshape(batch * count, channels, height, width),
                weight[:, :, tap],
                bias if y is None else None,
                steps[1:],
                pads[1:],
                beyond[1:],
                groups,
                gaps[1:],
            )
            y = part if y is None else y + part
        phases.append(y.unsqueeze(1))
    joined = phases[0] if len(phases) == 1 else torch.cat(phases, 1)
    y = joined.reshape(batch, count * steps[0], *joined.shape[2:])
    after = (depth - 1) * steps[0] - 2 * pads[0] + weight.shape[2] + beyond[0]
    return y[:, pads[0] : pads[0] + after].transpose(1, 2)


def depth_taps(kernel: int, stride: int) -> list[list[int]]:
    """By layer of a transposed convolution's result modulo the stride, the elements of the kernel
    that reach it: from the layer of the same number on, each of one layer before."""
    return [list(range(first, kernel, stride)) for first in range(stride)]


def _in_two(pool: Any, x: Tensor, kernel: list[int], stride: list[int], around: list[int]) -> Any:
    """Pooling of volumes: of their images, then of their depths. `pool`: of images."""
    if x.dim() != 5:
        return NotImplemented
    batch, channels, depth, height, width = x.shape
    y = pool(x.reshape(batch, channels * depth, height, width), kernel[1:], stride[1:], around[1:])
    height, width = y.shape[2:]
    y = y.reshape(batch, channels, depth, height * width)
    y = pool(y, [kernel[0], 1], [stride[0], 1], [around[0], 0])
    return y.reshape(batch, channels, y.shape[2], height, width)


def _max_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if ceil_mode or set(_three(dilation)) != {1}:
        return NotImplemented
    kernel = _three(kernel_size)
    return _in_two(F.max_pool2d, x, kernel, _three(stride) if stride else kernel, _three(padding))


def _avg_pool3d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if ceil_mode or divisor_override:
        return NotImplemented
    kernel = _three(kernel_size)

    def pool(images: Tensor, *how: Any) -> Tensor:
        kernel, stride, padding = how
        return F.avg_pool2d(images, kernel, stride, padding, False, count_include_pad)

    return _in_two(pool, x, kernel, _three(stride) if stride else kernel, _three(padding))


def _first_of_max(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Any, None]:
    """Without its indices."""
    return torch.amax(x, [dim], keepdim), None


def _first_of_min(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Any, None]:
    return torch.amin(x, [dim], keepdim), None


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """A factor and a number for each channel: a depthwise convolution with one weight each."""
    if training or mean is None or variance is None or x.dim() not in (2, 3, 4, 5):
        return NotImplemented
    factor = torch.rsqrt(variance + eps)
    if weight is not None:
        factor = factor * weight
    offset = -mean * factor
    if bias is not None:
        offset = offset + bias
    if x.dim() == 2:
        return x * factor + offset
    shape = x.shape
    images = x.reshape(shape[0], shape[1], -1, shape[-1])
    channels = factor.reshape(-1, 1, 1, 1)
    return F.conv2d(images, channels, offset, groups=shape[1]).reshape(shape)


def _bins(before: int, after: int) -> list[tuple[int, int]]:
    return [(i * before // after, -(-(i + 1) * before // after)) for i in range(after)]


def _adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Any:
    """A pool for each element of the result, where the sizes do not divide. Of many one of
    them all, of an image in which windows have one size and do not overlap."""
    height, width = x.shape[-2:]
    rows = int(output_size[0]) if output_size[0] is not None else height
    columns = int(output_size[1]) if output_size[1] is not None else width
    divide = height % rows == 0 and width % columns == 0
    if divide or x.dim() != 4:
        return NotImplemented
    if rows * columns > MOST_PIECES:
        return _pooled_evenly(x, rows, columns)
    lines = []
    for top, bottom in _bins(height, rows):
        strip = x[:, :, top:bottom]
        pools = [
            F.avg_pool2d(strip[:, :, :, left:right], [bottom - top, right - left])
            for left, right in _bins(width, columns)
        ]
        lines.append(pools[0] if columns == 1 else torch.cat(pools, 3))
    return lines[0] if rows == 1 else torch.cat(lines, 2)


def _pooled_evenly(x: Tensor, rows: int, columns: int) -> Any:
    sizes = []
    for dim, count in ((2, rows), (3, columns)):
        bins = _bins(x.shape[dim], count)
        size = math.lcm(*(end - start for start, end in bins))
        if count * size > 4 * MOST_PIECES:
            return NotImplemented
        # Each element so often that all windows have one size: their means stay what they are.
        chosen = [n for s, e in bins for n in range(s, e) for _ in range(size // (e - s))]
        if chosen != list(range(x.shape[dim])):
            x = torch.cat([x.narrow(dim, n, 1) for n in chosen], dim)
        sizes.append(size)
    return F.avg_pool2d(x, sizes)


def _adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Any:
    size = int(output_size[0])
    if x.dim() != 3 or x.shape[-1] % size == 0 or size > MOST_PIECES:
        return NotImplemented
    pools = [
        F.avg_pool1d(x[:, :, start:end], [end - start]) for start, end in _bins(x.shape[-1], size)
    ]
    return torch.cat(pools, 2)


def _im2col(
    x: Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """The elements of each window: a slice with steps for each element of it."""
    if x.dim() != 4 or kernel_size[0] * kernel_size[1] > MOST_PIECES:
        return NotImplemented
    if any(padding):
        x = F.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    counts = [
        (size - gap * (k - 1) - 1) // step + 1
        for size, k, gap, step in zip(x.shape[2:], kernel_size, dilation, stride, strict=True)
    ]

    def elements(at: int, axis: int) -> slice:
        start = at * dilation[axis]
        return slice(start, start + (counts[axis] - 1) * stride[axis] + 1, stride[axis])

    pieces = [
        x[:, :, elements(i, 0), :][:, :, :, elements(j, 1)].reshape(x.shape[0], x.shape[1], 1, -1)
        for i in range(kernel_size[0])
        for j in range(kernel_size[1])
    ]
    return torch.cat(pieces, 2).reshape(x.shape[0], x.shape[1] * len(pieces), -1)


def _product(x: Tensor, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    """Of halves, and their halves."""
    if dtype is not None or x.dim() == 0 or x.shape[dim] > MOST_PIECES:
        return NotImplemented
    while x.shape[dim] > 1:
        size = x.shape[dim]
        half = size // 2
        y = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([y, x.narrow(dim, size - 1, 1)], dim) if size % 2 else y
    return x if keepdim else x.squeeze(dim)


def _product_of_all(x: Tensor, dtype: Any = None) -> Any:
    return _product(x.reshape(-1), 0, False, dtype) if x.dim() else NotImplemented


def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    largest = torch.amax(x, list(dim), True)
    result = torch.log(torch.sum(torch.exp(x - largest), list(dim), True)) + largest
    return result if keepdim else result.squeeze(list(dim))


def _cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    norms = [torch.linalg.vector_norm(t, dim=[dim], keepdim=True) for t in (x, y)]
    x, y = (t / torch.clamp_min(n, eps) for t, n in zip((x, y), norms, strict=True))
    return (x * y).sum([dim])


def _lerp(x: Tensor, end: Tensor, weight: Any) -> Any:
    return x + (end - x) * weight


def _fmod(x: Tensor, y: Tensor) -> Tensor:
    return x - torch.trunc(x * torch.reciprocal(y)) * y


def _tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return x * (_diagonals(x) <= diagonal).to(x.dtype)


def _triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return x * (_diagonals(x) >= diagonal).to(x.dtype)


def _diagonals(x: Tensor) -> Tensor:
    """For each element of a matrix, how far above the main diagonal."""
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[-2:])
    return columns - rows.unsqueeze(1)


def _mv(x: Tensor, vector: Tensor) -> Tensor:
    return torch.mm(x, vector.unsqueeze(1)).squeeze(1)


def _matmul(x: Tensor, y: Tensor) -> Any:
    """Of a vector."""
    if y.dim() == 1 and x.dim() > 1:
        rows = x.reshape(-1, x.shape[-1])
        return torch.mm(rows, y.unsqueeze(1)).reshape(x.shape[:-1])
    if x.dim() == 1 and y.dim() == 2:
        return torch.mm(x.unsqueeze(0), y).squeeze(0)
    return torch.sum(x * y, [0]) if x.dim() == y.dim() == 1 else NotImplemented


def _meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> Any:
    if indexing != "ij" or any(t.dim() != 1 for t in tensors):
        return NotImplemented
    sizes = [t.shape[0] for t in tensors]
    return [
        t.reshape([-1 if i == j else 1 for j in range(len(sizes))]).expand(sizes)
        for i, t in enumerate(tensors)
    ]


def _flip(x: Tensor, dims: Sequence[int]) -> Any:
    """Slices of one element, joined in the other order."""
    for dim in dims if x.dim() else ():
        if x.shape[dim] > MOST_PIECES:
            return NotImplemented
        x = torch.cat([x.narrow(dim, i, 1) for i in reversed(range(x.shape[dim]))], dim)
    return x


def _expand(x: Tensor, size: Sequence[int], implicit: bool = False) -> Any:
    """Copies, joined."""
    del implicit
    x = x.reshape([1] * (len(size) - x.dim()) + list(x.shape))
    grown = [dim for dim, n in enumerate(size) if n not in (-1, x.shape[dim])]
    copies = math.prod(size[dim] for dim in grown)
    if not grown or not 0 < copies <= MOST_PIECES or not x.is_floating_point():
        return NotImplemented
    for dim in grown:
        x = torch.cat([x] * size[dim], dim)
    return x


def _expand_as(x: Tensor, other: Tensor) -> Any:
    return _expand(x, list(other.shape))


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """The end of each dimension before its beginning."""
    if not dims:
        return _roll(x.flatten(), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        if size and shift % size:
            parts = torch.split(x, [size - shift % size, shift % size], dim)
            x = torch.cat(parts[::-1], dim)
    return x


VOLUMES: dict[object, Decomposition | None] = {
    aten.conv3d.default: _conv3d,
    aten.conv3d.padding: _conv3d_padding,
    aten.conv_transpose3d.input: _conv_transpose3d,
    aten.max_pool3d.default: _max_pool3d,
    aten.avg_pool3d.default: _avg_pool3d,
}
_CELLS = (
    aten.lstm_cell.default,
    aten.gru_cell.default,
    aten.rnn_tanh_cell.default,
    aten.rnn_relu_cell.default,
)
RECURRENT: dict[object, Decomposition | None] = dict.fromkeys(
    (
        *_CELLS,
        aten.lstm.input,
        aten.gru.input,
        aten.rnn_tanh.input,
        aten.rnn_relu.input,
    )
)


def recurrent_steps(node: Node) -> int:
    """How often a recurrent layer's cells are computed; 0 where that is not known before."""
    if node.target in _CELLS:
        return 1
    args = arguments(node)
    shape = args["input"].meta["val"].shape
    if len(shape) != 3 or "batch_sizes" in args:
        return 0
    steps = shape[1 if args["batch_first"] else 0]
    directions = 2 if args["bidirectional"] else 1
    return steps * args["num_layers"] * directions if isinstance(steps, int) else 0


WINDOWS: dict[object, Decomposition | None] = {
    aten.adaptive_avg_pool1d.default: _adaptive_avg_pool1d,
    aten.adaptive_avg_pool2d.default: _adaptive_avg_pool2d,
    aten.im2col.default: _im2col,
}
ARITHMETIC: dict[object, Decomposition | None] = {
    aten.addcdiv.default: None,
    aten.addcmul.default: None,
    aten.baddbmm.default: None,
    aten.batch_norm.default: _batch_norm,
    aten.clamp_max.default: None,
    aten.clamp_min.default: None,
    aten.cosine_similarity.default: _cosine_similarity,
    aten.dot.default: None,
    aten.einsum.default: None,
    aten.fmod.Tensor: _fmod,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.linalg_vector_norm.default: None,
    aten.logsumexp.default: _logsumexp,
    aten.matmul.default: _matmul,
    aten.max.dim: _first_of_max,
    aten.min.dim: _first_of_min,
    aten.mv.default: _mv,
    aten.prod.default: _product_of_all,
    aten.prod.dim_int: _product,
    aten.tril.default: _tril,
    aten.triu.default: _triu,
}
SLICES: dict[object, Decomposition | None] = {
    aten.expand.default: _expand,
    aten.expand_as.default: _expand_as,
    aten.flip.default: _flip,
    aten.roll.default: _roll,
}
"""For processors that only cut and join."""


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Any:
    """Windows that do not overlap are what there is, in another shape."""
    if step != size or x.dim() == 0 or size == 0:
        return NotImplemented
    dim = dimension % x.dim()
    count = x.shape[dim] // size
    if count * size < x.shape[dim]:
        x = x.narrow(dim, 0, count * size)
    x = x.reshape(*x.shape[:dim], count, size, *x.shape[dim + 1 :])
    return x.movedim(dim + 1, -1) if dim + 1 < x.dim() - 1 else x


UNFOLD: dict[object, Decomposition | None] = {aten.unfold.default: _unfold}
MOVES: dict[object, Decomposition | None] = {
    **UNFOLD,
    aten.meshgrid.default: _meshgrid,
    aten.meshgrid.indexing: _meshgrid,
    aten.repeat_interleave.self_int: None,
    aten.stack.default: None,
}


def broadcast_operands(model: GraphModule) -> bool:
    """Operands of elementwise arithmetic without the copies that give them the other's size. Of one
    data type: a number in a tensor of no dimensions would not decide the result's."""
    changed = False
    expansions = (aten.expand.default, aten.expand_as.default)
    for node in [n for n in model.graph.nodes if n.target in expansions]:
        value = node.meta["val"]
        for user in list(node.users):
            others = [
                a.meta["val"]
                for a in (user.args[:2] if user.target in _BROADCAST else ())
                if isinstance(a, Node) and a is not node
            ]
            if any(o.shape == value.shape and o.dtype == value.dtype for o in others):
                user.replace_input_with(node, node.args[0])
                changed = True
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


_BROADCAST = frozenset(
    with_twins(
        aten.add.Tensor,
        aten.div.Tensor,
        aten.maximum.default,
        aten.minimum.default,
        aten.mul.Tensor,
        aten.sub.Tensor,
    )
)


def expand_operands(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """The larger operand as large as the result, where sums, differences and products have none
    that is, and batches of matrices as many as the result's: for processors that repeat one operand
    only, and no batches. Of nodes that are `wanted`."""
    changed = False
    elementwise = with_twins(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)
    for node in [n for n in model.graph.nodes if n.target in (*elementwise, aten.matmul.default)]:
        operands = [a for a in node.args[:2] if isinstance(a, Node) and is_float(a)]
        shape = list(node.meta["val"].shape)
        if len(operands) < 2 or not all(isinstance(n, int) for n in shape) or not wanted(node):
            continue
        sizes: dict[Node, list[int]] = {}
        if node.target is aten.matmul.default:
            if min(one.meta["val"].dim() for one in operands) > 2:
                sizes = {o: [*shape[:-2], *o.meta["val"].shape[-2:]] for o in operands}
        else:
            sizes[max(operands, key=lambda one: one.meta["val"].numel())] = shape
        for operand, size in sizes.items():
            count = operand.meta["val"].numel()
            if not count < math.prod(size) <= MOST_PIECES * count:
                continue
            with model.graph.inserting_before(node):
                whole = step(node, aten.expand.default, operand, size)
            node.replace_input_with(operand, whole)
            changed = True
    return changed


def multiply_as_linear(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """Linear layers instead of products with a constant matrix, or with one that is computed
    from weights alone; of nodes that are `wanted`."""
    changed = False
    weights = made_of_weights(model.graph)
    for target in (aten.mm.default, aten.matmul.default, aten.addmm.default):
        changed |= replace_calls(
            model, target, lambda node: _linear(model, node, weights) if wanted(node) else None
        )
    return changed


def _linear(model: GraphModule, node: Node, weights: frozenset[Node]) -> Node | None:
    args = arguments(node)
    x, matrix = (args["mat1"], args["mat2"]) if "mat1" in args else list(args.values())[:2]
    if x in weights or x.meta["val"].dim() < 2 or matrix not in weights:
        return None
    weight = _weight(model, node, matrix)
    if weight is None:
        return None
    bias: Node | None = None
    if "beta" in args:
        bias = args["self"]
        plain = args["beta"] == args["alpha"] == 1 and bias.op == "get_attr"
        if not plain or bias.meta["val"].shape != matrix.meta["val"].shape[1:]:
            return None
    return step(node, aten.linear.default, x, weight, bias)


def _weight(model: GraphModule, node: Node, matrix: Node) -> Node | None:
    """Of a linear layer, which multiplies by its transpose: the matrix turned, or what it is the
    transpose of, as where an embedding's table gives logits."""
    value = matrix.meta["val"]
    if value.dim() != 2 or not value.is_floating_point():
        return None
    if matrix.op == "get_attr":
        known = attribute(model, str(matrix.target))
        turned = known.detach().t().contiguous()
        learned = isinstance(known, torch.nn.Parameter)
        return constant(model, node, torch.nn.Parameter(turned) if learned else turned)
    source = matrix.all_input_nodes[0]
    if source.op == "get_attr" and matrix.target in _TRANSPOSES and _swaps(matrix):
        return source
    return step(node, aten.transpose.int, matrix, 0, 1)


def _swaps(node: Node) -> bool:
    """Whether the two dimensions of a matrix are exchanged."""
    if node.target is aten.permute.default:
        return [int(dim) % 2 for dim in arguments(node)["dims"]] == [1, 0]
    if node.target is aten.transpose.int:
        return bool((arguments(node)["dim0"] - arguments(node)["dim1"]) % 2)
    return True


_TRANSPOSES = (
    aten.mT.default,
    aten.numpy_T.default,
    aten.permute.default,
    aten.t.default,
    aten.transpose.int,
)

__all__ = [
    "ARITHMETIC",
    "MOVES",
    "RECURRENT",
    "SLICES",
    "UNFOLD",
    "VOLUMES",
    "WINDOWS",
    "broadcast_operands",
    "expand_operands",
    "multiply_as_linear",
    "recurrent_steps",
]
