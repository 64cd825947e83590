"""Buffers and inputs that a method writes: kept over calls, equal to eager in each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from support import RUNTIMES, assert_close, eager, lower

pytestmark = pytest.mark.matrix


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


class WrittenEarly(torch.nn.Module):
    """The new state is computed long before the method ends."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.copy_(torch.sin(x) + self.state)
        for _ in range(4):
            x = torch.cos(x) * 3 + 1
        return x


class TurnedEarly(torch.nn.Module):
    """The new state reads elements of the old one at other places: it cannot be computed there."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(6.0).view(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.copy_(torch.flip(self.state, [0]))
        for _ in range(4):
            x = torch.cos(x) * 3 + 1
        return x


class ReturnsOld(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.state.clone()
        self.state.copy_(x)
        return old


class Swap(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        a, b = self.a.clone(), self.b.clone()
        self.a.copy_(b)
        self.b.copy_(a + x)
        return self.a + 0, self.b + 0


class Delay(torch.nn.Module):
    """Two buffers that pass values on: the second one takes the first one's old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(3))
        self.register_buffer("second", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.second.clone()
        self.second.copy_(self.first)
        self.first.copy_(x)
        return result


class Cache(torch.nn.Module):
    """A row of a buffer is written through a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, at, x)
        return self.rows * 2


class Average(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.mean


CASES: dict[str, tuple[Any, list[tuple[torch.Tensor, ...]]]] = {
    "counter": (Counter, [(torch.zeros(2),)] * 3),
    "written early": (WrittenEarly, [(torch.full((2, 3), i + 0.5),) for i in range(3)]),
    "returns the old value": (ReturnsOld, [(torch.full((3,), i + 1.0),) for i in range(3)]),
    "swap": (Swap, [(torch.full((3,), i + 1.0),) for i in range(3)]),
    "delay": (Delay, [(torch.full((3,), i + 1.0),) for i in range(4)]),
    "cache": (Cache, [(torch.full((1, 3), i + 1.0), torch.tensor([i])) for i in range(3)]),
    "average": (Average, [(torch.full((2, 3), i + 1.0),) for i in range(3)]),
}


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize("name", CASES)
def test_state_is_kept_over_calls(name: str, runtime: str, partitioner: str | None) -> None:
    make, calls = CASES[name]
    module = make().eval()
    pte = lower(module, calls[0], partitioner=partitioner).buffer
    results = RUNTIMES[runtime](pte, *calls)
    for inputs, outputs in zip(calls, results, strict=True):
        assert_close(outputs, eager(module, inputs))


class WritesItsInput(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
def test_an_input_that_is_written(runtime: str) -> None:
    module, y = WritesItsInput(), torch.arange(3.0)
    pte = lower(module, (torch.ones(3), y)).buffer
    assert_close(RUNTIMES[runtime](pte, (torch.ones(3), y))[0], eager(module, (torch.ones(3), y)))


class TurnedLate(TurnedEarly):
    """The old state is read after the new one is there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.state + 0
        self.state.copy_(torch.flip(self.state, [0]))
        return torch.cos(x) * 3 + torch.cumsum(old, 0)


def instructions_of(
    module: torch.nn.Module, *shape: int
) -> tuple[Any, list[tuple[str, list[int]]]]:
    """The plan of a method with an input of that shape, and its calls by operator."""
    program = lower(module.eval(), (torch.ones(shape),), partitioner=None)
    plan = program.executorch_program.execution_plan[0]
    calls = [i.instr_args for i in plan.chains[0].instructions]
    return plan, [(plan.operators[call.op_index].name, call.args) for call in calls]


@pytest.mark.parametrize(
    ("module", "shape"),
    [(TurnedEarly, (2, 3)), (TurnedLate, (2, 3)), (Swap, (3,)), (Delay, (3,))],
)
def test_a_new_state_is_not_overwritten_before_it_is_kept(module: Any, shape: Any) -> None:
    """Its memory is taken until it is copied, and the old one is read by then."""
    from edgewise.format.program import Tensor

    plan, named = instructions_of(module(), *shape)
    copies = [at for at, (name, _) in enumerate(named) if name == "aten::copy_"]
    assert copies
    for copy in copies:
        state, source = named[copy][1][:2]
        where = plan.values[source].val.allocation_info
        before = [at for at, (_, args) in enumerate(named[:copy]) if source in args]
        for _, args in named[max(before, default=copy) + 1 : copy]:
            for index in args:
                value = plan.values[index].val
                if index != source and isinstance(value, Tensor) and value.allocation_info:
                    assert value.allocation_info != where
        assert all(state not in args or name == "aten::copy_" for name, args in named[copy + 1 :])


def test_a_new_state_is_kept_where_the_old_one_was_read_last() -> None:
    """So its memory serves what follows."""
    _, named = instructions_of(TurnedEarly(), 2, 3)
    assert [name for name, _ in named[:3]] == ["aten::flip", "aten::copy_", "aten::cos"]
