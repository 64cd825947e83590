"""A model's modules again, with its very weights: they can be replaced, and take no memory."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["shared_copy"]


def shared_copy(model: Any) -> Any:
    """A copy of a module whose parameters and buffers are the module's own tensors."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, tensors)
