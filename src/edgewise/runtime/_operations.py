"""What delegates run: operation by operation, by which kernel, and why not by another."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.runtime import _native


@dataclass(frozen=True)
class DelegateOperation:
    """One of the operations that a delegate runs, in their order."""

    operation: str
    """Kinds of the payload's nodes that it is made of: "Conv2d + Add"."""
    sizes: str
    """Types and shapes: "fp32[1, 8, 8, 32] -> fp32[1, 8, 8, 16]"."""
    kernel: str
    """As in a profile."""
    nodes: tuple[int, ...]
    """Of the delegate's payload, by position."""
    refused: tuple[tuple[str, str], ...]
    """Kernels that are tried before it for such an operation, with what each asks for."""


def delegate_operations(method: _native.Method) -> list[list[DelegateOperation]]:
    """For each delegate; an empty list for one that does not tell."""
    return [
        [
            DelegateOperation(operation, sizes, kernel, tuple(nodes), tuple(refused))
            for operation, sizes, kernel, nodes, refused in delegate
        ]
        for delegate in method.delegate_operations()
    ]
