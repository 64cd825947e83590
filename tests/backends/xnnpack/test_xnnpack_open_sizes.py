"""Each row of the operator table with every size open that the program does not fix: one loaded
program at the example's sizes, at larger ones and at smaller ones, against the exported program."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import quantized
import torch
from xnnpack_cases import ACCEPTED

import edgewise
from support import all_sizes_open, assert_close, at_other_sizes, export, partitioners, run_ours

# Whose cases fix all their sizes.
STATIC = {"expand_copy", "native_group_norm"}


@pytest.mark.parametrize("row", ACCEPTED)
def test_row(row: str) -> None:
    calls = [check(name, module, inputs) for name, (module, inputs) in ACCEPTED[row].items()]
    assert (max(calls) > 2) == (row not in STATIC)


def check(name: str, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Of a case; how many calls were compared. Those that the exported program refuses are not."""
    shapes: Any = all_sizes_open(inputs)
    parameters = inspect.signature(module.forward).parameters.values()
    if any(one.kind == one.VAR_POSITIONAL for one in parameters):
        shapes = (shapes,)
    program = export(module, inputs, dynamic_shapes=shapes)
    others = [at_other_sizes(program, inputs, step) for step in (2, -1)]
    eager = program.module()
    calls, wanted = [], []
    for call in (inputs, *others, inputs):
        if call is None:
            continue
        try:
            wanted.append(torch.utils._pytree.tree_leaves(eager(*call)))
        except (AssertionError, RuntimeError, IndexError):
            continue
        calls.append(call)
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=partitioners("xnnpack"))
    got = run_ours(edge.to_executorch().buffer, *calls)
    for call, outputs, expected in zip(calls, got, wanted, strict=True):
        try:
            assert_close(outputs, expected, inputs=call)
        except AssertionError as error:
            error.add_note(f"{name}, inputs of {[tuple(x.shape) for x in call]}")
            raise
    return len(calls)


class Positions(torch.nn.Module):
    """As many tokens as positions, which only the sum says: 4 * 4."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Parameter(torch.linspace(-1, 1, 16 * 16).view(1, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x.flatten(1, 2) + self.positions).softmax(-1)
        return tokens.view(x.shape[0], -1, 2, 8).transpose(1, 2).relu()


class Shrinking(torch.nn.Module):
    """A volume that is one voxel at its end, as the norm's check says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pool = torch.nn.AvgPool3d(2)
        self.norm = torch.nn.BatchNorm3d(3)
        self.conv = torch.nn.Conv3d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.norm(self.pool(self.pool(x))).relu())


@pytest.mark.parametrize(
    ("make", "shape"), [(Positions, (2, 4, 4, 16)), (Shrinking, (2, 3, 4, 4, 4))]
)
def test_a_check_says_what_an_open_size_is(
    make: type[torch.nn.Module], shape: tuple[int, ...]
) -> None:
    assert check("", make().eval(), (torch.rand(shape),)) > 1


@pytest.mark.parametrize("transposed", [False, True])
def test_batches_of_a_convolution_quantized_at_run_time(transposed: bool) -> None:
    """Each image has a row of padding of its own, and images come and go."""
    torch.manual_seed(0)
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    module = torch.nn.Sequential(kind(8, 16, 3, padding=1), torch.nn.ReLU())
    example = (torch.randn(2, 8, 9, 9),)
    dim = torch.export.Dim.AUTO
    sizes = ({0: dim, 2: dim, 3: dim},)
    program = quantized.pt2e(module, example, dynamic=True, ours=True, dynamic_shapes=sizes)
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=partitioners("xnnpack"))
    shapes = [(2, 9, 9), (12, 9, 9), (15, 12, 7), (3, 9, 9), (12, 5, 5), (1, 9, 9)]
    calls = [(torch.randn(n, 8, h, w),) for n, h, w in shapes]
    eager = program.module()
    for call, (got,) in zip(calls, run_ours(edge.to_executorch().buffer, *calls), strict=True):
        wanted = eager(*call)
        # Each image has a scale of its own here, and all have one in PyTorch.
        assert (got - wanted).abs().max() <= 2e-2 * wanted.abs().max(), call[0].shape
