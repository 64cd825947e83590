"""Embeddings with weights in 8, 4 and 2 bits: the operators and packings of ExecuTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

import edgewise
from edgewise.edge.quantized_embeddings import NAMES, pack, unpack
from support import RUNTIMES, operators

PEER = pytest.param("peer", marks=pytest.mark.peer)
BYTE, FOUR, TWO = (f"quantized_decomposed::embedding_{n}" for n in ("byte", "4bit", "2bit"))


def embedding(bits: int, granularity: Any, columns: int, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(2)
    module = torch.nn.Embedding(11, columns).to(dtype).eval()
    config = IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity
    )
    quantize_(module, config, lambda m, name: isinstance(m, torch.nn.Embedding))
    return module


def lower(program: torch.export.ExportedProgram) -> bytes:
    return bytes(edgewise.to_edge_transform_and_lower(program).to_executorch().buffer)


CASES = {
    "8 bits": (8, PerAxis(0), 64, BYTE),
    "8 bits in groups": (8, PerGroup(32), 64, BYTE),
    "4 bits": (4, PerAxis(0), 64, FOUR),
    "4 bits in groups": (4, PerGroup(32), 96, FOUR),
    "4 bits in groups of 256": (4, PerGroup(256), 512, FOUR),
    "8 bits in groups of 256": (8, PerGroup(256), 512, BYTE),
    "4 bits in groups of 128": (4, PerGroup(128), 256, FOUR),
    "2 bits in groups of 64": (2, PerGroup(64), 128, TWO),
    "2 bits in groups of 256": (2, PerGroup(256), 256, TWO),
    "4 bits, odd rows": (4, PerAxis(0), 7, BYTE),
    "2 bits": (2, PerAxis(0), 64, TWO),
    "2 bits in groups": (2, PerGroup(32), 64, TWO),
    "2 bits, rows of a half byte": (2, PerAxis(0), 6, FOUR),
}


@pytest.mark.parametrize(
    ("runtime", "ids"),
    [
        ("ours", torch.int64),
        ("ours", torch.int32),  # ExecuTorch's kernels take int64 only, and end the process
        pytest.param("peer", torch.int64, marks=pytest.mark.peer),
    ],
)
@pytest.mark.parametrize(("bits", "granularity", "columns", "operator"), CASES.values(), ids=CASES)
def test_embedding(
    bits: int, granularity: Any, columns: int, operator: str, ids: torch.dtype, runtime: str
) -> None:
    module = embedding(bits, granularity, columns, torch.float32)
    x = (torch.tensor([[0, 10, 3], [3, 7, 1]], dtype=ids),)
    pte = lower(torch.export.export(module, x))
    assert operators(pte) == [f"{operator}.out"]
    if runtime == "peer":
        import executorch.kernels.quantized  # noqa: F401
    (got,) = RUNTIMES[runtime](pte, x)
    torch.testing.assert_close(got[0], module(*x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype) -> None:
    module = embedding(4, PerGroup(32), 64, dtype)
    x = (torch.tensor([5, 0, 2]),)
    pte = lower(torch.export.export(module, x))
    assert operators(pte)[0].startswith(FOUR)
    (got,) = RUNTIMES["ours"](pte, x)
    want = module(*x)
    assert (got[0].float() - want.float()).abs().max() <= 2**-7 * float(want.float().abs().max())


class Points(torch.nn.Module):
    """Zero points, as PT2E and older exports have them."""

    def __init__(self, per_group: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.register_buffer(
            "q", torch.randint(-8, 8, (9, 32), generator=generator, dtype=torch.int8)
        )
        shape = (9, 2) if per_group else (9,)
        self.register_buffer("scales", torch.rand(shape, generator=generator) + 0.1)
        self.register_buffer("zeros", torch.randint(-8, 8, shape, generator=generator))
        self.per_group = per_group

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        decomposed = torch.ops.quantized_decomposed
        if self.per_group:
            table = decomposed.dequantize_per_channel_group(
                self.q, self.scales, self.zeros, -8, 7, torch.int8, 16, torch.float32
            )
        else:
            table = decomposed.dequantize_per_channel(
                self.q, self.scales, self.zeros, 0, -8, 7, torch.int8
            )
        return torch.nn.functional.embedding(ids, table)


@pytest.mark.parametrize("runtime", ["ours", PEER])
@pytest.mark.parametrize("per_group", [False, True])
def test_zero_points(per_group: bool, runtime: str) -> None:
    import torch.ao.quantization.fx._decomposed

    module, x = Points(per_group).eval(), (torch.tensor([8, 0, 4]),)
    pte = lower(torch.export.export(module, x))
    assert operators(pte) == [f"{FOUR}.out"]
    if runtime == "peer":
        import executorch.kernels.quantized  # noqa: F401
    (got,) = RUNTIMES[runtime](pte, x)
    torch.testing.assert_close(got[0], module(*x), rtol=1e-6, atol=1e-6)


def test_the_file_holds_packed_weights() -> None:
    torch.manual_seed(0)
    sizes = {}
    for bits in (8, 4, 2):
        module = torch.nn.Embedding(4096, 256)
        config = IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"), granularity=PerAxis(0)
        )
        quantize_(module, config, lambda m, name: isinstance(m, torch.nn.Embedding))
        sizes[bits] = len(lower(torch.export.export(module, (torch.tensor([1]),))))
    for bits, size in sizes.items():
        assert size <= 4096 * (256 * bits // 8 + 4) + 12_000


def test_a_table_that_others_read_too() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = embedding(4, PerGroup(32), 64, torch.float32)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embedding(ids) @ self.embedding.weight.dequantize().T

    module, x = Tied().eval(), (torch.tensor([5, 0, 2]),)
    pte = lower(torch.export.export(module, x))
    assert f"{FOUR}.out" in operators(pte)
    (got,) = RUNTIMES["ours"](pte, x)
    torch.testing.assert_close(got[0], module(*x), rtol=1e-4, atol=1e-4)


def test_ids_out_of_range_are_refused() -> None:
    pte = lower(
        torch.export.export(embedding(4, PerAxis(0), 8, torch.float32), (torch.tensor([1]),))
    )
    with pytest.raises(Exception, match="embedding_4bit"):
        RUNTIMES["ours"](pte, (torch.tensor([11]),))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_packing_round_trip(bits: int) -> None:
    low = -(1 << (bits - 1))
    weight = torch.arange(low, -low).repeat(4).reshape(4, -1).to(torch.int8)
    packed = pack(weight, bits)
    assert packed.shape == (4, weight.shape[1] * bits // 8)
    assert torch.equal(unpack(packed, bits), weight.int())


@pytest.mark.peer
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_files_of_the_peer(bits: int, groups: int) -> None:
    """Its operators, as it defines and computes them, in a file that it wrote."""
    import executorch.exir.passes._quant_patterns_and_replacements as peer
    import executorch.kernels.quantized  # noqa: F401
    from executorch.exir import to_edge

    operator = getattr(torch.ops.quantized_decomposed, NAMES[bits]).dtype
    limit = 1 << (bits - 1)
    generator = torch.Generator().manual_seed(6)
    integers = torch.randint(-limit, limit, (9, 32), generator=generator, dtype=torch.int8)
    scales = torch.rand((9, groups), generator=generator) + 0.1

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            packed = integers if bits == 8 else peer._pack_embedding_weight(integers, bits)
            self.register_buffer("packed", packed)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            rows: torch.Tensor = operator(
                self.packed, scales, None, -limit, limit - 1, ids, dtype=torch.float32
            )
            return rows

    module, x = Rows().eval(), (torch.tensor([5, 0, 2]),)
    assert torch.equal(module.packed, pack(integers, bits))
    exported = torch.export.export(module, x)
    want = integers.reshape(9, groups, -1)[x[0]] * scales[x[0]].unsqueeze(-1)
    for pte in (bytes(to_edge(exported).to_executorch().buffer), lower(exported)):
        assert operators(pte) == [f"quantized_decomposed::{NAMES[bits]}.dtype_out"]
        for runtime in ("ours", "peer"):
            (got,) = RUNTIMES[runtime](pte, x)
            torch.testing.assert_close(got[0], want.flatten(1), rtol=1e-6, atol=1e-6)
