"""Nothing that torch tags as core ATen may end in "missing operator"."""

from __future__ import annotations

import torch

from edgewise.edge import canonicalize
from edgewise.edge.canonicalize.registry import _NOTHING
from edgewise.edge.normalize import decompositions, is_edge_operator
from edgewise.emit.out_variants import SYMBOLIC, out_variant
from edgewise.runtime import Runtime

# Operator | why it has neither a kernel nor a decomposition.
EXCEPTIONS = {
    "aten._fft_c2r.default": "the runtime has no complex numbers",
    "aten._fft_r2c.default": "the runtime has no complex numbers",
    "aten.sym_storage_offset.default": "exports have numbers for offsets, the dialect no views",
}


def _core() -> list[torch._ops.OpOverload]:
    found = []
    schemas = torch._C._jit_get_all_schemas()
    for name in sorted({s.name for s in schemas if s.name.startswith("aten::")}):
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue  # TorchScript's own
        overloads = [getattr(packet, o) for o in packet.overloads()]
        core = [o for o in overloads if torch.Tag.core in o.tags]
        found += [o for o in core if not any(a.is_out for a in o._schema.arguments)]
    return found


def _way(target: torch._ops.OpOverload, kernels: set[str]) -> str:
    """How a call of the operator reaches a kernel; "" if it does not."""
    if target in canonicalize.RULES or target in _NOTHING:
        return "a rule"
    if target._schema.is_mutable:  # made functional before
        name = target.overloadpacket.__name__
        twin = name.removesuffix("_") if name.endswith("_") else f"{name}_functional"
        target = getattr(torch.ops.aten, twin).default
        if target in canonicalize.RULES:
            return "a rule"
    if not is_edge_operator(target):
        return "a decomposition" if target in decompositions() else ""
    variant = SYMBOLIC.get(target) or out_variant(target)
    if variant is not None:
        name = f"{variant.name}.{variant.overload}".removesuffix(".")
        if name in kernels:
            return "a kernel"
    return "a decomposition" if target in decompositions() else ""


def test_every_core_operator_has_a_kernel_or_a_decomposition() -> None:
    kernels = Runtime.get().operator_registry.operator_names
    core = _core()
    assert len(core) > 180
    without = {str(target) for target in core if not _way(target, kernels)}
    assert without == set(EXCEPTIONS)
