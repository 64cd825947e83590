"""Runs `.pte` files on the native runtime. Imports no torch.

    from edgewise.runtime import Runtime

    program = Runtime.get().load_program("model.pte")
    outputs = program.load_method("forward").execute([x])

or, with inputs and outputs in the structure of the model's own:

    model = edgewise.runtime.load("model.pte")
    y = model(x)
"""

try:
    from edgewise.runtime import _native as _native
except ImportError as _missing:
    raise ImportError(
        f"[edgewise.runtime] the native module must be built; got {_missing}; "
        f"try pip install . in the sources, or make native",
        name=_missing.name,
    ) from _missing

from edgewise.runtime._backends import load_backends, register_backend
from edgewise.runtime._kernels import load_kernels, register_kernel
from edgewise.runtime._metadata import DelegateMeta, MethodMeta, TensorInfo
from edgewise.runtime._model import Model, load
from edgewise.runtime._operations import DelegateOperation
from edgewise.runtime._program import (
    BackendRegistry,
    Method,
    OperatorRegistry,
    Program,
    Runtime,
    Session,
    Verification,
)
from edgewise.runtime.errors import (
    BackendError,
    Error,
    InvalidArgumentError,
    InvalidProgramError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)

__all__ = [
    "BackendError",
    "BackendRegistry",
    "DelegateMeta",
    "DelegateOperation",
    "Error",
    "InvalidArgumentError",
    "InvalidProgramError",
    "Method",
    "MethodMeta",
    "Model",
    "NotFoundError",
    "OperatorRegistry",
    "OutOfMemoryError",
    "Program",
    "Runtime",
    "Session",
    "TensorInfo",
    "UnsupportedError",
    "Verification",
    "load",
    "load_backends",
    "load_kernels",
    "register_backend",
    "register_kernel",
]
