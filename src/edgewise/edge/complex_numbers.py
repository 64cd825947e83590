"""Complex tensors become their real and imaginary parts.

Rotary embeddings are often written with complex numbers, and spectra are made of them; files have
none. Each call that takes or makes complex tensors is traced with torch's `ComplexTensor`, a
subclass that computes with two real tensors; what that records takes the call's place. The rules
here are for what the subclass lacks (`polar`, Fourier transforms), and for what it would compute
with zeros (real numbers beside complex ones).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._subclasses.complex_tensor import ComplexTensor
from torch._subclasses.complex_tensor._ops.common import lookup_complex
from torch.export import ExportedProgram
from torch.fx import Node
from torch.nn.functional import pad
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise.edge import fourier
from edgewise.edge.bodies import control_flow
from edgewise.edge.graph import (
    calls,
    dtype_name,
    erase_dead,
    is_complex,
    is_spectral,
    op_name,
    replace,
    tensors_of,
)
from edgewise.edge.node_errors import at_node
from edgewise.edge.normalize import CallTracer
from edgewise.edge.program import Constants, drop_unused_constants
from edgewise.errors import InvalidGraphError

__all__ = ["separate_complex_numbers"]

aten = torch.ops.aten


@dataclass(frozen=True)
class _Pair:
    """The nodes that stand for a complex one."""

    real: Node
    imaginary: Node


def separate_complex_numbers(program: ExportedProgram) -> bool:
    """Requires a functional graph. Ensures that all tensors are real. Returns whether it modified.

    InvalidGraphError if an input or a result is complex, or an operator has no form in real
    numbers.
    """
    graph = program.graph
    constants, tracer = Constants(program), CallTracer(program)
    known: dict[Node, Any] = {}
    for node in [n for n in graph.nodes if n.op == "placeholder" and is_complex(n)]:
        if node not in constants:
            if node.users:
                raise _complex_end(node, node, "inputs and state")
            continue
        value = constants.tensor(node).resolve_conj()
        name = node.name.removeprefix("p_").removeprefix("b_")
        known[node] = _Pair(
            constants.add(f"{name}_real", value.real.contiguous()),
            constants.add(f"{name}_imaginary", value.imag.contiguous()),
        )
    for node in calls(graph):
        of_complex = any(source in known for source in node.all_input_nodes)
        if of_complex or is_complex(node) or is_spectral(node):
            _separate(node, tracer, known)
    for node in reversed(list(graph.nodes)):
        if node.op == "output":
            for source in node.all_input_nodes:
                if is_complex(source):
                    raise _complex_end(node, source, "results")
        elif node in known and node.op == "call_function":
            graph.erase_node(node)
    drop_unused_constants(program)
    return True


def _complex_end(node: Node, source: Node, what: str) -> InvalidGraphError:
    dtype = next(t.dtype for t in tensors_of(source) if t.is_complex())
    return InvalidGraphError(
        f"{at_node(source if source.op != 'placeholder' else node)} {what} must be real numbers; "
        f"got {source.name} of {dtype_name(dtype)}; try torch.view_as_real on it, and "
        f"torch.view_as_complex on the other side"
    )


def _separate(node: Node, tracer: CallTracer, known: dict[Node, Any]) -> None:
    """Puts real calls into the place of one."""
    target: Any = node.target
    source: Any = node.args[0] if node.args else None
    if target is operator.getitem:
        _become(node, known[source][node.args[1]], known)
        return
    if target is aten._assert_tensor_metadata.default:
        node.graph.erase_node(node)  # export has checked it
        return
    if target in (aten.real.default, aten.imag.default) and source in known:
        pair = known[source]
        replace(node, pair.real if target is aten.real.default else pair.imaginary)
        return
    if control_flow(node) is not None or not isinstance(target, torch._ops.OpOverload):
        raise InvalidGraphError(
            f"{at_node(node)} control flow must take and give real numbers; got complex ones for "
            f"{op_name(node)}; try torch.view_as_real around it"
        )
    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    sources: list[Node] = []
    for one in flat:
        if isinstance(one, Node):
            found = known.get(one, one)
            sources += [found.real, found.imaginary] if isinstance(found, _Pair) else [found]

    def run(*values: Any) -> Any:
        left = iter(values)
        filled = [
            one
            if not isinstance(one, Node)
            else (ComplexTensor(next(left), next(left)) if one in known else next(left))
            for one in flat
        ]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        with _InParts():  # type: ignore[no-untyped-call]
            function = _WHOLE.get(target, target)
            return pytree.tree_map(_parts_of_result, function(*args, **kwargs))

    try:
        traced = tracer.trace(node, run, [s.meta["val"] for s in sources], {})
    except fourier.LongFactor as failure:
        raise InvalidGraphError(
            f"{at_node(node)} lengths of Fourier transforms must have no prime factor above "
            f"{fourier.LARGEST_FACTOR}; got {failure}; try n=, which pads with zeros or cuts"
        ) from failure
    except _NoRule as failure:
        raise InvalidGraphError(
            f"{at_node(node)} operators must have a form in real numbers; got {failure} of complex "
            f"ones; try real and imaginary parts as tensors of their own"
        ) from failure
    erase_dead(traced.graph)
    result, _ = tracer.copy_in(node, traced, sources)
    _become(node, result, known)


def _become(node: Node, result: Any, known: dict[Node, Any]) -> None:
    """A complex node is known by its parts; a real one is replaced."""
    value: Any = node.meta.get("val")
    if not is_complex(node):
        if isinstance(result, Node):
            node.replace_all_uses_with(result)
            node.graph.erase_node(node)
        else:
            known[node] = result
    elif isinstance(value, torch.Tensor):
        known[node] = result if isinstance(result, _Pair) else _Pair(*result)
    else:
        known[node] = [
            _Pair(*part) if one.is_complex() else part
            for one, part in zip(value, result, strict=True)
        ]


def _parts_of_result(value: Any) -> Any:
    if isinstance(value, ComplexTensor):
        return (value.re, value.im)
    if isinstance(value, torch.Tensor) and value.is_complex():
        raise _NoRule("a constant")
    return value


class _NoRule(NotImplementedError):
    """An operator has no form in real numbers; its name."""


class _InParts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, what would make a complex tensor makes a `ComplexTensor`."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        flat = pytree.tree_leaves((args, kwargs))
        of_complex = any(isinstance(one, (complex, ComplexTensor)) for one in flat)
        to_complex = kwargs.get("dtype") in _REAL
        rule = _RULES.get(func.overloadpacket)
        if rule is not None and (of_complex or to_complex or func.overloadpacket in _MAKERS):
            with self:
                return rule(*args, **kwargs)
        if of_complex:
            found = lookup_complex(func, *args, **kwargs)
            if found is None:
                raise _NoRule(str(func))
            with self:
                return found(*args, **kwargs)
        if to_complex:
            raise _NoRule(str(func))
        return func(*args, **kwargs)


Parts = tuple[Any, Any]
"""Real and imaginary part, tensors or numbers; the second None for a real number."""

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def _parts(value: Any) -> Parts:
    if isinstance(value, ComplexTensor):
        return value.re, value.im
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def _sum(first: Any, second: Any, sign: int, alpha: Any = 1) -> Any:
    (a, b), (c, d) = _parts(first), _parts(second)
    if alpha != 1:
        factor_real, factor_imaginary = _parts(alpha)
        if factor_imaginary is not None:
            raise _NoRule("a sum with a complex alpha")
        c, d = c * factor_real, None if d is None else d * factor_real
    real = a + c if sign > 0 else a - c
    if b is None:
        imaginary = d if sign > 0 else -d
    elif d is None:
        imaginary = b
    else:
        imaginary = b + d if sign > 0 else b - d
    together: Any = torch.broadcast_shapes
    shape = together(*(t.shape for t in (real, imaginary) if not _is_number(t)))
    return ComplexTensor(*(_spread(part, shape, real.dtype) for part in (real, imaginary)))


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor)


def _spread(part: Any, shape: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, part, dtype=dtype) if _is_number(part) else part.expand(shape)


def _add(first: Any, second: Any, *, alpha: Any = 1) -> Any:
    return _sum(first, second, 1, alpha)


def _sub(first: Any, second: Any, *, alpha: Any = 1) -> Any:
    return _sum(first, second, -1, alpha)


def _product(multiply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Of whatever is linear in both operands."""

    def rule(first: Any, second: Any) -> Any:
        (a, b), (c, d) = _parts(first), _parts(second)
        if d is None:
            return ComplexTensor(multiply(a, c), multiply(b, c))
        if b is None:
            return ComplexTensor(multiply(a, c), multiply(a, d))
        return ComplexTensor(multiply(a, c) - multiply(b, d), multiply(a, d) + multiply(b, c))

    return rule


