"""Says at lowering which operators of a method the runtime has no kernel for."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch.fx import Node

from edgewise.edge.graph import is_call, is_getitem
from edgewise.edge.node_errors import at_node
from edgewise.emit.out_variants import SYMBOLIC, out_variant
from edgewise.errors import UnsupportedOperatorError
from edgewise.partition.lowered_module import is_delegate_call


class MissingKernelWarning(UserWarning):
    """A method calls operators that have to be registered where it runs."""


def report_missing_kernels(method: str, called: Mapping[str, Node | None], action: str) -> None:
    """called: by the operators' names in the file, the first node that calls each of them; None
    for what the program itself adds. action: "warn", "error", "ignore".

    Kernels that are registered in this process count as present. UnsupportedOperatorError for
    "error".
    """
    if action == "ignore":
        return
    known = known_kernels()
    missing = {name: n for name, n in called.items() if known is not None and name not in known}
    if not missing:
        return
    lines = [
        f"  {at_node(node) if node is not None else ''} {name}, for {_schema(node)}"
        for name, node in missing.items()
    ]
    text = (
        f"[{method}] every operator needs a kernel where the program runs; got none for\n"
        + "\n".join(lines)
        + f'\ntry @edgewise.runtime.register_kernel("{next(iter(missing))}") in Python, or '
        f"EDGEWISE_REGISTER_KERNEL in C++ and edgewise.runtime.load_kernels()"
    )
    if action == "error":
        raise UnsupportedOperatorError(
            f"{text}, before lowering; if it runs elsewhere, where the kernel is: "
            f'missing_kernels="warn" or "ignore", of compile() or ExecutorchBackendConfig'
        )
    warnings.warn(text, MissingKernelWarning, stacklevel=4)


def missing_kernels(nodes: Iterable[Node], known: Container[str] | None = None) -> dict[Node, str]:
    """Which of the nodes call a kernel that is not known, and its name.

    known: names of kernels; default: those that this process has.
    """
    known = known_kernels() if known is None else known
    if known is None:
        return {}
    found: dict[Node, str] = {}
    for node in nodes:
        name = kernel_of(node)
        if name is not None and name not in known:
            found[node] = name
    return found


def kernel_of(node: Node) -> str | None:
    """The name of the kernel that the node calls; None if it calls none."""
    if not is_call(node) or is_getitem(node) or is_delegate_call(node):
        return None
    variant = SYMBOLIC.get(node.target) or out_variant(node.target)
    return f"{variant.name}.{variant.overload}".removesuffix(".") if variant is not None else None


def known_kernels() -> set[str] | None:
    """The kernels of the runtime and those registered here; None where it was not built."""
    try:
        from edgewise.runtime import Runtime
    except ImportError:
        return None
    return Runtime.get().operator_registry.operator_names


def _schema(node: Node | None) -> str:
    if node is None:
        return "the program itself"
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) and node.args:
        target = node.args[0]  # of auto_functionalized: the operator that it calls
    return str(target._schema) if isinstance(target, torch._ops.OpOverload) else str(target)
