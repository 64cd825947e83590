"""The C interface: a program in C11, and the shared library called from ctypes."""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from package_support import ROOT, configure_and_build, expected_top, run, top

import edgewise

HEADER = ROOT / "native" / "include" / "edgewise.h"
INVALID_PROGRAM, INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED, OUT_OF_MEMORY = 1, 2, 3, 4, 5
NONE, TENSOR, INTEGER, NUMBER = 0, 1, 2, 3
INT64, FLOAT32 = 4, 6


class Value(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("type", c_int),
        ("dynamism", c_int),
        ("rank", c_uint32),
        ("sizes", c_int64 * 16),
        ("dim_order", ctypes.c_uint8 * 16),
        ("nbytes", c_size_t),
        ("data", c_void_p),
        ("integer", c_int64),
        ("number", ctypes.c_double),
        ("text", c_char_p),
    )


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("minimal_verification", c_int32),
        ("no_own_kernels", c_int32),
        ("data_files", POINTER(c_char_p)),
        ("data_file_count", c_size_t),
        ("max_memory", c_size_t),
        ("cache_dir", c_char_p),
        ("cache_bytes", c_size_t),
    )


class Library:
    """libedgewise.so. Calls that fail raise RuntimeError with the code and the text."""

    def __init__(self, path: Path) -> None:
        self.raw = ctypes.CDLL(str(path))
        for name in ("last_error", "version", "code_name", "type_name", "program_method_name"):
            getattr(self.raw, f"edgewise_{name}").restype = c_char_p
        for name in ("type_size", "program_method_count", "method_input_count"):
            getattr(self.raw, f"edgewise_{name}").restype = c_size_t
        self.raw.edgewise_buffer_new.restype = c_void_p

    def code(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.raw, f"edgewise_{name}")(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        code = self.code(name, *arguments)
        if code != 0:
            raise RuntimeError(code, self.error())

    def make(self, name: str, *arguments: Any) -> c_void_p:
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def load(self, path: Path, method: bytes = b"forward", session: Any = None) -> c_void_p:
        program = self.make("program_load_file", str(path).encode(), None)
        loaded = self.make("method_load", program, method, session)
        self.raw.edgewise_program_free(program)  # the method keeps it
        return loaded

    def value(self, name: str, method: c_void_p, index: int) -> Value:
        value = Value()
        self.call(name, method, c_size_t(index), byref(value))
        return value

    def set(self, method: c_void_p, index: int, array: np.ndarray) -> None:
        value = tensor(self, array)
        self.call("method_set_input", method, c_size_t(index), byref(value))

    def error(self) -> str:
        return self.raw.edgewise_last_error().decode()


def tensor(library: Library, array: np.ndarray) -> Value:
    value = Value()
    types = {np.dtype(np.float32): FLOAT32, np.dtype(np.int64): INT64}
    sizes = (c_int64 * array.ndim)(*array.shape)
    data = array.ctypes.data_as(c_void_p)
    library.call("make_tensor", byref(value), types[array.dtype], sizes, c_size_t(array.ndim), data)
    return value


def array_of(value: Value) -> np.ndarray:
    assert (value.kind, value.type) == (TENSOR, FLOAT32)
    flat = (ctypes.c_float * (value.nbytes // 4)).from_address(value.data)
    return np.array(flat, np.float32).reshape(list(value.sizes)[: value.rank])


@pytest.fixture(scope="module")
def c(library: Path) -> Library:
    return Library(library)


def test_the_example_in_c11(
    prefix: Path, files: Path, model: torch.nn.Module, image: torch.Tensor, tmp_path: Path
) -> None:
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror"
    build = configure_and_build(ROOT / "examples" / "c", tmp_path, prefix, flags)
    got = top(run(build / "run_model", files / "model.pte", files / "input.bin"))
    want = expected_top(model, image)
    assert [place for place, _ in got] == [place for place, _ in want]
    assert [value for _, value in got] == pytest.approx([value for _, value in want], abs=1e-5)


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    """Its file names folders of the tree that hold what it says."""
    (file,) = prefix.glob("lib*/**/edgewise.pc")
    text = file.read_text()
    root = Path(re.search(r"^prefix=\$\{pcfiledir\}/(.*)$", text, re.M)[1])  # type: ignore[index]
    assert (file.parent / root / "include" / "edgewise.h").exists()
    libdir = re.search(r"^libdir=\$\{prefix\}/(.*)$", text, re.M)[1]  # type: ignore[index]
    assert (file.parent / root / libdir / "libedgewise.so").exists()


def test_versions(c: Library) -> None:
    assert c.raw.edgewise_version().decode() == edgewise.__version__
    (macro,) = re.findall(r"#define EDGEWISE_C_API_VERSION (\d+)", HEADER.read_text())
    assert c.raw.edgewise_c_api_version() == int(macro)


def test_nothing_else_is_exported(library: Path) -> None:
    symbols = run("nm", "-D", "--defined-only", library)
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    declared = set(re.findall(r"\b(edgewise_\w+)\(", HEADER.read_text()))
    assert exported - {"EDGEWISE_1"} == declared


def test_a_run(c: Library, files: Path, model: torch.nn.Module, image: torch.Tensor) -> None:
    method = c.load(files / "model.pte")
    assert c.raw.edgewise_method_input_count(method) == 1
    info = c.value("method_input_info", method, 0)
    assert (info.kind, info.type, info.rank, list(info.sizes[:4])) == (
        TENSOR,
        FLOAT32,
        4,
        [1, 3, 32, 32],
    )
    assert info.nbytes == 4 * 3 * 32 * 32
    assert info.data is None
    c.set(method, 0, image.numpy())
    c.call("method_execute", method)
    got = array_of(c.value("method_output", method, 0))
    np.testing.assert_allclose(got, model(image).detach().numpy(), atol=1e-5)
    # The same image with its channels last.
    channels_last = np.ascontiguousarray(image.permute(0, 2, 3, 1).numpy())
    value = tensor(c, channels_last)
    value.sizes[:4], value.dim_order[:4] = (1, 3, 32, 32), (0, 2, 3, 1)
    c.call("method_set_input", method, c_size_t(0), byref(value))
    c.call("method_execute", method)
    np.testing.assert_array_equal(array_of(c.value("method_output", method, 0)), got)
    # From where it lies: what is written there before the run is what counts.
    image_there = image.numpy() * 0
    value = tensor(c, image_there)
    c.call("method_set_input_zero_copy", method, c_size_t(0), byref(value))
    image_there[:] = image.numpy()
    c.call("method_execute", method)
    np.testing.assert_array_equal(array_of(c.value("method_output", method, 0)), got)
    # By its earlier name, which is there for one version more.
    c.call("method_lend_input", method, c_size_t(0), byref(value))
    c.call("method_execute", method)
    np.testing.assert_array_equal(array_of(c.value("method_output", method, 0)), got)
    # Straight into memory of the caller's.
    buffer, bound = c_void_p(c.raw.edgewise_buffer_new(c_size_t(got.nbytes))), c_int(-1)
    index, size = c_size_t(0), c_size_t(got.nbytes)
    c.call("method_bind_output", method, index, buffer, size, byref(bound))
    c.set(method, 0, image.numpy())
    c.call("method_execute", method)
    value = c.value("method_output", method, 0)
    assert (value.data == buffer.value) == (bound.value == 1)
    np.testing.assert_array_equal(array_of(value), got)
    c.raw.edgewise_method_free(method)
    c.raw.edgewise_buffer_free(buffer)


def test_bytes_and_options(c: Library, files: Path, image: torch.Tensor) -> None:
    data = (files / "model.pte").read_bytes()
    options = Options(ctypes.sizeof(Options), 1, 1, 1)
    program = c.make("program_load_bytes", data, c_size_t(len(data)), byref(options))
    assert c.raw.edgewise_program_method_count(program) == 1
    assert c.raw.edgewise_program_method_name(program, c_size_t(0)) == b"forward"
    assert c.raw.edgewise_program_method_name(program, c_size_t(1)) is None
    method = c.make("method_load", program, b"forward", None)
    c.set(method, 0, image.numpy())
    c.call("method_execute", method)
    c.raw.edgewise_method_free(method)
    c.raw.edgewise_program_free(program)


def test_a_bound_of_memory(c: Library, files: Path) -> None:
    """A caller whose header has no such member sets none, whatever follows its struct."""
    path = str(files / "model.pte").encode()
    for size, code in ((ctypes.sizeof(Options), OUT_OF_MEMORY), (Options.max_memory.offset, 0)):
        options = Options(size, 1, 0, 0, None, 0, 64)
        program = c.make("program_load_file", path, byref(options))
        assert c.code("method_load", program, b"forward", None, byref(c_void_p())) == code
        assert code == 0 or "max_memory is 64 bytes" in c.error()
        c.raw.edgewise_program_free(program)


def test_cache_dir(c: Library, files: Path, tmp_path: Path, image: torch.Tensor) -> None:
    path, cache = str(files / "model.pte").encode(), tmp_path / "cache"
    for cache_bytes in (0, 1 << 30):
        options = Options(
            ctypes.sizeof(Options), 1, cache_dir=str(cache).encode(), cache_bytes=cache_bytes
        )
        program = c.make("program_load_file", path, byref(options))
        method = c.make("method_load", program, b"forward", None)
        assert list(cache.glob("packed/*/*"))
        c.set(method, 0, image.numpy())
        c.call("method_execute", method)
        c.raw.edgewise_method_free(method)
        c.raw.edgewise_program_free(program)


def test_written_inputs(c: Library, files: Path) -> None:
    method = c.load(files / "written.pte")
    zeros = np.zeros(2, np.float32)
    value, index = Value(), c_size_t(0)
    assert c.raw.edgewise_method_written_input(method, index, byref(value)) != 0  # no run yet
    c.set(method, 0, zeros)
    c.call("method_execute", method)
    np.testing.assert_array_equal(array_of(c.value("method_written_input", method, 0)), [1, 1])
    np.testing.assert_array_equal(zeros, [0, 0])
    c.raw.edgewise_method_free(method)
    method = c.load(files / "state.pte")
    c.set(method, 0, zeros)
    c.call("method_execute", method)
    assert c.raw.edgewise_method_written_input(method, index, byref(value)) != 0
    assert "only reads input 0" in c.error()
    c.raw.edgewise_method_free(method)


def test_state(c: Library, files: Path) -> None:
    program = c.make("program_load_file", str(files / "state.pte").encode(), None)
    session = c.make("session_new", program)
    method = c.make("method_load", program, b"forward", session)
    c.raw.edgewise_session_free(session)
    c.raw.edgewise_program_free(program)

    def step() -> float:
        c.set(method, 0, np.zeros(2, np.float32))
        c.call("method_execute", method)
        return float(array_of(c.value("method_output", method, 0))[0])

    assert [step(), step()] == [1, 2]
    c.call("method_reset", method)
    assert step() == 1
    c.raw.edgewise_method_free(method)


def test_kinds_and_dynamic_shapes(c: Library, files: Path) -> None:
    method = c.load(files / "kinds.pte")
    info = c.value("method_input_info", method, 0)
    assert (info.dynamism, list(info.sizes[:2])) == (1, [4, 2])  # up to
    for rows in (4, 1):
        x = np.full((rows, 2), rows, np.float32)
        c.set(method, 0, x)
        c.call("method_set_input", method, c_size_t(1), byref(Value(kind=INTEGER, integer=5)))
        c.call("method_execute", method)
        np.testing.assert_array_equal(array_of(c.value("method_output", method, 0)), x * 2)
    number = c.value("method_output", method, 1)
    assert (number.kind, number.integer) == (INTEGER, 5)
    assert c.value("method_output", method, 2).kind == NONE
    c.raw.edgewise_method_free(method)


def test_errors(c: Library, files: Path, tmp_path: Path, image: torch.Tensor) -> None:
    (tmp_path / "text.pte").write_text("no program" * 100)
    method, handle = c.load(files / "model.pte"), c_void_p()
    program = c.make("program_load_file", str(files / "model.pte").encode(), None)
    good = tensor(c, image.numpy())
    zeros = np.zeros((1, 3, 32, 33), np.float32)
    wide = tensor(c, zeros)
    long = tensor(c, image.numpy())
    long.nbytes += 4
    later = (ctypes.c_char * 256)(*bytes(Options(256, 1))[:16], *b"\0" * 100, 1)
    zero, one, seven = c_size_t(0), c_size_t(1), c_size_t(7)
    load, set_input = "program_load_file", "method_set_input"
    path = str(files / "model.pte").encode()
    cases = [
        (NOT_FOUND, "missing.pte", load, b"missing.pte", None, byref(handle)),
        (INVALID_PROGRAM, "", load, str(tmp_path / "text.pte").encode(), None, byref(handle)),
        (INVALID_ARGUMENT, "`path` must point", load, None, None, byref(handle)),
        (INVALID_ARGUMENT, "`result` must point", load, path, None, None),
        (INVALID_ARGUMENT, "struct_size", load, path, byref(Options(8)), byref(handle)),
        (
            INVALID_ARGUMENT,
            "threads",
            load,
            path,
            byref(Options(ctypes.sizeof(Options), -1)),
            byref(handle),
        ),
        (UNSUPPORTED, "a later release", load, path, byref(later), byref(handle)),
        (NOT_FOUND, "backward", "method_load", program, b"backward", None, byref(handle)),
        (INVALID_ARGUMENT, "has 1 inputs; got input 7", set_input, method, seven, byref(good)),
        (INVALID_ARGUMENT, r"float32[1, 3, 32, 33]", set_input, method, zero, byref(wide)),
        (INVALID_ARGUMENT, "`nbytes`", set_input, method, zero, byref(long)),
        (INVALID_ARGUMENT, "`kind`", set_input, method, zero, byref(Value(kind=99))),
        (INVALID_ARGUMENT, "`kind`", set_input, method, zero, byref(Value(kind=5))),
        (INVALID_ARGUMENT, "17", set_input, method, zero, byref(Value(kind=1, rank=17))),
        (INVALID_ARGUMENT, "got int", set_input, method, zero, byref(Value(kind=INTEGER))),
        (INVALID_ARGUMENT, "every input must be set", "method_execute", method),
        (INVALID_ARGUMENT, "execute has succeeded", "method_output", method, zero, byref(good)),
        (INVALID_ARGUMENT, "got output 1", "method_output", method, one, byref(good)),
        (INVALID_ARGUMENT, "got output 1", "method_output_info", method, one, byref(good)),
        (INVALID_ARGUMENT, "`method` must point", "method_execute", None),
        (NOT_FOUND, "load_kernels", "load_kernels", b"missing.so"),
        (UNSUPPORTED, "element type 99", "make_tensor", byref(Value()), 99, None, zero, None),
    ]
    for code, text, name, *arguments in cases:
        assert c.code(name, *arguments) == code, (name, text, c.error())
        assert text in c.error(), name
        assert re.match(r"\[[^]]+\] ", c.error()), c.error()
    assert handle.value is None
    assert c.raw.edgewise_code_name(INVALID_ARGUMENT) == b"invalid argument"
    for what in ("program", "method", "session"):
        getattr(c.raw, f"edgewise_{what}_free")(None)
    assert c.raw.edgewise_method_input_count(None) == 0
    c.raw.edgewise_method_free(method)
    c.raw.edgewise_program_free(program)


def test_the_page_lists_all_functions() -> None:
    page = (ROOT / "docs" / "c.md").read_text()
    functions = set(re.findall(r"\b(edgewise_\w+)\(", HEADER.read_text()))
    assert functions <= set(re.findall(r"edgewise_\w+", page))
