"""In-place operators: which are rewritten, which take a trace, and that none changes results."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edge_support import assert_equals_eager
from hypothesis import given, settings
from hypothesis import strategies as st

import edgewise
from edgewise.edge.functionalize import functionalize, is_functional
from edgewise.edge.program import copy_program
from support import Fn, assert_close, eager, export

pytestmark = pytest.mark.matrix

X = (torch.linspace(-2, 3, 12).reshape(3, 4),)
SQUARE = (torch.linspace(-2, 3, 9).reshape(3, 3),)


def residual(x):
    y = torch.sin(x)
    y += x
    return y * 2


def chain(x):
    y = x + 1
    return y.relu_().mul_(2).add_(1)


def chain_by_name(x):
    y = x + 1
    y.relu_()
    y.mul_(2)
    return y - 1


def both_names(x):
    y = x + 1
    z = y.relu_()
    y.mul_(2)
    return y + z


def first_name_after(x):
    y = x + 1
    z = y.relu_()
    z.mul_(2)
    return y


def uses_before_and_after(x):
    y = x + 1
    before = y * 3
    y.relu_()
    return before + y


def dead_view(x):
    y = x + 1
    before = y.view(-1) * 2
    y.relu_()
    return y.view(-1) + before


def through_dropout(x):
    y = F.dropout(x + 1, training=False)
    y.relu_()
    return y


def out_of_dropout(x):
    y = x + 1
    z = F.dropout(y, training=False)
    z.relu_()
    return y


def masked(x):
    y = x + 1
    y.masked_fill_(x > 0, 0.5)
    return y


def indexed(x):
    y = x + 1
    y[torch.tensor([0, 2])] = 1.0
    return y


def swapped_in_place(x):
    y = x + 1
    y.transpose_(0, 1)
    return y * 2 + x


def reshaped_in_place(x):
    y = x + 1
    before = y.view(-1)
    y.unsqueeze_(0).squeeze_().t_()
    y.swapaxes_(0, 1).swapdims_(1, 0).detach_()
    return y * 2, before + 1


def reshaped_and_written(x):
    y = x + 1
    y.unsqueeze_(0)
    y.relu_()
    y.squeeze_(0)
    return y * 2


def reshaped_and_written_under_a_view(x):
    y = x + 1
    before = y.view(-1)
    y.unsqueeze_(0)
    y.relu_()
    return y * 2, before


def write_view(x):
    y = x + 1
    y[0].relu_()
    return y


def write_slice(x):
    y = x + 1
    y[:, 1:3] = 7.0
    return y


def read_alias(x):
    y = x + 1
    v = y.view(-1)
    y.relu_()
    return v


def write_alias(x):
    y = x + 1
    v = y.reshape(-1)
    v.relu_()
    return y


def alias_of_alias(x):
    y = x + 1
    a, b = y.t(), y.view(-1)
    a.relu_()
    return b


def split_part(x):
    y = x + 1
    a, b = y.split(2, dim=1)
    a.mul_(5)
    return y + torch.cat([b, a], 1)


def einsum_view(x):
    y = x + 1
    v = torch.einsum("ij->ji", y)
    v.relu_()
    return y


def flatten_view(x):
    y = x + 1
    v = y.flatten()
    v.mul_(3)
    return y


def same_type(x):
    y = x.float()
    y.add_(1)
    return y


def promotes(x):
    y = x.to(torch.int32) + 1
    y.mul_(torch.tensor(2, dtype=torch.int64))
    return y


def copies_another_type(x):
    y = x.to(torch.int32) + 1
    y.copy_(x)
    return y


def writes_input(x):
    x.mul_(2)
    return x + 1


def writes_input_view(x):
    x[0].mul_(2)
    return x.sum(0)


# In place without a trace, or with one.
IN_PLACE = [
    residual,
    chain,
    chain_by_name,
    both_names,
    first_name_after,
    uses_before_and_after,
    dead_view,
    through_dropout,
    out_of_dropout,
    masked,
    indexed,
    swapped_in_place,
    reshaped_in_place,
    reshaped_and_written,
    copies_another_type,
    writes_input,
]
TRACED = [
    reshaped_and_written_under_a_view,
    write_view,
    write_slice,
    read_alias,
    write_alias,
    alias_of_alias,
    split_part,
    einsum_view,
    flatten_view,
    writes_input_view,
]
EITHER = [same_type, promotes]


def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever a whole program is traced."""
    found: list[int] = []
    original = torch.export.ExportedProgram.run_decompositions

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counting)
    return found


