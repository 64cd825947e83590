"""LiteRT's interpreter in a process of its own: what it reads comes from a file.

    python -m edgewise.backends.neutron.reference_process BYTES

A damaged program can end the interpreter's process, or make it ask for any amount of memory:
BYTES is the most that it may have. Requests come on standard input and answers go to the
descriptor that was standard output, each as `write` writes it; it ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_HEAD = struct.Struct("<IQ")  # bytes of the text, of what follows it


def write(stream: BinaryIO, message: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
    """A message and arrays: lengths, JSON, then the elements of each in row-major order."""
    plain = [np.asarray(a, order="C") for a in arrays]
    message = {**message, "arrays": [[a.dtype.str, a.shape] for a in plain]}
    text = json.dumps(message).encode()
    stream.write(_HEAD.pack(len(text), sum(a.nbytes for a in plain)) + text)
    for array in plain:
        stream.write(array.tobytes())
    stream.flush()


def read(stream: BinaryIO) -> tuple[dict[str, Any], list[Array]]:
    """What `write` wrote. EOFError where the stream ends; ValueError if it was something else."""
    size, rest = _HEAD.unpack(_exactly(stream, _HEAD.size))
    message: dict[str, Any] = json.loads(_exactly(stream, size))
    arrays = []
    for kind, shape in message["arrays"]:
        dtype = np.dtype(kind)
        if dtype.hasobject:
            raise ValueError("an array of objects")
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        rest -= count
        if rest < 0:
            raise ValueError("arrays longer than what follows")
        arrays.append(np.frombuffer(_exactly(stream, count), dtype).reshape(shape))
    return message, arrays


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


_LONG_SOFTMAX = 512
"""The reference of a softmax in 8 bits ends the process where a sum of exponentials, of which the
largest is 1, has more than nine bits."""


def _interpreter(model: bytes) -> Any:
    """With LiteRT's reference kernels, or its ordinary ones where those do not do: the reference of
    SUM gives one number for every element, that of SOFTMAX has a largest length."""
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_REF
    read = schema.Model.GetRootAs(model)
    codes = [read.OperatorCodes(i) for i in range(read.OperatorCodesLength())]
    numbers = [max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) for code in codes]
    for graph in map(read.Subgraphs, range(read.SubgraphsLength())):
        for operator in map(graph.Operators, range(graph.OperatorsLength())):
            kind = numbers[operator.OpcodeIndex()]
            is_sum = kind == schema.BuiltinOperator.SUM
            if is_sum or (
                kind == schema.BuiltinOperator.SOFTMAX
                and graph.Tensors(operator.Inputs(0)).ShapeAsNumpy()[-1] >= _LONG_SOFTMAX
            ):
                resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    # Every tensor in memory of its own: else a sum is written over what it reads, even where that
    # is another tensor in another shape, which is still read.
    return Interpreter(
        model_content=model,
        experimental_op_resolver_type=resolver,
        experimental_preserve_all_tensors=True,
    )


class _Programs:
    """Interpreters by the number that the parent gave them."""

    def __init__(self) -> None:
        self._loaded: dict[int, Any] = {}

    def answer(self, asked: dict[str, Any], arrays: list[Array]) -> tuple[dict[str, Any], Any]:
        """Of one request: "load", "run" or "forget"."""
        number = asked["program"]
        if asked["do"] == "forget":
            self._loaded.pop(number, None)
            return {}, ()
        if asked["do"] == "load":
            interpreter = _interpreter(arrays[0].tobytes())
            interpreter.allocate_tensors()
            self._loaded[number] = interpreter
            counts = (interpreter.get_input_details(), interpreter.get_output_details())
            return {"counts": [len(details) for details in counts]}, ()
        interpreter = self._loaded[number]
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        outputs = interpreter.get_output_details()
        return {}, [np.asarray(interpreter.get_tensor(detail["index"])) for detail in outputs]


def main(most_bytes: int) -> None:
    """Answers until the parent closes the pipe."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What the interpreter prints goes to the log, not between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    programs = _Programs()
    while True:
        try:
            asked, arrays = read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            message, results = programs.answer(asked, arrays)
        except Exception as failure:
            kind = "ImportError" if isinstance(failure, ImportError) else "ValueError"
            message, results = {"error": f"{type(failure).__name__}: {failure}", "kind": kind}, ()
        write(answers, message, results)


if __name__ == "__main__":
    main(int(sys.argv[1]))
