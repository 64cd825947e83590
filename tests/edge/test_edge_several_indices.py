"""Constant indices of several neighbouring dimensions become those of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from edge_support import assert_equals_eager, assert_values_are_as_said, edge, spelling

from edgewise.quantize.constant_indices import join_indices
from edgewise.quantize.fold import drop_notes
from support import Fn

X = torch.randn(2, 4, 5, 3)
ROWS, COLUMNS = torch.tril_indices(4, 5, -1)
LAYERS = torch.tensor([0, 1, -1])

JOINED: dict[str, Any] = {
    "two": lambda x: x[:, ROWS, COLUMNS],
    "the first two": lambda x: x[LAYERS, -LAYERS],
    "three": lambda x: x[LAYERS, LAYERS, LAYERS],
    "all": lambda x: x[LAYERS, LAYERS, LAYERS, LAYERS],
    "the last": lambda x: x[..., LAYERS, LAYERS],
    "of two sizes": lambda x: x[:, ROWS[:, None], COLUMNS[:3]],
    "int32": lambda x: x[:, ROWS.int(), COLUMNS.int()],
}
LEFT: dict[str, Any] = {
    "one": lambda x: x[:, ROWS],
    "others between": lambda x: x[LAYERS, :, LAYERS],
    "computed": lambda x: x[:, ROWS, x[0, 0, 0, :1].long() * 0],
    "many runs": lambda x: x[:, [0, 2] * 40, [1, 0] * 40],
}


@pytest.mark.parametrize("name", [*JOINED, *LEFT])
def test_programs(name: str) -> None:
    """The second index is left where it was."""
    module = Fn({**JOINED, **LEFT}[name]).eval()
    program = edge(module, (X,))
    indices = [n.args[1] for n in program.graph.nodes if str(n.target) == "aten.index.Tensor"]
    several = [one for one in indices if sum(index is not None for index in one) > 1]
    assert ("view_copy.default" in spelling(program)) == (name in JOINED)
    assert (not several) == (name in JOINED or name == "one")
    assert_values_are_as_said(program, (X,))
    assert_equals_eager(program, module, (X,))


@pytest.mark.parametrize("name", [*JOINED, *LEFT])
def test_before_quantization(name: str) -> None:
    module = torch.export.export(Fn({**JOINED, **LEFT}[name]).eval(), (X,)).module()
    drop_notes(module)
    want = module(X)
    assert join_indices(module) == (name in JOINED)
    assert torch.equal(module(X), want)
