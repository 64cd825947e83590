"""Methods that read and write a program's caches as a whole, for prompts that many texts share."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.edge.export import export_module

__all__ = ["model_id", "prefix_methods"]


class _Get(torch.nn.Module):
    """forward() returns the caches."""

    def __init__(self, caches: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.names = list(caches)
        for name, cache in caches.items():
            self.register_buffer(name, cache, persistent=False)

    def forward(self) -> Any:
        return tuple(getattr(self, name).clone() for name in self.names)


class _Set(_Get):
    """forward(*caches) takes them."""

    def forward(self, *caches: torch.Tensor) -> Any:
        for name, cache in zip(self.names, caches, strict=True):
            getattr(self, name).copy_(cache)
        return caches[0].new_zeros(1)


def prefix_methods(decoder: torch.nn.Module) -> dict[str, ExportedProgram]:
    """`get_cache() -> caches` and `set_cache(*caches)`, which share the decoder's buffers."""
    caches = {name: buffer for name, buffer in decoder.named_buffers() if "cache_" in name}
    return {
        "get_cache": export_module(_Get(caches), ()),
        "set_cache": export_module(_Set(caches), tuple(map(torch.clone, caches.values()))),
    }


def model_id(model: torch.nn.Module) -> int:
    """A number that models of other weights do not have, from 0 to below 2 ** 63."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(name.encode())
        parts = [weight]
        if hasattr(weight, "__tensor_flatten__"):
            parts = [getattr(weight, part) for part in weight.__tensor_flatten__()[0]]
        for part in parts:
            digest.update(part.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "little") >> 1
