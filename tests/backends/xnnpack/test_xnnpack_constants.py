"""Where constants lie: what XNNPACK packs is named data, what it reads in place is kept with the
payload. Releases of ExecuTorch up to 1.3.1 free named data once a delegate is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.emit import ExecutorchBackendConfig
from edgewise.format.file import read
from support import (
    RUNTIMES,
    Fn,
    assert_close,
    eager64,
    export,
    kinds,
    lower,
    partitioners,
    payloads,
)

X = torch.linspace(-2, 3, 24).reshape(3, 8)
IMAGE = torch.linspace(-2, 3, 240).reshape(2, 4, 6, 5)
C = torch.linspace(1, 2, 8)
PEER = pytest.param("peer", marks=pytest.mark.peer)

PACKING = ("FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d")
IDS = ("input_id", *(f"input{n}_id" for n in range(1, 6)), "query_id", "key_id", "value_id")
IDS = (*IDS, "scale_id", "mask_id", "filter_id", "bias_id")


class Tied(nn.Module):
    """A bias that is also added, and a filter that is also multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(torch.relu(self.a(x)) + self.a.bias)
        return torch.relu(self.b(x)) * self.b.weight


# Module, inputs | constants in the payload, in named data.
CASES: dict[str, tuple[nn.Module, tuple[Any, ...], int, int]] = {
    "a number is added": (Fn(lambda x: x + 1), (X,), 1, 0),
    "a number is a factor": (Fn(lambda x: x * 0.5), (X,), 1, 0),
    "a constant is subtracted": (Fn(lambda x, c: x - c, c=C), (X,), 1, 0),
    "a constant of another": (Fn(lambda x, c: c / (x + 5), c=C), (X,), 2, 0),
    "a constant twice": (Fn(lambda x, c: torch.sigmoid(x + c) * c, c=C), (X,), 1, 0),
    "one content twice": (Fn(lambda x, c, d: (x + c) / d, c=C, d=C.clone()), (X,), 1, 0),
    "slopes": (nn.PReLU(4), (IMAGE,), 1, 0),
    "joined": (Fn(lambda x, c: torch.cat([x, c]) * 2, c=C[None]), (X,), 2, 0),
    "a product of matrices": (Fn(lambda x, c: x @ c, c=torch.rand(3, 8, 2)), (X[:, None],), 1, 0),
    "linear": (nn.Linear(8, 4), (X,), 0, 2),
    "linear without bias": (nn.Linear(8, 4, bias=False), (X,), 0, 1),
    "convolution": (nn.Conv2d(4, 6, 3), (IMAGE,), 0, 2),
    "convolution of each channel": (nn.Conv2d(4, 4, 3, groups=4), (IMAGE,), 0, 2),
    "transposed convolution": (nn.ConvTranspose2d(4, 6, 3), (IMAGE,), 0, 2),
    "weights and a scale": (nn.Sequential(nn.Linear(8, 4), Fn(lambda x: x / 3)), (X,), 1, 2),
    "read in both ways": (Tied(), (C,), 3, 1),
}


def constants(graph: Any) -> tuple[set[int], set[int]]:
    """Offsets of constants in the payload, and numbers of the entries with a key."""
    held, named = set(), set()
    for number, entry in enumerate(graph.constant_data[1:], 1):
        if entry.named_key is None:
            held.add(entry.offset)
        else:
            named.add(number)
    return held, named


def read_in_place(graph: Any) -> set[int]:
    """Entries of the constants that a node reads each time that it runs."""
    entry = {}
    for value in graph.xvalues:
        tensor = getattr(value.xvalue_union, "tensor_value", value.xvalue_union)
        entry[tensor.id_out] = tensor.constant_buffer_idx
    found = set()
    for kind, node in zip(kinds(graph), graph.xnodes, strict=True):
        member = node.xnode_union
        table = member[1] if isinstance(member, tuple) else member
        ids = {name: getattr(table, name) for name in IDS if hasattr(table, name)}
        if kind in PACKING:
            weights = [entry.get(ids[name], 1) for name in ("filter_id", "bias_id")]
            if all(weights):
                ids = {"input1_id": ids["input1_id"]}
        found |= {entry[i] for i in ids.values() if entry.get(i, 0)}
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_in_place_lies_in_the_payload(name: str) -> None:
    module, inputs, held, named = CASES[name]
    pte = lower(module, inputs).buffer
    (graph,) = payloads(pte)
    offsets, keys = constants(graph)
    assert (len(offsets), len(keys)) == (held, named)
    assert not read_in_place(graph) & keys
    assert len(read(pte).program.named_data or []) == named


