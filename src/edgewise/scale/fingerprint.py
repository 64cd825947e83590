"""Digests of models and data: of their content, not of how they were made."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.utils import _pytree as pytree


class Fingerprint:
    """A digest that is fed piece by piece."""

    def __init__(self) -> None:
        self._content = hashlib.sha256()

    def add(self, value: Any) -> Fingerprint:
        """Tensors, arrays and plain data, nested in what pytrees know."""
        leaves, structure = pytree.tree_flatten(value)
        self._text(str(structure))
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                self._tensor(leaf)
            elif hasattr(leaf, "__array_interface__"):
                self._tensor(torch.as_tensor(leaf))
            else:
                self._text(repr(leaf))
        return self

    def __str__(self) -> str:
        return self._content.hexdigest()[:32]

    def _text(self, text: str) -> None:
        self._content.update(text.encode() + b"\0")

    def _tensor(self, tensor: torch.Tensor) -> None:
        self._text(f"{tensor.dtype}{list(tensor.shape)}")
        plain = tensor.detach().cpu().contiguous()
        self._content.update(plain.reshape(-1).view(torch.uint8).numpy().data)


def of_module(module: torch.nn.Module, inputs: Any, code: str) -> str:
    """Of a module's structure and values, and of what is told of its code."""
    found = Fingerprint().add([code, type(module).__qualname__, repr(module)])
    for name, value in module.state_dict().items():
        found.add([name, value])
    return str(found.add(inputs))
