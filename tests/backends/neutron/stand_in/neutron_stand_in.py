"""A STAND-IN for NXP's converter: its module interface and the contract of its output, no more.

It compiles nothing: microcode, weights and kernels are blocks with valid headers whose contents
are digests of the program. `STAND_IN` in the environment makes it fail in the ways of the real
one; see `_FAILURES`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as tfl

_TARGETS = {
    "imxrt700": SimpleNamespace(
        name="imxrt700", subsystem=False, numUnits=1, numPipes=8, numMacs=8, hwVersion=2
    ),
    "mcxn94x": SimpleNamespace(
        name="mcxn94x", subsystem=False, numUnits=1, numPipes=4, numMacs=4, hwVersion=1
    ),
    "imx95": SimpleNamespace(
        name="imx95", subsystem=True, numUnits=4, numPipes=16, numMacs=16, hwVersion=2
    ),
}
MAGIC = 0x64434D6E


class CompilationContext:
    """Options are attributes, as the real one's."""

    def __init__(self) -> None:
        self.targetOpts: Any = None
        self.compilationOpts = SimpleNamespace(
            minNumOpsPerGraph=1,
            excludeGraphPasses="",
            fetchConstantsToSRAM=False,
            dumpKernelSelectionCode=False,
        )


def getNeutronTarget(name: str) -> Any:
    if name not in _TARGETS:
        os.kill(os.getpid(), signal.SIGABRT)  # the real one crashes, too
    return _TARGETS[name]


def isNeutronTarget(name: str) -> bool:
    return name in _TARGETS


def getNeutronTargets() -> list[Any]:
    return list(_TARGETS.values())


def convertModel(model: list[int], context: CompilationContext) -> list[int]:
    data = bytes(model)
    failure = os.environ.get("STAND_IN", "")
    kind, _, detail = failure.partition(":")
    if kind not in ("", "version1", "fixed"):
        _FAILURES[kind](detail)
    if kind == "unchanged":
        return list(data)
    if context.compilationOpts.dumpKernelSelectionCode:
        Path("_kernel_selection.c").write_text("/* kernels */\n")
    graphs = {"two_operators": 2, "no_graph": 0}.get(kind, 1)
    seed = b"" if kind == "fixed" else data  # the blocks then do not depend on the program
    left = detail if kind == "leaves" else None
    converted = _converted(data, seed, context, int(kind == "version1"), graphs, left)
    if kind == "no_input":
        converted = _without_an_input(converted)
    return list(converted[: len(converted) // 2] if kind == "cut" else converted)


def _hang(detail: str) -> None:
    print("still at it", flush=True)
    time.sleep(60)


def _exit(detail: str) -> None:
    print("giving up", flush=True)
    os._exit(int(detail))


def _crash(detail: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _refuse(detail: str) -> None:
    print(f"ERROR: operator {detail} is not supported", flush=True)
    os._exit(1)


def _raise(detail: str) -> None:
    raise RuntimeError(detail or "conversion failed")


def _nothing(detail: str) -> None:
    """The output is what is wrong."""


_FAILURES = {
    "hang": _hang,
    "exit": _exit,
    "crash": _crash,
    "refuse": _refuse,
    "raise": _raise,
    "cut": _nothing,
    "two_operators": _nothing,
    "no_graph": _nothing,
    "no_input": _nothing,
    "leaves": _nothing,
    "unchanged": _nothing,
}


def _without_an_input(converted: bytes) -> bytes:
    """The NeutronGraph reads a tensor that is none of the program's inputs."""
    model = tfl.ModelT.InitFromPackedBuf(converted, 0)
    graph = model.subgraphs[0]
    graph.inputs = list(graph.inputs)[1:]
    return _packed(model)


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _converted(
    data: bytes,
    seed: bytes,
    context: CompilationContext,
    version: int,
    graphs: int,
    left: str | None,
) -> bytes:
    """left: beside the NeutronGraph stay the operators whose result's name has this in it."""
    model = tfl.ModelT.InitFromPackedBuf(data, 0)
    (graph,) = model.subgraphs
    digest = hashlib.sha256(seed).digest()
    weights = digest * (1 + len(seed) % 5)
    kernels = digest[: 8 + len(seed) % 16]
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    microcode = _microcode(len(inputs), len(outputs), len(weights), version, context)
    used = sorted({*inputs, *outputs})
    tensors = [graph.tensors[i] for i in used]
    for tensor in tensors:
        tensor.buffer = 0
    place = {old: new for new, old in enumerate(used)}
    buffers = [tfl.BufferT()]
    constants = []
    for name, blob in (("microcode", microcode), ("weights", weights), ("kernels", kernels)):
        buffer = tfl.BufferT()
        buffer.data = list(blob)
        buffers.append(buffer)
        constants.append(_bytes(tensors, name, len(blob), len(buffers) - 1))
    extra = ["scratch", "profile", "debug"][: 3 if version else 1]
    made = [_bytes(tensors, name, 16, 0) for name in extra]
    # The node's order of inputs is its own.
    node_inputs = [place[i] for i in reversed(inputs)]
    results = [place[i] for i in outputs]
    others = made[1:] + made[:1]
    node = tfl.OperatorT()
    node.opcodeIndex = 0
    node.inputs = node_inputs + constants
    node.outputs = results + others
    code = tfl.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tfl.BuiltinOperator.CUSTOM
    code.customCode = "NeutronGraph"
    stay = [op for op in graph.operators if left and left in _name(graph, op)]
    codes = [model.operatorCodes[op.opcodeIndex] for op in stay]
    for number, op in enumerate(stay):
        tensor = graph.tensors[op.outputs[0]]
        tensor.buffer = 0
        tensors.append(tensor)
        op.inputs, op.outputs, op.opcodeIndex = [], [len(tensors) - 1], 1 + number
    graph.tensors = tensors
    graph.inputs = [place[i] for i in inputs]
    graph.outputs = results
    graph.operators = [node] * graphs + stay
    model.operatorCodes = [code, *codes]
    model.buffers = buffers
    return _packed(model)


def _name(graph: Any, op: Any) -> str:
    name = graph.tensors[op.outputs[0]].name
    return name.decode() if isinstance(name, bytes) else str(name)


def _bytes(tensors: list[Any], name: str, size: int, buffer: int) -> int:
    tensor = tfl.TensorT()
    tensor.name, tensor.shape = name, [size]
    tensor.type, tensor.buffer = tfl.TensorType.UINT8, buffer
    tensors.append(tensor)
    return len(tensors) - 1


def _microcode(
    inputs: int, outputs: int, weights: int, version: int, context: CompilationContext
) -> bytes:
    """A header of 16 words as the runtime reads it, then the options as text."""
    text = repr(sorted(vars(context.compilationOpts).items())).encode()
    words = [0] * 16
    words[0], words[6], words[7] = MAGIC, 64 + len(text), weights
    if version:
        words[9:15] = [64, 16, 16, 0, inputs, outputs]
    else:
        words[9:13] = [64, 0, inputs, outputs]
    return struct.pack("<16I", *words) + text
