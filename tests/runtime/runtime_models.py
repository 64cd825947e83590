"""Models of the runtime's tests, and the way to bytes for what `make_pte` has no words for."""

from __future__ import annotations

from typing import Any

import torch


class Add(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class PlusOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def lower(programs: Any) -> bytes:
    """One exported program, or a dict of them by method name, without a partitioner."""
    import edgewise

    return bytes(edgewise.to_edge_transform_and_lower(programs).to_executorch().buffer)
