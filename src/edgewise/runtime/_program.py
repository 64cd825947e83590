"""Programs, methods, and the runtime that loads them."""

from __future__ import annotations

import enum
import errno
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgewise.runtime import _native, _profiles
from edgewise.runtime._backends import register_own
from edgewise.runtime._metadata import MethodMeta
from edgewise.runtime._operations import DelegateOperation, delegate_operations
from edgewise.runtime.errors import InvalidArgumentError, InvalidProgramError

__all__ = [
    "BackendRegistry",
    "Method",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "Session",
    "Verification",
]


_COMPILE = "edgewise.compile(torch.export.load(path)) or of the module that it holds weights of"


class Verification(enum.Enum):
    """How much of a file is checked when it is loaded."""

    Minimal = 0
    """Header, magic and bounds: for files that are trusted."""
    InternalConsistency = 1
    """The whole file, every index, offset and size in it: safe for any bytes."""
    Full = 2
    """The same of a copy in memory, and not of the mapped file, for files that others write to."""


class Method:
    """A method with memory of its own. May be used by several threads: calls take turns."""

    def __init__(self, method: _native.Method, path: str = "") -> None:
        self._method = method
        self._path = path

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the method.

        Args:
            inputs: one item for each input. For a tensor: a numpy array or any object with
                `__dlpack__` in CPU memory, of the input's element type and shape, with any
                strides. For a number or None: that. What the method writes (`x.add_(1)`) is written
                to the array after the run, which must be writable.

        Returns:
            One item for each output: a numpy array of its own, a number, or None. bfloat16
            comes as ml_dtypes.bfloat16 where that package is installed, else as float32.

        Raises:
            InvalidArgumentError: inputs are not what the method takes.
            BackendError: a delegate failed.
            Error: an operator failed.
        """
        if not isinstance(inputs, (list, tuple)):
            inputs = _as_list(inputs)
        if _profiles.active:
            return _profiles.execute(self._method, self._path, inputs)
        return self._method.execute(inputs)

    @functools.cached_property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._method.info)

    def delegate_operations(self) -> list[list[DelegateOperation]]:
        """For each delegate what it runs, by which kernels, and what others of these ask for.

        For the sizes of its last run, or before it the largest. An empty list for a delegate whose
        backend does not tell.
        """
        return delegate_operations(self._method)

    def get_attribute(self, name: str) -> Any:
        """What a mutable buffer of `metadata.attributes` holds now: an array of its own.

        KeyError if the program has none of this name.
        """
        try:
            return self._method.attribute(name)
        except KeyError:
            known = ", ".join(self.metadata.attributes) or "none"
            raise KeyError(
                f"[{self.metadata.name()}] a mutable buffer must be one of {known}; got {name!r}; "
                "try lowering with ExecutorchBackendConfig(emit_mutable_buffer_names=True)"
            ) from None

    def reset(self) -> None:
        """Puts the state of the method and of its session back to its first values."""
        self._method.reset()

    def __repr__(self) -> str:
        return f"<edgewise Method {self.metadata.name()!r}>"


class Session:
    """The state of a program's methods: what one of them leaves in a shared buffer the others
    find there. Sessions have only weights in common. Calls of one session's methods take turns.
    """

    def __init__(self, program: _native.Program, path: str = "") -> None:
        self._program = program
        self._path = path
        self._session = program.new_session()

    def load_method(self, name: str) -> Method:
        """Makes a method of the session ready to run. Raises as `Program.load_method`."""
        register_own(d.backend for d in self._program.method_info(name).delegates)
        return Method(self._program.load_method(name, self._session), self._path)


class Program:
    """A loaded `.pte` file. May be used by several threads at once."""

    def __init__(self, program: _native.Program, path: str = "") -> None:
        self._program = program
        self._path = path

    @property
    def method_names(self) -> set[str]:
        return set(self._program.method_names)

    @property
    def size_bytes(self) -> int:
        return self._program.size_bytes

    def load_method(self, name: str) -> Method:
        """Makes a method ready to run, in a session of its own.

        Raises:
            NotFoundError: no such method, or an operator or backend of it is not there.
            InvalidProgramError: the method breaks a rule of the format.
            BackendError: a backend refused its part.
        """
        return self.new_session().load_method(name)

    def new_session(self) -> Session:
        """State for methods that share buffers, at its first values."""
        return Session(self._program, self._path)

    def metadata(self, method_name: str) -> MethodMeta:
        """What there is to know of a method without loading it. Raises NotFoundError."""
        return MethodMeta(self._program.method_info(method_name))

    def __repr__(self) -> str:
        return f"<edgewise Program, methods {sorted(self.method_names)}>"


class BackendRegistry:
    """The backends that can run delegates."""

    @property
    def registered_backend_names(self) -> list[str]:
        return _native.backend_names()

    def is_available(self, backend_name: str) -> bool:
        """Whether the backend is registered and can run on this machine."""
        return _native.is_backend_available(backend_name)


class OperatorRegistry:
    """The operators that the runtime computes itself."""

    @property
    def operator_names(self) -> set[str]:
        """Names as in a file: "aten::add.out"."""
        return set(_native.operator_names())


class Runtime:
    """The runtime of this process: what it has, and the way to load a program."""

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        """The one instance."""
        return Runtime()

    def load_program(
        self,
        data: str | Path | bytes | bytearray | memoryview | BinaryIO,
        *,
        verification: Verification = Verification.InternalConsistency,
        threads: int | None = None,
        data_path: str | Path | Sequence[str | Path] | None = None,
        own_kernels: bool = True,
        max_memory: int | None = None,
        cache_dir: str | Path | None = None,
        cache_bytes: int = 8 << 30,
    ) -> Program:
        """Loads a `.pte` file.

        Args:
            data: a path, whose file is mapped, or the contents of a file, which are copied. What
                becomes of a mapped file is seen: nobody may write to it. Where it was cut short,
                calls that read what is gone raise Error.
            verification: how much of it is checked; Full: of a copy, also of `data_path`'s files.
            threads: that loops are shared among; None: one per physical core.
            data_path: the file or files (`.ptd`) with the weights that are not in the program.
                They are mapped; programs that name the same file share its memory.
            own_kernels: whether backends may use kernels of their own where these are faster
                than their library's; False: to compare the two.
            max_memory: the most bytes that a method may plan for, with the state that methods
                share, that a tensor whose size only the run tells may grow to, and that an XNNPACK
                delegate may plan for its intermediate results: for files of others. Not counted:
                weights that libraries pack, and what they take besides. None: no bound.
            cache_dir: a folder in which packed weights are kept, so that later loads map them, and
                processes share their memory. It is made if there is none, and must be one that
                only this user, or root, can write to. None: nothing is kept. What is wrong with
                it is a RuntimeWarning, and the program is loaded without.
            cache_bytes: the most that may lie there, of all programs; what was not used for
                longest is removed.

        Raises:
            FileNotFoundError, OSError: the file cannot be read.
            InvalidProgramError: it is no valid program.
            TypeError: `data` is something else.
        """
        checks = _check_verification(verification)
        count = _check_threads(threads)
        if not isinstance(own_kernels, bool):
            raise TypeError(f"[load_program] own_kernels must be a bool; got {own_kernels!r}")
        if max_memory is not None and (type(max_memory) is not int or max_memory <= 0):
            raise ValueError(
                f"[load_program] max_memory must be a number of bytes, 1 or more, or None; "
                f"got {max_memory!r}"
            )
        if type(cache_bytes) is not int or cache_bytes <= 0:
            raise ValueError(
                f"[load_program] cache_bytes must be a number of bytes, 1 or more; "
                f"got {cache_bytes!r}"
            )
        cache = (_cache_folder(cache_dir), cache_bytes)
        most = max_memory or 0
        paths = [data_path] if isinstance(data_path, (str, os.PathLike)) else data_path or []
        files = [_readable(path) for path in paths]
        if isinstance(data, (str, os.PathLike)):
            path = _readable(data)
            try:
                program = _native.load_file(path, checks, count, own_kernels, most, files, *cache)
            except InvalidProgramError as error:
                with open(path, "rb") as file:
                    raise _explained(error, file.read(64), str(data)) from None
            return Program(program, os.path.abspath(os.fsdecode(data)))
        if not isinstance(data, (bytes, bytearray, memoryview)):
            if not hasattr(data, "read"):
                hint = "; try its .buffer, or save it" if hasattr(data, "buffer") else ""
                raise TypeError(
                    "[load_program] data must be a path, bytes or a file open for reading; "
                    f"got {type(data).__name__}{hint}"
                )
            data = data.read()
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(
                    "[load_program] a file must be open in binary mode; "
                    f"got {type(data).__name__} from read(); try open(path, 'rb')"
                )
        if isinstance(data, memoryview) and not data.c_contiguous:
            data = bytes(data)
        try:
            return Program(
                _native.load_bytes(data, checks, count, own_kernels, most, files, *cache)
            )
        except InvalidProgramError as error:
            raise _explained(error, bytes(data[:64]), "") from None


_OTHERS = (
    (b"PK\x03\x04", "a file of torch.save or torch.export.save", _COMPILE),
    (b"version https://git-lfs", "what Git LFS keeps instead of a file", "git lfs pull"),
    (b"\x1f\x8b", "a compressed file", "unpacking it"),
    (b"{", "JSON", "the .pte file"),
)
"""How files begin that are given for programs, what they are, and what to do."""


def _explained(error: InvalidProgramError, head: bytes, name: str) -> InvalidProgramError:
    """The error, with what the file is instead of a program where that can be seen."""
    if head[4:6] == b"ET":
        return error
    told = str(error).partition("; try ")[0]
    for start, kind, hint in _OTHERS:
        if head.startswith(start):
            return InvalidProgramError(f"{told}, which is {kind}; try {hint}")
    if head[4:8] == b"TFL3":
        return InvalidProgramError(f"{told}, which is TFLite's; try a model of PyTorch")
    if head[4:8] == b"FT01":
        return InvalidProgramError(
            f"{told}, which is weights alone; try them as data_path, beside the .pte"
        )
    if head[4:8] == b"BP08":
        return InvalidProgramError(
            f"{told}, which is a bundled program's; try edgewise run, or "
            f"edgewise.inspect.check_bundled_program(path)"
        )
    if name.endswith(".onnx"):
        return InvalidProgramError(f"{told}, which is ONNX's; try a model of PyTorch")
    return error


def _as_list(inputs: Any) -> list[Any]:
    if isinstance(inputs, (np.ndarray, str, bytes)) or hasattr(inputs, "__dlpack__"):
        raise InvalidArgumentError(
            "[execute] inputs must be a list or tuple with one item for each input; "
            f"got {type(inputs).__name__}; try execute([x])"
        )
    if isinstance(inputs, Mapping):
        raise InvalidArgumentError(
            "[execute] inputs must be a list or tuple with one item for each input, in the order "
            f"of forward's arguments; got {type(inputs).__name__}; try execute([*inputs.values()])"
        )
    try:
        return list(inputs)
    except TypeError:
        raise InvalidArgumentError(
            "[execute] inputs must be a list or tuple with one item for each input; "
            f"got {type(inputs).__name__}"
        ) from None


def _check_verification(verification: Verification) -> int:
    if not isinstance(verification, Verification):
        raise TypeError(
            "[load_program] verification must be of the enum Verification; "
            f"got {verification!r}; try Verification.InternalConsistency"
        )
    return verification.value


def _check_threads(threads: int | None) -> int:
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"[load_program] threads must be an int or None; got {threads!r}")
    if not 1 <= threads <= 1024:
        raise InvalidArgumentError(
            f"[load_program] threads must be between 1 and 1024; got {threads}; "
            "try None for one per physical core"
        )
    return threads


def _cache_folder(path: str | os.PathLike[str] | None) -> bytes:
    """Its absolute path; empty: none."""
    if path is None:
        return b""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"[load_program] cache_dir must be a path or None; got {path!r}")
    name = os.fsencode(path)
    if not name or b"\0" in name:
        raise InvalidArgumentError(f"[load_program] cache_dir must be a folder; got {path!r}")
    return os.path.abspath(os.path.expanduser(name))


def _readable(path: str | os.PathLike[str]) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise InvalidArgumentError(f"[load_program] a path has no zero bytes; got {path!r}")
    if os.path.isdir(name):
        raise IsADirectoryError(errno.EISDIR, "[load_program] a program is a file", str(path))
    try:
        with open(name, "rb"):
            return name
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            f"[load_program] no such file; looked from {os.getcwd()}",
            str(path),
        ) from None
