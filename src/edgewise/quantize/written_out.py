"""Activations that models write out, as the operators that they are.

For quantizers' `transform_for_annotation`: what stands between is neither quantized nor watched
then. A scale for the exponential in `1 / (1 + exp(-x))` leaves nothing of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.algebra import (
    PRODUCTS,
    SUMS,
    number_of,
    product_of,
    scaled_of,
    sum_of,
    times,
)
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import step

aten = torch.ops.aten

_CLOSE = 1e-3
"""How near factors must be: of 0.044715, 0.79788 and the like models have a few digits."""
_Found = tuple[Node, float, dict[Node, int]] | None
"""A node, and by what it is to be multiplied: a number, and powers of nodes."""
_CUBIC, _SLOPE = 0.044715, math.sqrt(2 / math.pi)


def recognize_activations(
    model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True
) -> bool:
    """In place; whether there was any. wanted: of the calls that compute an activation's result."""
    changed = False
    for node in list(model.graph.nodes):
        if node.op != "call_function" or not node.users or not is_float(node) or not wanted(node):
            continue
        rule = _RULES.get(node.target)
        if rule is None:
            continue
        with model.graph.inserting_before(node):
            made = rule(node)
        if made is not None:
            node.replace_all_uses_with(made)
            model.graph.erase_node(node)
            changed = True
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


# --- products ---------------------------------------------------------------------------------


def _of_product(node: Node) -> Node | None:
    product = product_of(node)
    powers = dict(product.powers)
    for match in (_tanh_of_powers, _logistic, _hard, _gelu, _inverse_root, _gated):
        found = match(node, dict(powers), product.number)
        if found is None:
            continue
        made, number, left = found
        gated = _gated(node, {**left, made: 1}, number)
        if gated is not None:
            made, number, left = gated
        return _multiplied(node, made, number, left)
    one = product.of_one()
    plain = one is not None and product.number == 1 and one.target in _FUNCTIONS
    return one if plain else None  # of `1 / x`, export makes a product with 1


def _multiplied(node: Node, made: Node, number: float, left: dict[Node, int]) -> Node:
    for factor, power in left.items():
        for _ in range(abs(power)):
            operator = aten.mul.Tensor if power > 0 else aten.div.Tensor
            made = step(node, operator, made, factor)
    return made if abs(number - 1) < 1e-6 else step(node, aten.mul.Tensor, made, number)