@pytest.mark.parametrize("runtime", ["ours", PEER])
@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str, runtime: str) -> None:
    module, inputs, _, _ = CASES[name]
    pte = lower(module, inputs).buffer
    (outputs,) = RUNTIMES[runtime](pte, inputs)
    assert_close(outputs, eager64(module, inputs))


@pytest.mark.parametrize("extract", [True, False])
@pytest.mark.parametrize("name", ["a number is added", "linear"])
def test_a_payload_with_constants_is_inside_of_the_flatbuffer(name: str, extract: bool) -> None:
    module, inputs, held, _ = CASES[name]
    config = ExecutorchBackendConfig(extract_delegate_segments=extract)
    pte = lower(module, inputs, config=config).buffer
    program = read(pte).program
    (delegate,) = program.execution_plan[0].delegates
    assert delegate.processed.location == int(extract and not held)
    for inline in program.backend_delegate_data:
        at = pte.index(inline.data)
        assert at % 16 == 0
        assert at + len(inline.data) <= int.from_bytes(pte[16:24], "little")


def test_constants_lie_aligned_and_with_room_behind() -> None:
    module = Fn(lambda x, c: (x + c) * 3 - c[:1], c=C[:5])
    pte = lower(module, (X[:, :5],)).buffer
    (payload,) = read(pte).program.backend_delegate_data
    (graph,) = payloads(pte)
    offset = int.from_bytes(payload.data[18:22], "little")
    size = int.from_bytes(payload.data[22:30], "little")
    assert offset % 16 == 0
    assert offset + size == len(payload.data)
    entries = graph.constant_data[1:]
    assert all(one.offset % 16 == 0 for one in entries)
    assert max(one.offset + one.size for one in entries) + 16 <= size


def test_methods_share_what_is_packed() -> None:
    linear, norm = nn.Linear(8, 8).eval(), nn.LayerNorm(8).eval()
    methods = {
        "encode": export(nn.Sequential(norm, linear, nn.ReLU()), (X,)),
        "decode": export(nn.Sequential(norm, linear, nn.Tanh()), (X,)),
    }
    edge = edgewise.to_edge_transform_and_lower(methods, partitioner=partitioners("xnnpack"))
    pte = edge.to_executorch().buffer
    first, second = payloads(pte)
    keys = [
        {e.named_key for e in graph.constant_data[1:] if e.named_key} for graph in (first, second)
    ]
    assert keys[0] == keys[1]
    assert len(read(pte).program.named_data) == len(keys[0])


@pytest.mark.parametrize("runtime", ["ours", PEER])
@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.Conv2d(4, 8, 3, groups=4),
        nn.Conv2d(4, 8, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3),
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)),
    ],
    ids=["plain", "no bias", "each channel", "groups", "transposed", "two"],
)
def test_convolutions_in_float16_have_weights_in_float32(module: nn.Module, runtime: str) -> None:
    module = module.eval().half()
    inputs = (IMAGE.half(),)
    pte = lower(module, inputs).buffer
    (graph,) = payloads(pte)
    types = {v.xvalue_union.datatype for v in graph.xvalues if v.xvalue_union.constant_buffer_idx}
    assert types == {1}
    (outputs,) = RUNTIMES[runtime](pte, inputs)
    assert outputs[0].dtype == torch.float16
    # Of two layers, the first one's result is rounded to float16 between them.
    assert_close(outputs, eager64(module, inputs), rel=4e-3, floor=2e-3)
