"""Which releases of ExecuTorch run a file, this project's or another's. Takes no torch.

`releases.json` says since when releases have an operator's kernel (portable, quantized and
`llama::` libraries) or a node of the XNNPACK delegate; `tools/release_facts.py` makes it from
the releases themselves. The rest of the rules is here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from edgewise.format.file import read
from edgewise.format.program import KernelCall, Program, Tensor
from edgewise.releases import KNOWN, Release, Target, shown

_UNBOUNDED = 2
_CONVOLUTIONS = ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d")
_PACKING = ("FullyConnected", *_CONVOLUTIONS)
_FP32, _FP16, _QCINT8, _QCINT4, _QBINT4, _QBINT8 = 1, 2, 6, 8, 10, 15
_STORED = (3, _QCINT8, _QCINT4, _QBINT4, _QBINT8)


@dataclass(frozen=True)
class Need:
    """What a file uses, and the first release that has it; None: no release has. processor: where
    earlier ones lack it; empty: everywhere."""

    what: str
    since: Release | None
    processor: str = ""

    def __str__(self) -> str:
        since = f"from {shown(self.since)} on" if self.since else "no release"
        return f"{self.what} ({since}{f', on {self.processor}' if self.processor else ''})"


def needs_of(data: bytes | memoryview) -> list[Need]:
    """What keeps a file from running on the oldest release known, each once.

    ValueError if the bytes are no program or are damaged.
    """
    parsed = read(data)
    return needs_of_program(parsed.program, parsed.segments)


def needs_of_program(program: Program, segments: Sequence[Any]) -> list[Need]:
    """The same of a program and the segments that follow it."""
    found = dict.fromkeys(_needs(program, segments))
    return [need for need in found if need.since != KNOWN[0]]


def beyond(needs: Sequence[Need], target: Target) -> list[Need]:
    """Those that the target's oldest release does not have."""
    return [need for need in needs if need.since is None or not target.covers(need.since)]


def runs_on(needs: Sequence[Need]) -> str:
    """In words: "ExecuTorch 1.1 and later, edgewise", or "edgewise only"."""
    if any(need.since is None for need in needs):
        return "edgewise only"
    oldest = max((need.since for need in needs if need.since), default=KNOWN[0])
    return f"ExecuTorch {shown(oldest)} and later, edgewise"


def kernels_of(target: Target) -> set[str]:
    """Names of the kernels that the target's releases have. `target.oldest` is not None."""
    return {name for name, since in facts()["operators"].items() if target.covers(since)}


def _needs(program: Program, segments: Sequence[Any]) -> Iterator[Need]:
    table = facts()
    for plan in program.execution_plan or []:
        operators = plan.operators or []
        for chain in plan.chains or []:
            for instruction in chain.instructions or []:
                call = instruction.instr_args
                if isinstance(call, KernelCall):
                    one = operators[call.op_index]
                    name = f"{one.name}.{one.overload}".removesuffix(".")
                    yield Need(f"operator {name}", table["operators"].get(name))
                    if name == "aten::convolution.out":
                        weights = (plan.values or [])[(call.args or [])[1]].val
                        if isinstance(weights, Tensor) and len(weights.sizes or []) > 4:
                            yield Need("operator aten::convolution.out of volumes", None)
        for value in plan.values or []:
            if isinstance(value.val, Tensor) and value.val.shape_dynamism == _UNBOUNDED:
                yield Need("a size without a bound", None)
        for delegate in plan.delegates or []:
            place = delegate.processed
            if delegate.id != "XnnpackBackend" or place is None:
                continue
            if place.location == 1:
                payload: Any = segments[place.index]
            else:
                payload = (program.backend_delegate_data or [])[place.index].data
            yield from _of_payload(payload, table["nodes"])


def _of_payload(payload: Any, nodes: Mapping[str, Release]) -> Iterator[Need]:
    from edgewise.backends.xnnpack.payload import INVALID_ID, KINDS, from_bytes

    graph = from_bytes(payload)
    kinds, types = list(KINDS), list(KINDS.values())
    tensors = {}
    for value in graph.xvalues or []:
        tensor = getattr(value.xvalue_union, "tensor_value", value.xvalue_union)
        tensors[tensor.id_out] = tensor
        if tensor.datatype == _QBINT8:
            yield Need("8-bit weights in groups", None)
    for node in graph.xnodes or []:
        member = node.xnode_union
        number, table = (
            member if isinstance(member, tuple) else (types.index(type(member)) + 1, member)
        )
        kind = kinds[number - 1]
        yield Need(f"XNNPACK node {kind}", nodes.get(kind))
        read_from = {
            name: tensors[id_]
            for name, id_ in vars(table).items()
            if name.endswith("_id") and not name.startswith("output") and id_ != INVALID_ID
        }
        yield from _of_weights(kind, read_from)
        grouped = kind == "FullyConnected" and read_from["filter_id"].datatype == _QBINT4
        if grouped and tensors[table.output_id].datatype == _FP16:
            yield Need("4-bit weights in groups beside float16", (1, 5), "x86-64")
        for name, tensor in read_from.items():
            packed = kind in _PACKING and name in ("filter_id", "bias_id")
            if packed and read_from["filter_id"].constant_buffer_idx:
                continue
            index = tensor.constant_buffer_idx
            if index and (graph.constant_data or [])[index].named_key:
                yield Need("constants in named data that are read in place", (1, 4))


def _of_weights(kind: str, read_from: Mapping[str, Any]) -> Iterator[Need]:
    if kind not in _PACKING or not read_from["filter_id"].constant_buffer_idx:
        return
    x, weights = read_from["input1_id"].datatype, read_from["filter_id"].datatype
    if kind in _CONVOLUTIONS and weights == _FP16:
        since = None if kind == "ConvTranspose2d" else (1, 5)
        yield Need(f"float16 weights of {kind}", since)
    if weights in _STORED and x in (_FP32, _FP16):
        linear = kind == "FullyConnected" and x == _FP32 and weights in (_QCINT8, _QCINT4)
        if not linear:
            yield Need(f"integer weights of {kind} computed in floating point", None)


@cache
def facts() -> dict[str, dict[str, Release]]:
    """`operators` and `nodes`, each with the first release that has it."""
    text = files("edgewise.inspect").joinpath("releases.json").read_text()
    return {
        kind: {name: _release(since) for name, since in names.items()}
        for kind, names in json.loads(text).items()
    }


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return int(major), int(minor)
