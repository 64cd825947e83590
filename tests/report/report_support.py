"""Programs to report on."""

from __future__ import annotations

import collections.abc
import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import nn

from edgewise.inspect.record import (
    BlockRecord,
    DelegateRecord,
    EdgeRecord,
    InstructionRecord,
    MethodRecord,
    ModuleRecord,
    NodeRecord,
    ProgramRecord,
    TensorRecord,
    WeightRecord,
)


class Ranking(nn.Module):
    """Convolution and products that XNNPACK takes, around a sort and a sum that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU())
        self.attend = nn.Linear(16, 16)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.stem(x).mean((2, 3))
        top = self.attend(pooled).sort(dim=1).values
        return self.head(top.cumsum(1))


RANKING_INPUTS = (torch.zeros(1, 3, 32, 32),)


def large(nodes: int = 5000, per_block: int = 25, flat: bool = False) -> ProgramRecord:
    """A made-up program of blocks of operators with shortcuts; every 40th is refused."""
    tensor = TensorRecord("float32", (1, 64, 32), 8192)
    made = [NodeRecord("x", "input", outputs=(tensor,))]
    edges, blocks, instructions = [], [], []
    for number in range(nodes):
        block, place = divmod(number, per_block)
        steps = [ModuleRecord("", "Large")]
        if not flat:
            steps += [
                ModuleRecord(f"stage{block // 10}", "Stage"),
                ModuleRecord(f"stage{block // 10}.{block % 10}", "Block"),
            ]
        refused = number % 40 == 39
        before = made[-1].name
        made.append(
            NodeRecord(
                f"op_{number}",
                "call",
                "aten.linear.default" if place % 2 == 0 else "aten.relu.default",
                (tensor,),
                (tensor,),
                modules=tuple(steps),
                source=f"model.py:{100 + place}",
                backend="runtime" if refused else "XnnpackBackend",
                delegate=None if refused else 0,
                macs=1000 * (place + 1),
                bytes=16384,
                weights=(WeightRecord(f"w{number}", tensor),) if place % 2 == 0 else (),
            )
        )
        edges.append(EdgeRecord(before, 0, made[-1].name, 0))
        if place == per_block - 1:
            edges.append(EdgeRecord(made[-per_block].name, 0, made[-1].name, 1))
        offset = 8192 * (number % 3)
        blocks.append(BlockRecord((made[-1].name,), 1, offset, 8192, number, number + 1))
        instructions.append(InstructionRecord("kernel", "aten::relu.out", None, (made[-1].name,)))
    made.append(NodeRecord("output_0", "output", inputs=(tensor,)))
    edges.append(EdgeRecord(made[-2].name, 0, "output_0", 0))
    delegate = DelegateRecord("XnnpackBackend", "tag", 1000, 8192 * nodes // 2)
    method = MethodRecord(
        "forward",
        tuple(made),
        tuple(edges),
        tuple(instructions),
        (delegate,),
        tuple(blocks),
        {"1": 24576},
    )
    return ProgramRecord("0" * 64, 8192 * nodes, (method,), {"edgewise": "0"})


EVIL = "</script><img src=x onerror=document.title='broken'>\"'&"
"""Markup that leaves text, attributes and scripts, if it is not escaped."""


def hostile() -> ProgramRecord:
    """Markup in every text of a record; its first node is one that the page shows as a call."""
    record = filled(ProgramRecord)
    (method,) = record.methods
    (node,) = method.nodes
    call = dataclasses.replace(node, kind="call", modules=(ModuleRecord("", EVIL), *node.modules))
    other = dataclasses.replace(node, name=EVIL + "2")
    edges = (EdgeRecord(call.name, 0, other.name, 0), EdgeRecord(other.name, 0, call.name, 0))
    arenas = {"1": 8, EVIL: 8}
    method = dataclasses.replace(method, nodes=(call, other), edges=edges, arenas=arenas)
    return dataclasses.replace(record, methods=(method,))


def filled(kind: Any) -> Any:
    """A value of the type with markup in each of its texts."""
    if dataclasses.is_dataclass(kind):
        return kind(**{name: filled(t) for name, t in get_type_hints(kind).items()})
    given = [t for t in get_args(kind) if t is not type(None) and t is not ...]
    origin = get_origin(kind)
    if origin is tuple:
        return (filled(given[0]),)
    if origin is collections.abc.Mapping:
        return {EVIL: filled(given[1])}
    if given:  # one of several types
        return filled(str if str in given else given[0])
    return {str: EVIL, bool: True, int: 0, float: 1.5}[kind]
