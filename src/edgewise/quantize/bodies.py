"""Tensors in the bodies of control flow, of which torch.export keeps no values."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule


def restore_tensors(exported: GraphModule, source: GraphModule) -> None:
    """Puts the source's tensors into bodies whose export holds fake ones, in place.

    Both compute the same in the same order: the first use of a tensor tells which one it is.
    """
    for name, body in exported.named_modules():
        if not name or not isinstance(body, GraphModule):
            continue
        fakes = [key for key, value in _used(body) if isinstance(value, FakeTensor)]
        if not fakes:
            continue
        held = source.get_submodule(name)
        assert isinstance(held, GraphModule)
        real = [value for _, value in _used(held)]
        assert len(real) == len(fakes), name
        for key, value in zip(fakes, real, strict=True):
            fake = getattr(body, key)
            assert (fake.shape, fake.dtype) == (value.shape, value.dtype), f"{name}.{key}"
            setattr(body, key, value.detach().clone())


def _used(module: GraphModule) -> list[tuple[str, torch.Tensor]]:
    """Tensors of the module's own by name, in the order of their first use."""
    found: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        for read in node.all_input_nodes:
            if read.op == "get_attr" and "." not in str(read.target):
                value = getattr(module, str(read.target), None)
                if isinstance(value, torch.Tensor):
                    found.setdefault(str(read.target), value)
    return list(found.items())


__all__ = ["restore_tensors"]
