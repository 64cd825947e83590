"""ETDump files by the writer of ExecuTorch's own runtime.

The runtime in its pip package is built without the event tracer, so that it records nothing by
itself; the writer is in there all the same (class ETDumpGen) and exported. It is called here in
the order in which the runtime calls it. Symbols and members are those of the Itanium C++ ABI.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CLASS = "_ZN10executorch6etdump9ETDumpGen"
_OBJECT_BYTES = 4096
"""More than the class has."""


class _Entry(ctypes.Structure):
    """EventTracerEntry."""

    _fields_ = (
        ("event_id", ctypes.c_int64),
        ("chain_id", ctypes.c_int32),
        ("debug_handle", ctypes.c_uint32),
        ("start_time", ctypes.c_uint64),
        ("delegate_event_id_type", ctypes.c_int32),
    )


class _Result(ctypes.Structure):
    """ETDumpResult."""

    _fields_ = (("buf", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Span(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Writer:
    """An ETDumpGen."""

    def __init__(self) -> None:
        from executorch.extension.pybindings import portable_lib  # loads what the library needs

        root = Path(portable_lib.__file__).parents[2]
        self._library = ctypes.CDLL(str(root / "lib" / "libexecutorch_etdump.so"))
        self._object = ctypes.create_string_buffer(_OBJECT_BYTES)
        self._call("C1ENS_7runtime4SpanIhEE", None, [_Span])(_Span(None, 0))

    def _call(self, symbol: str, result: Any, arguments: list[Any]) -> Callable[..., Any]:
        function = getattr(self._library, _CLASS + symbol)
        function.restype = result
        function.argtypes = [ctypes.c_void_p, *arguments]
        return lambda *values: function(ctypes.addressof(self._object), *values)

    def block(self, name: bytes) -> None:
        self._call("18create_event_blockEPKc", None, [ctypes.c_char_p])(name)

    def at(self, chain: int, instruction: int) -> None:
        """Which instruction runs: the base class's first two members, set by an inline function."""
        ctypes.c_int32.from_buffer(self._object, ctypes.sizeof(ctypes.c_void_p)).value = chain
        place = ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_int32)
        ctypes.c_uint32.from_buffer(self._object, place).value = instruction

    def start(self, name: bytes, chain: int, instruction: int) -> _Entry:
        types = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint32]
        entry: _Entry = self._call("15start_profilingEPKcij", _Entry, types)(
            name, chain, instruction
        )
        return entry

    def end(self, entry: _Entry) -> None:
        symbol = "13end_profilingENS_7runtime16EventTracerEntryE"
        self._call(symbol, None, [_Entry])(entry)

    def delegate(self, name: bytes | None, number: int, begin: int, end: int) -> None:
        types = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64]
        types += [ctypes.c_void_p, ctypes.c_size_t]
        call = self._call("22log_profiling_delegateEPKcimmPKvm", None, types)
        call(name, number, begin, end, None, 0)

    def data(self) -> bytes:
        """The file's bytes."""
        result = self._call("15get_etdump_dataEv", _Result, [])()
        return ctypes.string_at(result.buf, result.size)
