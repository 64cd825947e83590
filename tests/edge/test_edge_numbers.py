"""Numbers and pieces that depend on sizes which only the run tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.errors import InvalidGraphError
from support import Fn, assert_close, eager64, operators, run_ours

Shape = tuple[int, ...]


def halves(x: torch.Tensor) -> torch.Tensor:
    a, b = x.split(x.shape[1] // 2, 1)
    return a * b


def thirds(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    a, b, c = torch.split(x, [n // 3, 1, n - 1 - n // 3])
    return a.sum() - b.sum() * c.sum()


def gated(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, 1)
    return a * torch.sigmoid(b)


def grouped_attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)


def reflected(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (3, 2), mode="reflect")


upsample = torch.nn.Upsample(scale_factor=2)
PAIRS: dict[str, tuple[Any, tuple[Shape, ...], tuple[Shape, ...]]] = {
    "power of minus a half": (lambda x: x * x.shape[-1] ** -0.5, ((2, 6),), ((3, 9),)),
    "power of two": (lambda x: x * x.shape[-1] ** 2, ((2, 6),), ((3, 9),)),
    "power of nine": (lambda x: x * x.shape[-1] ** 9, ((2, 6),), ((3, 4),)),
    "size as a power": (lambda x: x * 0.5 ** x.shape[0], ((2, 6),), ((5, 3),)),
    "root": (lambda x: x / torch.sym_sqrt(x.shape[-1]), ((2, 6),), ((4, 16),)),
    "root of a product": (lambda x: x / torch.sym_sqrt(x.numel()), ((2, 6),), ((4, 16),)),
    "sum": (lambda x: x.new_ones(sum(x.shape)), ((2, 6, 3),), ((4, 5, 7),)),
    "less a tensor": (lambda x: x.shape[1] - x, ((2, 6),), ((3, 9),)),
    "less integers": (lambda x: x.shape[1] - 2 * x.long(), ((2, 6),), ((3, 9),)),
    "by a tensor": (lambda x: x.shape[1] // (x.abs() + 1), ((2, 6),), ((3, 9),)),
    "modulo a tensor": (lambda x: x.shape[1] % (x.abs() + 1), ((2, 6),), ((3, 9),)),
    "shifted": (lambda x: x.shape[1] << x.long().abs(), ((2, 6),), ((3, 9),)),
    "bits": (lambda x: x.shape[1] & x.long() | x.shape[0], ((2, 6),), ((3, 9),)),
    "chosen": (lambda x: torch.where(x > 0, x.shape[1], x), ((2, 6),), ((3, 9),)),
    "chosen else": (lambda x: torch.where(x > 0, x, x.shape[1] * 0.5), ((2, 6),), ((3, 9),)),
    "filled in": (lambda x: x.masked_fill(x > 0, x.shape[1]), ((2, 6),), ((3, 9),)),
    "reflected": (reflected, ((2, 6),), ((3, 9),)),
    "reflected 2-D": (torch.nn.ReflectionPad2d((1, 2, 2, 1)), ((2, 3, 6, 5),), ((4, 2, 4, 9),)),
    "upsample 1-D": (upsample, ((2, 3, 8),), ((1, 4, 5),)),
    "upsample 2-D": (upsample, ((2, 3, 8, 4),), ((1, 4, 5, 6),)),
    "upsample 3-D": (upsample, ((2, 3, 4, 5, 6),), ((3, 2, 5, 2, 3),)),
    "chunk": (gated, ((2, 6),), ((3, 10),)),
    "split": (halves, ((2, 6),), ((3, 10),)),
    "split with sizes": (thirds, ((7, 2),), ((12, 3),)),
    "groups of heads": (
        grouped_attention,
        ((2, 4, 5, 8), (2, 2, 5, 8)),
        ((1, 4, 3, 12), (1, 2, 3, 12)),
    ),
}


@pytest.mark.parametrize("delegated", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_sizes_of_the_run(name: str, delegated: bool) -> None:
    function, exported, run = PAIRS[name]
    module = Fn(function)
    inputs = tuple(torch.randn(shape) for shape in exported)
    free = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in inputs)
    program = torch.export.export(module, inputs, dynamic_shapes=(free,))
    lowered = edgewise.to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()] if delegated else []
    )
    model = edgewise.load(lowered.to_executorch().buffer)
    for shapes in (exported, run):
        inputs = tuple(torch.randn(shape) for shape in shapes)
        assert_close([model(*inputs)], eager64(module, inputs), 1e-5)


FRAMES = {
    "reflection_pad1d": (torch.nn.ReflectionPad1d((1, 2)), (2, 3, 6)),
    "reflection_pad2d": (torch.nn.ReflectionPad2d((1, 2, 2, 1)), (2, 3, 6, 5)),
    "reflection_pad3d": (torch.nn.ReflectionPad3d(1), (2, 3, 4, 4, 4)),
    "replication_pad1d": (torch.nn.ReplicationPad1d((3, 2)), (2, 3, 6)),
    "replication_pad2d": (torch.nn.ReplicationPad2d((1, 2, 2, 1)), (2, 3, 6, 5)),
    "replication_pad3d": (torch.nn.ReplicationPad3d((1, 2, 0, 1, 1, 1)), (2, 3, 4, 4, 4)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_open_sizes_are_kernels(name: str) -> None:
    module, shape = FRAMES[name]
    x = torch.randn(shape)
    free = (dict.fromkeys(range(x.dim()), Dim.AUTO),)
    exported = torch.export.export(module, (x,), dynamic_shapes=free)
    pte = edgewise.to_edge(exported).to_executorch().buffer
    assert operators(pte) == [f"aten::{name}.out"]
    for size in (x, torch.randn(*(s + 2 for s in shape))):
        assert_close(run_ours(pte, (size,))[0], [module(size)])


def test_a_backend_must_not_fix_a_size() -> None:
    """Asked for its number, a symbolic size becomes one, for all users of the program."""

    class Careless(XnnpackPartitioner):
        def partition(self, program: torch.export.ExportedProgram) -> Any:
            for node in program.graph.nodes:
                if node.op == "placeholder":
                    int(node.meta["val"].shape[0])
            return super().partition(program)

    x = torch.randn(4, 3)
    program = torch.export.export(Fn(lambda x: x + 1), (x,), dynamic_shapes=(({0: Dim.DYNAMIC},),))
    manager = edgewise.to_edge(program)
    with pytest.raises(InvalidGraphError, match=r"to_backend.*dimension 0 of inputs_0 fixed to 4"):
        manager.to_backend(Careless())


def test_operands_that_take_one_size_only_are_told() -> None:
    mask = torch.ones(5, 5).tril().bool()
    module = Fn(
        lambda q, k, v, mask: torch.nn.functional.scaled_dot_product_attention(q, k, v, mask),
        mask=mask,
    )
    inputs = tuple(torch.randn(2, 3, 5, 4) for _ in range(3))
    free = tuple(dict.fromkeys(range(4), Dim.AUTO) for _ in inputs)
    program = torch.export.export(module, inputs, dynamic_shapes=(free,))
    with pytest.warns(UserWarning, match=r"attention.*takes one size only.*= 5"):
        lowered = edgewise.to_edge_transform_and_lower(program)
    model = edgewise.load(lowered.to_executorch().buffer)
    assert_close([model(*inputs)], eager64(module, inputs), 1e-5)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        y = x * x
        torch.add(y, x, alpha=n, out=y)
        return y


def test_a_number_among_the_inputs_is_no_open_size() -> None:
    """torch makes a symbol of it where it traces `out=` again, and fixes it at once."""
    x = torch.randn(2, 3)
    program = torch.export.export(Scaled(), (x, 2))
    made = edgewise.to_edge(program).to_executorch()
    assert_close([edgewise.load(made.buffer)(x, 2)], eager64(Scaled(), (x, 2)))


TOTALS: dict[str, Any] = {
    "sum": lambda x, dtype: x.sum(dtype=dtype),
    "sum of rows": lambda x, dtype: x.sum(1, dtype=dtype),
    "nansum": lambda x, dtype: x.nansum(dtype=dtype),
    "prod": lambda x, dtype: x.prod(dtype=dtype),
    "prod of rows": lambda x, dtype: x.prod(1, dtype=dtype),
    "cumsum": lambda x, dtype: x.cumsum(1, dtype=dtype),
    "cumprod": lambda x, dtype: x.cumprod(1, dtype=dtype),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", TOTALS)
def test_totals_of_reals_as_integers(name: str, dtype: torch.dtype) -> None:
    """Each number is rounded towards zero first: 0.9 + 0.9 is 0."""
    x = torch.tensor([[0.9, 1.9, 3.5, 0.9], [2.0, 1.1, 1.0, 5.99]])
    module = Fn(lambda x: TOTALS[name](x, dtype))
    pte = edgewise.compile(module, (x,), verbose=False).buffer
    assert_close(run_ours(pte, (x,))[0], [module(x)])
