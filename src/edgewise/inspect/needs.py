"""Which releases of ExecuTorch run a file, this project's or another's, and whether this project's
runtime does. Takes no torch.

`releases.json` says since when releases have an operator's kernel (portable, quantized and
`llama::` libraries) or a node of the XNNPACK delegate, and since when a kernel is right for what
others refuse or get wrong; `tools/release_facts.py` makes it from the releases themselves. The
runtime is asked what it has. The rest of the rules is here and with the backends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from edgewise.format.file import read
from edgewise.format.program import Double, Int, KernelCall, Program, Tensor
from edgewise.registry import Backend, backend_of
from edgewise.releases import KNOWN, Release, Target, shown

_UNBOUNDED = 2
_UINT8, _INT64, _FLOAT16, _FLOAT64, _BFLOAT16 = 0, 4, 5, 7, 15


@dataclass(frozen=True)
class TensorOperand:
    """A tensor that a kernel reads: its scalar type, and its sizes; an open one is a text, the same
    for the same size. In a file it is the bound."""

    scalar_type: int
    sizes: tuple[int | str, ...]


def _adds_a_share_to_one(operands: Sequence[Any]) -> bool:
    """a + alpha * b, where a may be one element and b be more."""
    a, b, alpha = operands[:3]
    may_be_one = all(n == 1 or isinstance(n, str) for n in a.sizes)
    return alpha != 1 and may_be_one and a.sizes != b.sizes and any(n != 1 for n in b.sizes)


def _tensors(operands: Sequence[Any]) -> list[TensorOperand]:
    return [operand for operand in operands if isinstance(operand, TensorOperand)]


# Of what, as `releases.json` says it: whether it is, by a kernel's operands in its schema's order.
_LIMITS: dict[str, Callable[[Sequence[Any]], bool]] = {
    "bfloat16": lambda operands: operands[0].scalar_type == _BFLOAT16,
    "bytes": lambda operands: operands[0].scalar_type == _UINT8,
    "float16": lambda operands: operands[0].scalar_type == _FLOAT16,
    "float64": lambda operands: operands[0].scalar_type == _FLOAT64,
    "images": lambda operands: True,
    "int32 indices": lambda operands: _tensors(operands)[1].scalar_type < _INT64,
    "integers": lambda operands: operands[0].scalar_type < _FLOAT16,
    "alpha and one element first": _adds_a_share_to_one,
}

_CACHE_KERNELS = {
    f"llama::{name}.out" for name in ("update_cache", "custom_sdpa", "sdpa_with_kv_cache")
}


@dataclass(frozen=True)
class Need:
    """What a file uses, and the first release that has it; None: no release has. processor: where
    earlier ones lack it; empty: everywhere. is_ours: whether this project's runtime has it."""

    what: str
    since: Release | None
    processor: str = ""
    is_ours: bool = True

    def __str__(self) -> str:
        since = f"from {shown(self.since)} on" if self.since else "no release"
        processor = f", on {self.processor}" if self.processor else ""
        return f"{self.what} ({since}{processor}{'' if self.is_ours else '; not in edgewise'})"


def needs_of(data: bytes | memoryview) -> list[Need]:
    """What keeps a file from running on the oldest release known, or on this runtime, each once.

    ValueError if the bytes are no program or are damaged.
    """
    parsed = read(data)
    return needs_of_program(parsed.program, parsed.segments)


def needs_of_program(program: Program, segments: Sequence[Any]) -> list[Need]:
    """The same of a program and the segments that follow it."""
    found = dict.fromkeys(_needs(program, segments))
    return [need for need in found if need.since != KNOWN[0] or not need.is_ours]


def beyond(needs: Sequence[Need], target: Target) -> list[Need]:
    """Those that the target's oldest release does not have."""
    return [need for need in needs if need.since is None or not target.covers(need.since)]


def runs_on(needs: Sequence[Need]) -> str:
    """In words: "ExecuTorch 1.1 and later, edgewise", "ExecuTorch 1.1 and later", "edgewise only"
    or "applications that add what is missing"."""
    is_ours = all(need.is_ours for need in needs)
    if any(need.since is None for need in needs):
        return "edgewise only" if is_ours else "applications that add what is missing"
    oldest = max((need.since for need in needs if need.since), default=KNOWN[0])
    return f"ExecuTorch {shown(oldest)} and later{', edgewise' if is_ours else ''}"


