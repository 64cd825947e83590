"""From a functional operator to the out-variant that the runtime calls."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from edgewise.edge.cache_operators import CACHES
from edgewise.edge.layout import dim_order

aten = torch.ops.aten

# How a new tensor is made is up to the memory plan: out-variants have no such arguments.
_FACTORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    default: Any = None


@dataclass(frozen=True)
class OutVariant:
    """name and overload as the runtime registers them; `arguments` without the outputs."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]
    outputs: int


def _primitive(name: str, overload: str = "Scalar", *operands: str) -> OutVariant:
    names = operands or ("a", "b")
    return OutVariant(name, overload, tuple(Argument(n, "number") for n in names), 1)


# Arithmetic on sizes. These calls have no out argument: the result is a value of its own.
SYMBOLIC: dict[Any, OutVariant] = {
    aten.sym_size.int: OutVariant(
        "aten::sym_size", "int", (Argument("self", "Tensor"), Argument("dim", "int")), 1
    ),
    aten._local_scalar_dense.default: OutVariant(
        "aten::_local_scalar_dense", "", (Argument("self", "Tensor"),), 1
    ),
    aten.sym_numel.default: OutVariant("aten::sym_numel", "", (Argument("self", "Tensor"),), 1),
    aten._local_scalar_dense.default: OutVariant(
        "aten::_local_scalar_dense", "", (Argument("self", "Tensor"),), 1
    ),
    operator.add: _primitive("executorch_prim::add"),
    operator.sub: _primitive("executorch_prim::sub"),
    operator.mul: _primitive("executorch_prim::mul"),
    operator.floordiv: _primitive("executorch_prim::floordiv"),
    operator.truediv: _primitive("executorch_prim::truediv"),
    operator.mod: _primitive("executorch_prim::mod"),
    operator.neg: _primitive("executorch_prim::neg", "Scalar", "a"),
    operator.eq: _primitive("executorch_prim::eq"),
    operator.lt: _primitive("executorch_prim::lt"),
    operator.le: _primitive("executorch_prim::le"),
    operator.gt: _primitive("executorch_prim::gt"),
    operator.ge: _primitive("executorch_prim::ge"),
    operator.ne: _primitive("executorch_prim::ne"),
    torch.sym_max: _primitive("executorch_prim::sym_max"),
    torch.sym_min: _primitive("executorch_prim::sym_min"),
    torch.sym_float: _primitive("executorch_prim::sym_float", "Scalar", "a"),
    torch.sym_int: _primitive("executorch_prim::sym_int", "Scalar", "a"),
    torch.sym_not: _primitive("executorch_prim::sym_not", "Scalar", "a"),
    torch.sym_ite: _primitive("executorch_prim::sym_ite", "Scalar", "b", "t", "f"),
    math.ceil: _primitive("executorch_prim::ceil", "Scalar", "a"),
    round: _primitive("executorch_prim::round", "Scalar", "a"),
    math.trunc: _primitive("executorch_prim::trunc", "Scalar", "a"),
}

# Memory formats travel as dim orders.
_DIM_ORDER = (
    Argument("self", "Tensor"),
    Argument("non_blocking", "bool", False),
    Argument("dim_order", "int[]?"),
)
_SPECIAL: dict[Any, OutVariant] = {
    aten._to_copy.default: OutVariant("dim_order_ops::_to_dim_order_copy", "out", _DIM_ORDER, 1),
    aten.clone.default: OutVariant("dim_order_ops::_clone_dim_order", "out", _DIM_ORDER, 1),
}


def special_arguments(node: torch.fx.Node) -> dict[str, Any] | None:
    """Arguments of the operators that are spelt differently in the runtime."""
    if node.target not in _SPECIAL:
        return None
    order = list(dim_order(node.meta["val"]))
    return {"self": node.args[0], "non_blocking": False, "dim_order": order}


@cache
def out_variant(target: Any) -> OutVariant | None:
    """The out-variant with the same arguments, or None if the operator has none."""
    if target in _SPECIAL:
        return _SPECIAL[target]
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if target.namespace in _QUANTIZATION or target in _NAMED_HERE:
        return _own(target)
    wanted = {a.name: str(a.type) for a in target._schema.arguments}
    packet = target.overloadpacket
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        outputs = [a for a in candidate._schema.arguments if a.is_out]
        if not outputs or len(outputs) != max(1, len(target._schema.returns)):
            continue
        given = [a for a in candidate._schema.arguments if not a.is_out]
        have = {a.name: str(a.type) for a in given}
        if all(have.get(n) == t for n, t in wanted.items() if n not in _FACTORY) and all(
            n in wanted for n in have
        ):
            return OutVariant(
                candidate._schema.name,
                candidate._schema.overload_name,
                tuple(Argument(a.name, str(a.type), _default(a)) for a in given),
                len(outputs),
            )
    return None if target.namespace in ("aten", "prims") else _custom(target)


_QUANTIZATION = ("quantized_decomposed", "torchao", "edgewise", "llama")
# Operators for which PyTorch declares no out-variant.
_NAMED_HERE = {aten._native_batch_norm_legit_functional.default}


_OF_CACHES = {
    f"edgewise::{name}" for name in ("custom_sdpa", "custom_quantized_sdpa", "gated_delta_rule")
}
_OVERLOADS = {"tensor": "Tensor_out", "dtype": "dtype_out"}


def mutable_variant(target: torch._ops.OpOverload) -> OutVariant | None:
    """A custom operator that writes its arguments, under its own name; None if it also returns
    something. Its calls name what is written once more, as what they return."""
    schema = target._schema
    if schema.returns or not schema.is_mutable:
        return None
    arguments = tuple(Argument(a.name, str(a.type), _default(a)) for a in schema.arguments)
    return OutVariant(schema.name, schema.overload_name, arguments, 0)


def _custom(target: torch._ops.OpOverload) -> OutVariant | None:
    """The name that an out-variant of a user's operator would have, though there is none."""
    schema = target._schema
    kinds = {str(r.type) for r in schema.returns}
    if schema.is_mutable or not schema.returns or kinds != {"Tensor"}:
        return None
    overload = f"{schema.overload_name}_out" if schema.overload_name else "out"
    arguments = tuple(Argument(a.name, str(a.type), _default(a)) for a in schema.arguments)
    return OutVariant(schema.name, overload, arguments, len(schema.returns))


def _own(target: torch._ops.OpOverload) -> OutVariant:
    """Out-variants that only the runtime knows: the same arguments, and the results."""
    schema = target._schema
    overload = _OVERLOADS.get(schema.overload_name, "out")
    arguments = tuple(Argument(a.name, str(a.type), _default(a)) for a in schema.arguments)
    if target in CACHES:
        name = schema.name.replace("edgewise::", "llama::").removesuffix("_functional")
        return OutVariant(name, overload, arguments, 1)
    if schema.name in _OF_CACHES:
        name = schema.name.replace("edgewise::", "llama::")
        return OutVariant(name, overload, arguments, len(schema.returns))
    # Embeddings are defined under our own name (`edge.quantized_embeddings`).
    name = schema.name.replace("edgewise::", "quantized_decomposed::")
    return OutVariant(name, overload, arguments, len(schema.returns))


def _default(argument: Any) -> Any:
    return argument.default_value if argument.has_default_value() else None