def _quotient(first: Any, second: Any, **rest: Any) -> Any:
    if rest.get("rounding_mode") is not None:
        raise _NoRule("a rounded quotient")
    (a, b), (c, d) = _parts(first), _parts(second)
    if d is None:
        return ComplexTensor(a / c, b / c)
    size = c * c + d * d
    if b is None:
        return ComplexTensor(a * c / size, -a * d / size)
    return ComplexTensor((a * c + b * d) / size, (b * c - a * d) / size)


def _abs(value: Any) -> Any:
    return (value.re * value.re + value.im * value.im).sqrt()


def _power(value: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, float)) and float(exponent).is_integer() and 0 < exponent <= 8:
        result = value
        for _ in range(int(exponent) - 1):
            result = result * value
        return result
    base = torch.full((), value) if _is_number(value) else value
    logarithm, angle = base.abs().log(), base.angle()
    real, imaginary = _parts(exponent)
    if imaginary is None:
        size, turn = logarithm * real, angle * real
    else:
        size = logarithm * real - angle * imaginary
        turn = logarithm * imaginary + angle * real
    return _polar(size.exp(), turn)


def _polar(size: torch.Tensor, angle: torch.Tensor) -> Any:
    return ComplexTensor(size * angle.cos(), size * angle.sin())