def _logistic(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """1 / (1 + exp(-x)), and exp(x) / (1 + exp(x))."""
    for divisor, power in powers.items():
        total = sum_of(divisor) if power == -1 and divisor.target in SUMS else None
        one = None if total is None or total.number != 1 else total.of_one()
        if one is None or one[0].target is not aten.exp.default or one[1] != 1:
            continue
        exponential = one[0]
        left = {n: p for n, p in powers.items() if n is not divisor}
        above = left.get(exponential) == 1
        if above:
            del left[exponential]
        source = times(_source(exponential), 1.0 if above else -1.0, node)
        return step(node, aten.sigmoid.default, source), number, left
    return None


def _tanh_of_powers(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """(a - b) / (a + b), of exponentials, one of which may be 1."""
    above = [n for n, p in powers.items() if p == 1 and n.target in SUMS]
    below = [n for n, p in powers.items() if p == -1 and n.target in SUMS]
    for one, other in [(a, b) for a in above for b in below]:
        half = _half_angle(one, other, node)
        if half is not None:
            left = {n: p for n, p in powers.items() if n not in (one, other)}
            return step(node, aten.tanh.default, half), number, left
    return None


def _half_angle(above: Node, below: Node, like: Node) -> Node | None:
    difference, total = sum_of(above), sum_of(below)
    powers = list(total.factors)
    if not all(n.target is aten.exp.default and total.factors[n] == 1 for n in powers):
        return None
    if set(difference.factors) != set(powers):
        return None
    signs = [difference.factors[n] for n in powers]
    if len(powers) == 1 and total.number == 1:
        if (signs[0], difference.number) not in ((1, -1), (-1, 1)):
            return None
        return times(_source(powers[0]), signs[0] / 2, like)
    if len(powers) != 2 or sorted(signs) != [-1, 1] or difference.number or total.number:
        return None
    plus, minus = sorted(powers, key=lambda n: -difference.factors[n])
    one, other = scaled_of(_source(plus)), scaled_of(_source(minus))
    if one[0] is not other[0] or not math.isclose(one[1], -other[1]):
        return None
    return times(_source(plus), 1.0, like)


def _hard(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """relu6(x + 3) / 6"""
    for clamp, power in powers.items():
        if power != 1 or _bounds(clamp) != (0, 6):
            continue
        total = sum_of(_source(clamp))
        one = total.of_one()
        if total.number == 3 and one is not None and one[1] == 1:
            left = {n: p for n, p in powers.items() if n is not clamp}
            if abs(number * 6 - 1) > _CLOSE and one[0] not in left:
                continue
            return step(node, aten.hardsigmoid.default, one[0]), number * 6, left
    return None


def _gelu(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """x / 2 * (1 + erf(x / sqrt(2))), and with the hyperbolic tangent of a cubic."""
    for factor, power in powers.items():
        total = sum_of(factor) if power == 1 and factor.target in SUMS else None
        one = None if total is None or total.number != 1 else total.of_one()
        if one is None or one[1] != 1 or one[0].target not in (aten.erf.default, aten.tanh.default):
            continue
        for x in [n for n, p in powers.items() if p == 1 and n is not factor]:
            is_erf = one[0].target is aten.erf.default
            if not (_is_scaled if is_erf else _is_cubic)(_source(one[0]), x):
                continue
            left = {n: p for n, p in powers.items() if n not in (factor, x)}
            made = node.graph.call_function(
                aten.gelu.default, (x,), {} if is_erf else {"approximate": "tanh"}
            )
            made.meta.update({k: v for k, v in node.meta.items() if k != "val"})
            made.meta["val"] = torch.empty_like(x.meta["val"])
            return made, number * 2, left
    return None


def _is_scaled(node: Node, x: Node) -> bool:
    source, factor = scaled_of(node)
    return source is x and abs(factor - math.sqrt(0.5)) < _CLOSE


def _is_cubic(node: Node, x: Node) -> bool:
    """sqrt(2 / pi) * (x + 0.044715 * x**3)"""
    product = product_of(node)
    if abs(product.number - _SLOPE) > _CLOSE:
        return False
    others = [n for n in product.powers if n is not x]
    if len(others) != 1 or product.powers[others[0]] != 1:
        return False
    inner = others[0]
    total = sum_of(inner)
    power = product.powers.get(x, 0)
    linear = total.number if power else total.factors.get(x)
    rest = [(n, f) for n, f in total.factors.items() if n is not x]
    if linear != 1 or len(rest) != 1 or power not in (0, 1):
        return False
    cubic = product_of(rest[0][0])
    factor = rest[0][1] * cubic.number
    return cubic.powers == {x: 3 - power} and abs(factor - _CUBIC) < _CLOSE


def _inverse_root(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """1 / sqrt(x); other quotients of roots stay."""
    ((root, power),) = powers.items() if len(powers) == 1 else ((None, 0),)
    if power != -1 or root is None or root.target is not aten.sqrt.default:
        return None
    return step(node, aten.rsqrt.default, root.args[0]), number, {}


def _gated(node: Node, powers: dict[Node, int], number: float) -> _Found:
    """x * sigmoid(x), x * hardsigmoid(x), x * tanh(softplus(x))"""
    for gate, power in powers.items():
        whole = _GATES.get(gate.target) if power == 1 else None
        source = gate.args[0] if gate.args else None
        if gate.target is aten.tanh.default and isinstance(source, Node):
            whole = aten.mish.default if source.target is aten.softplus.default else None
            source = source.args[0] if len(source.args) == 1 else None
        if whole is None or not isinstance(source, Node) or powers.get(source) != 1:
            continue
        left = {n: p for n, p in powers.items() if n not in (gate, source)}
        return step(node, whole, source), number, left
    return None


_FUNCTIONS = (
    aten.gelu.default,
    aten.hardsigmoid.default,
    aten.hardswish.default,
    aten.rsqrt.default,
    aten.sigmoid.default,
    aten.silu.default,
    aten.tanh.default,
)
_GATES: dict[Any, Any] = {
    aten.sigmoid.default: aten.silu.default,
    aten.hardsigmoid.default: aten.hardswish.default,
}


# --- the others -------------------------------------------------------------------------------


def _of_sum(node: Node) -> Node | None:
    """2 * sigmoid(2 * x) - 1"""
    total = sum_of(node)
    one = total.of_one()
    if total.number != -1 or one is None or one[0].target is not aten.sigmoid.default:
        return None
    source, factor = scaled_of(_source(one[0]))
    return step(node, aten.tanh.default, source) if one[1] == factor == 2 else None


def _of_logarithm(node: Node) -> Node | None:
    """log(1 + exp(x)), log(sigmoid(x))"""
    source = _source(node)
    if source.target is aten.sigmoid.default:
        inner = times(_source(source), -1.0, node)
        return step(node, aten.neg.default, step(node, aten.softplus.default, inner))
    exponential: Any = source
    if node.target is aten.log.default:
        total = sum_of(source) if source.target in SUMS else None
        one = None if total is None or total.number != 1 else total.of_one()
        exponential = one[0] if one is not None and one[1] == 1 else None
    if exponential is None or exponential.target is not aten.exp.default:
        return None
    return step(node, aten.softplus.default, _source(exponential))


def _of_clamp(node: Node) -> Node | None:
    """clamp(x / 6 + 1 / 2, 0, 1)"""
    source = node.args[0]
    if _bounds(node) != (0, 1) or not isinstance(source, Node) or source.target not in SUMS:
        return None
    total = sum_of(source)
    one = total.of_one()
    if total.number != 0.5 or one is None or abs(one[1] - 1 / 6) > 1e-4:
        return None
    return step(node, aten.hardsigmoid.default, one[0])


def _of_power(node: Node) -> Node | None:
    roots = {0.5: aten.sqrt.default, -0.5: aten.rsqrt.default}
    exponent = number_of(node.args[1])
    root = None if exponent is None else roots.get(exponent)
    return None if root is None else step(node, root, node.args[0])


def _of_choice(node: Node) -> Node | None:
    """where(x > 0, x, 0), where(x > 0, x, slope * x), where(x > 0, x, exp(x) - 1)"""
    args = arguments(node)
    condition, one, other = args["condition"], args["self"], args["other"]
    if not isinstance(condition, Node) or condition.target not in _COMPARISONS:
        return None
    x, bound = condition.args[:2]
    if number_of(bound) != 0 or not isinstance(x, Node):
        return None
    if condition.target in _BELOW:
        one, other = other, one
    if one is not x:
        return None
    number = number_of(other)
    if number is not None:
        return step(node, aten.relu.default, x) if number == 0 else None
    source, factor = scaled_of(other)
    if source is x:
        return step(node, aten.leaky_relu.default, x, factor)
    total = sum_of(source) if source.target in SUMS else None
    exponential = None if total is None or total.number != -1 else total.of_one()
    if exponential is None or exponential[1] != 1 or exponential[0].target is not aten.exp.default:
        return None
    if _source(exponential[0]) is not x:
        return None
    return step(node, aten.elu.default, x, factor)


_BELOW = (aten.lt.Scalar, aten.le.Scalar)
_COMPARISONS = (aten.gt.Scalar, aten.ge.Scalar, *_BELOW)


def _source(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def _bounds(node: Node) -> tuple[Any, Any] | None:
    if node.target is aten.relu6.default:
        return 0, 6
    if node.target is aten.hardtanh.default:
        args = arguments(node)
        return args["min_val"], args["max_val"]
    if node.target is aten.clamp.default:
        args = arguments(node)
        return args["min"], args["max"]
    return None


_RULES: dict[Any, Callable[[Node], Node | None]] = {
    **dict.fromkeys(PRODUCTS, _of_product),
    **dict.fromkeys(SUMS, _of_sum),
    aten.clamp.default: _of_clamp,
    aten.hardtanh.default: _of_clamp,
    aten.log.default: _of_logarithm,
    aten.log1p.default: _of_logarithm,
    aten.pow.Tensor_Scalar: _of_power,
    aten.where.self: _of_choice,
    aten.where.ScalarOther: _of_choice,
}

__all__ = ["recognize_activations"]
