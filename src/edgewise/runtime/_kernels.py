"""Kernels of the user's own, for operators of `torch.library`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from edgewise.runtime import _native

__all__ = ["load_kernels", "register_kernel"]

KernelFunction = TypeVar("KernelFunction", bound=Callable[..., Any])


def register_kernel(name: str) -> Callable[[KernelFunction], KernelFunction]:
    """Registers the decorated function as the kernel of an operator, for the life of the process.

        @edgewise.runtime.register_kernel("my_ns::scale.out")
        def scale(x, factor, out):
            np.multiply(x, factor, out=out)

    name: of the out-variant, as a file has it: `my_ns::scale.out` for the operator
    `my_ns::scale`, `my_ns::scale.name_out` for its overload `name`; for an operator that
    writes its arguments (`mutates_args`) and returns nothing, its own name, `my_ns::scale_`.

    The function is called with the operator's arguments in the order of its schema, followed
    by the outputs. A tensor comes as a numpy array (a copy: it may be kept), a number, string,
    bool or None as such, a list as a list. The function writes the outputs in place and returns
    None, or returns one array (a tuple, for several outputs) of the outputs' types and ranks;
    where the outputs' shapes are dynamic it has to return them, for the arrays that it is given
    then have the largest shape. It runs with the GIL. An exception becomes an `Error` that
    names the operator, whose `__cause__` it is.

    Raises:
        InvalidArgumentError: the name is taken.
        TypeError: the function cannot be called.
        ValueError: the name has no namespace.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"[register_kernel] name must be a string; got {name!r}; "
            f'try @register_kernel("my_ns::my_op.out")'
        )

    space, _, rest = name.partition("::")
    if not space or not rest:
        raise ValueError(
            f"[register_kernel] name must have a namespace and the operator's name; got {name!r}; "
            f'try "my_ns::my_op.out" for the operator my_ns::my_op'
        )

    def register(function: KernelFunction) -> KernelFunction:
        if not callable(function):
            raise TypeError(f"[register_kernel] a kernel must be callable; got {function!r}")
        _native.register_kernel(name, function)
        return function

    return register


def load_kernels(path: str | Path) -> list[str]:
    """Loads a shared library of C++ kernels for the life of the process. Returns their names.

    Such a library registers them with EDGEWISE_REGISTER_KERNEL of edgewise/kernel_library.h.

    Raises:
        NotFoundError: the library cannot be loaded.
        InvalidArgumentError: it registers no kernels, or one whose name is taken.
        UnsupportedError: it was built for another release or by another compiler.
    """
    return _native.load_kernels(os.fsencode(os.path.abspath(path)))