def _to_copy(value: torch.Tensor, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
    """To complex or from it."""
    if isinstance(value, ComplexTensor):
        if dtype is None:
            return ComplexTensor(value.re.clone(), value.im.clone())
        if dtype in _REAL:
            return ComplexTensor(value.re.to(_REAL[dtype]), value.im.to(_REAL[dtype]))
        return value.re.to(dtype)
    assert dtype is not None
    real = value.to(_REAL[dtype])
    return ComplexTensor(real, torch.zeros_like(real))


def _full(size: Any, fill: Any, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
    """rest: where and how it lies, which is as usual."""
    real, imaginary = _parts(fill)
    of = _REAL[dtype] if dtype is not None else torch.get_default_dtype()
    return ComplexTensor(*(torch.full(size, part, dtype=of) for part in (real, imaginary or 0)))


def _like(fill: float) -> Callable[..., Any]:
    def rule(value: Any, **rest: Any) -> Any:
        shape, dtype = value.shape, rest.get("dtype") or value.dtype
        if dtype not in _REAL:
            return torch.full(shape, fill, dtype=dtype)
        return _full(shape, fill, dtype=dtype)

    return rule


def _of_both(function: Any) -> Callable[..., Any]:
    """Of what moves numbers: done with both parts."""

    def rule(value: Any, *rest: Any, **options: Any) -> Any:
        first, second = (function(part, *rest, **options) for part in (value.re, value.im))
        if isinstance(first, torch.Tensor):
            return ComplexTensor(first, second)
        return [ComplexTensor(*pair) for pair in zip(first, second, strict=True)]

    return rule


def _index_fill(value: Any, dim: int, index: torch.Tensor, fill: Any) -> Any:
    real, imaginary = _parts(fill)
    return ComplexTensor(
        value.re.index_fill(dim, index, real),
        value.im.index_fill(dim, index, 0 if imaginary is None else imaginary),
    )


def _stft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """As torch's, which changes a complex tensor's strides where it lies. [B, T] or [T]."""
    length = n_fft if win_length is None else win_length
    hop = (length if align_to_window else n_fft) // 4 if hop_length is None else hop_length
    left = (n_fft - length) // 2
    if isinstance(x, ComplexTensor) or (window is not None and window.is_complex()):
        raise _NoRule("aten.stft")
    taps = torch.ones(length, dtype=x.dtype) if window is None else window
    if align_to_window:
        # Frames are as long as the window; its padding comes after the cut.
        frames = pad(x.unfold(-1, length, hop) * taps, (left, n_fft - length - left))
    else:
        taps = pad(taps, (left, n_fft - length - left))
        frames = x.unfold(-1, n_fft, hop) * taps
    onesided = onesided is not False
    found = _fft_r2c(frames, (frames.dim() - 1,), 1 if normalized else 0, onesided)
    found = _of_both(torch.transpose)(found, -1, -2)
    return found if return_complex else _view_as_real(found)


def _istft(
    spectra: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """As torch's, which looks at the window's numbers. [B, frequencies, frames] or without B."""
    if return_complex or (window is not None and window.is_complex()):
        raise _NoRule("aten.istft with a complex result")
    width = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    left = (n_fft - width) // 2
    taps = torch.ones(width, dtype=spectra.re.dtype) if window is None else window
    taps = pad(taps, (left, n_fft - width - left))
    turned = _of_both(torch.transpose)(spectra, -1, -2)
    last = turned.dim() - 1
    if onesided is None:
        onesided = spectra.shape[-2] != n_fft
    by = 1 if normalized else 2
    if onesided:
        frames = _fft_c2r(turned, (last,), by, n_fft)
    else:
        frames = _fft_c2c(turned, (last,), by, False).re
    count = frames.shape[-2]
    whole = n_fft + hop * (count - 1)
    blocks = -(-n_fft // hop)

    def overlapped(t: torch.Tensor) -> torch.Tensor:
        """Frames [B, count, n_fft], each `hop` further on, added up."""
        t = pad(t, (0, blocks * hop - n_fft))
        t = t.view(*t.shape[:-1], blocks, hop)
        shifted = [pad(t[..., i, :], (0, 0, i, blocks - 1 - i)) for i in range(blocks)]
        total = shifted[0]
        for one in shifted[1:]:
            total = total + one
        return total.flatten(-2)[..., :whole]

    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - start
    sound = overlapped(frames * taps)[..., start:end]
    weight = overlapped((taps * taps).expand(count, n_fft))[..., start:end]
    result = sound / weight
    missing = 0 if length is None else length - result.shape[-1]
    return pad(result, (0, missing)) if missing > 0 else result


_WHOLE: dict[Any, Callable[..., Any]] = {aten.stft.default: _stft, aten.istft.default: _istft}
"""Of operators that torch would decompose into what no trace takes."""


def _complex(real: torch.Tensor, imaginary: torch.Tensor) -> Any:
    together: Any = torch.broadcast_tensors
    return ComplexTensor(*together(real, imaginary))


def _view_as_complex(value: torch.Tensor) -> Any:
    return ComplexTensor(value.select(-1, 0), value.select(-1, 1))


def _view_as_real(value: Any) -> torch.Tensor:
    return torch.stack([value.re, value.im], -1)


def _scale_of(lengths: Sequence[Any], normalization: int) -> Any:
    """0: none; 1: by the root of the number of elements; 2: by their number. A tensor of one
    element where that is open."""
    if normalization == 0:
        return 1.0
    if all(isinstance(length, int) for length in lengths):
        count = math.prod(lengths)
        return count**-0.5 if normalization == 1 else 1 / count
    number = math.prod((torch.ones(length).sum() for length in lengths), start=torch.ones(()))
    return number.rsqrt() if normalization == 1 else number.reciprocal()


def _lengths(sizes: Sequence[Any], name: str) -> list[int]:
    if not all(isinstance(size, int) for size in sizes):
        raise _NoRule(f"{name} over a size that is open")
    return [int(size) for size in sizes]


def _along(dim: int, value: Any, function: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    """The function of both parts, whose last dimension is this one."""
    real, imaginary = _parts(value)
    made = function(
        real.movedim(dim, -1), None if imaginary is None else imaginary.movedim(dim, -1)
    )
    return ComplexTensor(*(part.movedim(-1, dim) for part in made))


def _fft_c2c(value: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    scale = _scale_of([value.shape[d] for d in dim], normalization)
    sign = -1 if forward else 1
    for number, d in enumerate(dim):
        once = scale if number == 0 else 1.0
        value = _along(d, value, partial(_transformed, sign=sign, scale=once))
    return value


def _transformed(real: Any, imaginary: Any, **options: Any) -> tuple[Any, Any]:
    return fourier.transform((real, imaginary), **options)


def _fft_r2c(value: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    lengths = [value.shape[d] for d in dim]
    scale, kept = _scale_of(lengths, normalization), lengths[-1] // 2 + 1 if onesided else None
    found = _along(dim[-1], value, partial(_transformed, sign=-1, scale=scale, kept=kept))
    return _fft_c2c(found, dim[:-1], 0, True) if len(dim) > 1 else found


def _fft_c2r(value: Any, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    (length,) = _lengths([last_dim_size], "aten._fft_c2r")
    others = _lengths([value.shape[d] for d in dim[:-1]], "aten._fft_c2r")
    if others:
        value = _fft_c2c(value, dim[:-1], 0, False)
    real, imaginary = (part.movedim(dim[-1], -1) for part in _parts(value))
    scale = _scale_of([*others, length], normalization)
    return fourier.from_half_spectrum(real, imaginary, length, scale).movedim(-1, dim[-1])


_RULES: dict[Any, Callable[..., Any]] = {
    aten.add: _add,
    aten.sub: _sub,
    aten.rsub: lambda first, second, alpha=1: _sub(second, first, alpha=alpha),
    aten.mul: _product(torch.mul),
    aten.mm: _product(torch.mm),
    aten.bmm: _product(torch.bmm),
    aten.div: _quotient,
    aten.abs: _abs,
    aten.pow: _power,
    aten.polar: _polar,
    aten.complex: _complex,
    aten.view_as_complex: _view_as_complex,
    aten.view_as_real: _view_as_real,
    aten._to_copy: _to_copy,
    aten.full: _full,
    aten.ones: lambda size, **rest: _full(size, 1, **rest),
    aten.zeros: lambda size, **rest: _full(size, 0, **rest),
    aten.scalar_tensor: lambda value, **rest: _full((), value, **rest),
    aten.ones_like: _like(1),
    aten.zeros_like: _like(0),
    aten.index_fill: _index_fill,
    **{
        name: _of_both(name) for name in (aten.lift_fresh_copy, aten.roll, aten.unbind, aten.unfold)
    },
    aten._fft_c2c: _fft_c2c,
    aten._fft_r2c: _fft_r2c,
    aten._fft_c2r: _fft_c2r,
}

_MAKERS = (aten.polar, aten.complex, aten.view_as_complex, aten._fft_r2c)
"""Make complex tensors of real ones."""