@pytest.mark.parametrize("function", IN_PLACE + TRACED + EITHER, ids=lambda f: f.__name__)
def test_results_are_eagers(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = Fn(function), SQUARE if function is swapped_in_place else X
    program = export(module, inputs)
    count = traces(monkeypatch)
    lowered = edgewise.to_edge(program).exported_program()
    assert is_functional(lowered.graph)
    assert_equals_eager(lowered, module, inputs)
    if function not in EITHER:
        assert len(count) == (0 if function in IN_PLACE else 1)


@pytest.mark.parametrize("function", TRACED, ids=lambda f: f.__name__)
def test_what_takes_a_trace_is_left_alone(function: Any) -> None:
    program = copy_program(export(Fn(function), X))
    before = str(program.graph)
    assert functionalize(program) is None
    assert str(program.graph) == before


def test_nothing_to_do() -> None:
    assert functionalize(copy_program(export(Fn(lambda x: x + 1), X))) is False


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("rows", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        self.rows[1] = x[1]
        return x + self.steps + self.rows


class Whole(Steps):
    """Buffers that are written themselves, and twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.rows + 0
        self.steps.add_(1).mul_(2)
        self.rows.index_copy_(0, torch.tensor([1]), x[1:2])
        row = self.rows[1] + 0
        self.rows.copy_(self.rows.to(torch.int32) * self.steps.to(torch.int32))
        return x + self.steps + row + before


class OldView(Steps):
    """A view from before the write is read after it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.rows[1]
        self.rows.add_(x)
        self.steps.add_(1)
        return row * 2


class Returned(Steps):
    def forward(self, x: torch.Tensor) -> Any:
        self.steps.add_(1)
        return self.steps, self.rows.add_(x)


@pytest.mark.parametrize(("kind", "traced"), [(Steps, 1), (Whole, 0), (OldView, 1), (Returned, 0)])
def test_buffers_are_updated(kind: Any, traced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = kind()
    program = export(module, X)
    count = traces(monkeypatch)
    lowered = edgewise.to_edge(program).exported_program()
    assert len(count) == traced
    targets = {s.target for s in lowered.graph_signature.output_specs if s.target}
    assert targets == {"steps", "rows"}
    unlifted, reference = lowered.module(), copy.deepcopy(module)
    for _ in range(3):
        got, want = unlifted(*X), eager(reference, X)
        assert_close(got if isinstance(got, tuple) else [got], want)
        assert_close(list(unlifted.buffers()), list(reference.buffers()))


def test_inputs_are_mutated() -> None:
    lowered = edgewise.to_edge(export(Fn(writes_input), X)).exported_program()
    kinds = [spec.kind.name for spec in lowered.graph_signature.output_specs]
    assert kinds == ["USER_INPUT_MUTATION", "USER_OUTPUT"]


def test_residual_network_takes_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.models import MODELS

    spec = MODELS["resnet18"]
    program = export(spec.build(0), spec.example_inputs(0))
    count = traces(monkeypatch)
    edgewise.compile(program)
    assert not count


# --- random programs ------------------------------------------------------------------

STEPS: dict[str, Any] = {
    "fresh": lambda x, y: torch.sin(x) + y,
    "turned": lambda x, y: x.t(),
    "same view": lambda x, y: x.reshape(9).view(3, 3),
    "no copy": lambda x, y: F.dropout(x, training=False).contiguous(),
    "an element of a tuple": lambda x, y: torch.cat(x.unbind(0)).view(3, 3),
    "add": lambda x, y: x.add_(y.clone()),
    "relu": lambda x, y: x.relu_(),
    "copy": lambda x, y: x.copy_(y.clone()),
    "a row": lambda x, y: x[0].mul_(2).expand(3, 3) + y,
    "a column": lambda x, y: x.t()[1].fill_(0.5).expand(3, 3) * y,
    "in place, then fresh": lambda x, y: x.mul_(0.5) + y,
}


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Steps, each with two earlier values; 0 is fresh, 1 the input, 2 a buffer."""
    found = []
    for i in range(draw(st.integers(1, 6))):
        place = st.integers(0, i + 2)
        found.append((draw(st.sampled_from(sorted(STEPS))), draw(place), draw(place)))
    return found


class Random(torch.nn.Module):
    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = steps
        self.register_buffer("state", torch.linspace(-1, 1, 9).reshape(3, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x * 2, x, self.state]
        for name, i, j in self.steps:
            values.append(STEPS[name](values[i], values[j]))
        return tuple(v + 0 for v in values)


@pytest.mark.slow
@settings(max_examples=30)
@given(programs())
def test_random_programs(steps: list[tuple[str, int, int]]) -> None:
    module = Random(steps)
    manager = edgewise.to_edge(export(copy.deepcopy(module), SQUARE))
    assert is_functional(manager.exported_program().graph)
    method = edgewise.runtime.load(manager.to_executorch().buffer)
    (x,) = SQUARE
    for _ in range(2):  # the second one begins with the buffer that the first one left
        given, own = x.clone(), x.clone()
        assert_close(method(given.numpy()), module(own), 1e-5)
        assert_close([given], [own], 1e-5)