def kernels_of(target: Target) -> set[str]:
    """Names of the kernels that the target's releases have. `target.oldest` is not None."""
    operators = facts()["operators"].items()
    return {name for name, since in operators if since is not None and target.covers(since)}


def limits_of(kernel: str, operands: Sequence[Any]) -> Iterator[Need]:
    """What releases refuse or get wrong though they have the kernel. operands: in its schema's
    order, tensors as `TensorOperand`s."""
    for kind, applies in _LIMITS.items():
        key = f"{kernel} {kind}"
        if key in facts()["limits"] and applies(operands):
            yield Need(f"operator {kernel}, right for {kind}", facts()["limits"][key])


def _needs(program: Program, segments: Sequence[Any]) -> Iterator[Need]:
    table, ours = facts(), _own_kernels()
    for plan in program.execution_plan or []:
        operators = plan.operators or []
        for chain in plan.chains or []:
            for instruction in chain.instructions or []:
                call = instruction.instr_args
                if isinstance(call, KernelCall):
                    one = operators[call.op_index]
                    name = f"{one.name}.{one.overload}".removesuffix(".")
                    is_ours = ours is None or name in ours
                    yield Need(f"operator {name}", table["operators"].get(name), is_ours=is_ours)
                    operands = [_operand((plan.values or [])[i].val) for i in call.args or []]
                    yield from limits_of(name, operands)
                    types = {tensor.scalar_type for tensor in _tensors(operands)}
                    if name in _CACHE_KERNELS and len(types) > 1:
                        yield Need(f"operator {name} of caches of another type", None)
                    if name == "aten::convolution.out":
                        weights = (plan.values or [])[(call.args or [])[1]].val
                        if isinstance(weights, Tensor) and len(weights.sizes or []) > 4:
                            yield Need("operator aten::convolution.out of volumes", None)
        for value in plan.values or []:
            if isinstance(value.val, Tensor) and value.val.shape_dynamism == _UNBOUNDED:
                yield Need("a size without a bound", None)
        for delegate in plan.delegates or []:
            reference, backend = delegate.processed, backend_of(delegate.id or "")
            yield from _delegate_needs(delegate.id or "", backend)
            if backend is None or reference is None:
                continue
            if reference.location == 1:
                payload: Any = segments[reference.index]
            else:
                payload = (program.backend_delegate_data or [])[reference.index].data
            yield from backend.needs(payload)


def _delegate_needs(delegate_id: str, backend: Backend | None) -> Iterator[Need]:
    is_ours = _runs_here(delegate_id, backend)
    # Of a delegate that nothing here knows, ExecuTorch's builds for some device may.
    in_executorch = not is_ours if backend is None else backend.in_executorch
    what = f"delegate {delegate_id}" + ("" if is_ours else ", where an application has it")
    if not is_ours or not in_executorch:
        yield Need(what, KNOWN[0] if in_executorch else None, is_ours=is_ours)


def _own_kernels() -> set[str] | None:
    """Kernels of this process; None of a runtime that was not built."""
    try:
        from edgewise.runtime import Runtime
    except ImportError:
        return None
    return Runtime.get().operator_registry.operator_names


def _operand(value: Any) -> Any:
    """A kernel's argument in the file: a number, a `TensorOperand`, or what it is there."""
    if isinstance(value, (Int, Double)):
        return value.int_val if isinstance(value, Int) else value.double_val
    if not isinstance(value, Tensor):
        return value
    return TensorOperand(value.scalar_type, tuple(value.sizes or []))


def _runs_here(delegate_id: str, backend: Backend | None) -> bool:
    """Whether this runtime or `backend`, which is installed, runs such delegates."""
    try:
        from edgewise.runtime import Runtime

        if delegate_id in Runtime.get().backend_registry.registered_backend_names:
            return True
        return backend is not None and backend.runtime_factory() is not None
    except ImportError:
        return backend is not None


@cache
def facts() -> dict[str, dict[str, Release | None]]:
    """`operators` and `nodes`, each with the first release that has it; `limits`, each with the
    first that is right, or None."""
    text = files("edgewise.inspect").joinpath("releases.json").read_text()
    return {
        kind: {name: _release(since) if since else None for name, since in names.items()}
        for kind, names in json.loads(text).items()
    }


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return int(major), int(minor)
