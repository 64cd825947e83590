"""Branches and loops: each equal to eager on both runtimes, delegated or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from memory_checker import check_memory
from torch import nn
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_rows

import edgewise
from edgewise.edge.bodies import graphs_within
from edgewise.format.program import JumpFalseCall
from edgewise.partition.lowered_module import is_delegate_call
from support import RUNTIMES, Fn, assert_close, eager, export, lower, operators, partitioners
from support import run_ours as run

pytestmark = pytest.mark.matrix

Tensor = torch.Tensor
X = torch.linspace(-2, 3, 12).reshape(3, 4)
IMAGE = torch.linspace(-2, 3, 240).reshape(2, 4, 6, 5)
ROWS = torch.export.Dim("rows", min=3, max=8)
LONGER = torch.linspace(-1, 4, 28).reshape(7, 4)


class Layers(nn.Module):
    """Weights captured by both branches of a condition in a branch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("bias", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            return torch.cond(x.max() > 3, lambda x: self.left(x) * 2, lambda x: x - 1, (x,))

        y = torch.cond(x.sum() > 0, lambda x: self.right(x) + self.bias, inner, (x,))
        return self.left(y).relu()


class Images(nn.Module):
    """Orders of dimensions: a convolution's result is channels-last in one branch only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        positive = x.sum() > 0
        x = self.conv(x.to(memory_format=torch.channels_last))
        y = torch.cond(positive, lambda x: self.conv(x), lambda x: x.atan() * 2, (x,))
        return y.relu() + x


class Counts(nn.Module):
    """A buffer is written around a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(torch.cond(x.sum() > 0, lambda x: x.max(), lambda x: x.min(), (x,)))
        return x + self.count


def fibonacci(x: Tensor, n: Tensor) -> Any:
    """Carried values change places; a captured one bounds the loop."""
    i = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(
        lambda i, a, b: i < n, lambda i, a, b: (i + 1, b.clone(), a + b), (i, x, x + 1)
    )


def collatz(n: Tensor) -> Any:
    """A branch in a loop."""

    def step(n: Tensor, steps: Tensor) -> Any:
        return torch.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,)), steps + 1

    return torch.while_loop(lambda n, steps: n != 1, step, (n, torch.zeros((), dtype=torch.int64)))


def nested_loops(x: Tensor) -> Any:
    """The inner loop's bound is the outer one's count."""

    def outer(i: Tensor, x: Tensor) -> Any:
        def inner(j: Tensor, y: Tensor) -> Any:
            return j + 1, y * 0.5 + i

        _, y = torch.while_loop(lambda j, y: j < i, inner, (torch.zeros_like(i), x.sin()))
        return i + 1, y + x

    return torch.while_loop(lambda i, x: i < 4, outer, (torch.zeros((), dtype=torch.int64), x))


def loop_of_numbers(x: Tensor) -> Any:
    return torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i), (0, x))


def used_after(x: Tensor) -> Tensor:
    """What is computed before the loop is read in each round, and after it."""
    a, b = x.sin(), x.cos()
    _, y = torch.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, (y * a).exp() - b),
        (torch.zeros((), dtype=torch.int64), x * 1),
    )
    return y + a.tan() + b


def maps_in_maps(x: Tensor, y: Tensor) -> Tensor:
    return map_rows(lambda row, y: map_rows(lambda v, y: v * y, row, y).sin(), x, y)


def several_rows(x: Tensor, y: Tensor) -> Any:
    return map_rows(lambda rows, y: (rows[0] * y, rows[1].sum()), (x, x + 1), y)


def cumulative(x: Tensor) -> Any:
    return scan(lambda c, row: (c * 0.5 + row, (c + row, row.sum())), torch.zeros(4), x)


def cond(condition: Any, yes: Any, no: Any) -> Callable[..., Any]:
    return lambda *x: torch.cond(condition(*x), yes, no, x)


# Module | calls | dynamic shapes | runtimes that take the file.
Case = tuple[Callable[[], nn.Module], list[tuple[Any, ...]], Any, tuple[str, ...]]
BOTH = ("ours", "peer")
CASES: dict[str, Case] = {
    "cond": (
        lambda: Fn(cond(lambda x: x.sum() > 0, torch.sin, torch.cos)),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
    "cond with weights, nested": (Layers, [(X,), (-X,), (X - 9,), (X * 4 - 9,)], None, BOTH),
    "cond in channels-last": (Images, [(IMAGE,), (-IMAGE,)], None, BOTH),
    "cond with several results": (
        lambda: Fn(
            cond(
                lambda x: x.sum() > 0,
                lambda x: (x * 2, x.sum(), x.argmax(1)),
                lambda x: (x.exp(), x.max(), x.argmin(1)),
            )
        ),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
    "cond with parts of a tensor": (
        lambda: Fn(
            lambda x: torch.cond(
                x.sum() > 0,
                lambda x: torch.cat(x.chunk(2, -1)[::-1], -1) * 2,
                lambda x: x[:, 1:].repeat(1, 2)[:, :4] + 1,
                (x,),
            )
        ),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
    "cond with one result twice": (
        lambda: Fn(
            cond(
                lambda x: x.sum() > 0,
                lambda x: ((y := x.sin()), y.clone(), x.clone()),
                lambda x: (x.clone(), x + 1, x.cos()),
            )
        ),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
    "cond on a size": (
        lambda: Fn(cond(lambda x: x.shape[0] > 4, lambda x: x.sum(0), lambda x: x.prod(0))),
        [(X,), (LONGER,), (X,)],
        (({0: ROWS},),),
        BOTH,
    ),
    "cond with dynamic sizes": (
        lambda: Fn(cond(lambda x: x.sum() > 0, lambda x: x.atan() * 2, lambda x: x + x.shape[0])),
        [(X,), (-LONGER,), (LONGER,), (-X,)],
        (({0: ROWS},),),
        BOTH,
    ),
    "cond around state": (Counts, [(X,), (-X,), (X,)], None, BOTH),
    "cond with sizes that data tell": (
        lambda: Fn(
            cond(
                lambda x: x.sum() > 0, lambda x: torch.nonzero(x).sum() + x.sum(), lambda x: x.max()
            )
        ),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
    "while that swaps": (
        lambda: Fn(fibonacci),
        [(X, torch.tensor(n)) for n in (5, 0, 1)],
        None,
        BOTH,
    ),
    "while with a branch": (
        lambda: Fn(collatz),
        [(torch.tensor(n),) for n in (7, 1, 27)],
        None,
        BOTH,
    ),
    "while in while": (lambda: Fn(nested_loops), [(X,), (-X,)], None, BOTH),
    "while with a number": (lambda: Fn(loop_of_numbers), [(X,), (-X,)], None, BOTH),
    "while that reads what was before": (lambda: Fn(used_after), [(X,), (-X,)], None, BOTH),
    "map": (
        lambda: Fn(lambda x, y: map_rows(lambda r, y: (r + y).sin(), x, y) * 2),
        [(X, X[0].clone()), (-X, X[1].clone())],
        None,
        BOTH,
    ),
    "map of dynamic length": (
        lambda: Fn(lambda x, y: map_rows(lambda r, y: r + y, x, y) * 2),
        [(X, X[0].clone()), (LONGER, X[1].clone()), (X, X[2].clone())],
        (({0: ROWS}, None),),
        BOTH,
    ),
    "map of any length": (
        lambda: Fn(lambda x, y: map_rows(lambda r, y: r + y, x, y) * 2),
        [(X, X[0].clone()), (LONGER, X[1].clone()), (X, X[2].clone())],
        (({0: torch.export.Dim.AUTO}, None),),
        ("ours",),
    ),
    "map in map": (lambda: Fn(maps_in_maps), [(X, X[0, :1].sum()), (-X, X[1, 1])], None, BOTH),
    "map of several": (
        lambda: Fn(several_rows),
        [(X, X[0].clone()), (-X, X[1].clone())],
        None,
        BOTH,
    ),
    "map over images": (
        lambda: Fn(lambda x: map_rows(lambda r, y: (r * y).amax(0), x, x[0].clone())),
        [(IMAGE,)],
        None,
        BOTH,
    ),
    "scan": (lambda: Fn(cumulative), [(X,), (-X,)], None, BOTH),
    "a condition without gradients": (
        lambda: Fn(torch.no_grad()(cond(lambda x: x.sum() > 0, torch.sin, torch.cos))),
        [(X,), (-X,)],
        None,
        BOTH,
    ),
}


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str | None], Any]:
    return {}


def _lowered(name: str, partitioner: str | None, made: dict[Any, Any]) -> Any:
    if (name, partitioner) not in made:
        make, calls, shapes, _ = CASES[name]
        made[name, partitioner] = lower(
            make().eval(), calls[0], partitioner=partitioner, dynamic_shapes=shapes
        )
    return made[name, partitioner]


RUNS = [(n, r) for n, case in CASES.items() for r in case[3]]


@pytest.mark.peer
@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize(("name", "runtime"), RUNS, ids=[f"{n}-{r}" for n, r in RUNS])
def test_our_file(name: str, runtime: str, partitioner: str | None, made: Any) -> None:
    make, calls, _, _ = CASES[name]
    pte = _lowered(name, partitioner, made).buffer
    module = make().eval()
    for got, inputs in zip(RUNTIMES[runtime](pte, *calls), calls, strict=True):
        assert_close(got, eager(module, inputs))


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("name", CASES)
def test_memory_on_every_path(name: str, partitioner: str | None, made: Any) -> None:
    """No value is overwritten before its last read, whatever way the jumps go."""
    plan = _lowered(name, partitioner, made).executorch_program.execution_plan[0]
    for seed in range(20):
        check_memory(plan, seed, zero_states=int(CASES[name][0] is Counts))


@pytest.mark.parametrize(
    "name", ["cond", "cond with weights, nested", "cond with dynamic sizes", "map", "scan"]
)
def test_the_peers_file(name: str, tmp_path: Any) -> None:
    pytest.importorskip("executorch")
    from executorch.exir import to_edge

    make, calls, shapes, _ = CASES[name]
    module = make().eval()
    pte = to_edge(export(module, calls[0], dynamic_shapes=shapes)).to_executorch().buffer
    for got, inputs in zip(run(pte, *calls), calls, strict=True):
        assert_close(got, eager(module, inputs))


def test_delegates_run_inside_of_branches_and_the_report_names_these() -> None:
    edge = edgewise.to_edge_transform_and_lower(
        export(Layers().eval(), (X,)), partitioner=partitioners("xnnpack")
    )
    inside = {
        path
        for path, body in graphs_within(edge.exported_program().graph_module)
        if any(is_delegate_call(n) for n in body.graph.nodes)
    }
    branches = ("true_graph_0", "false_graph_0")
    wanted = {*branches, *(f"false_graph_0/{name}" for name in branches)}
    assert inside == wanted
    report = edge.delegation_report()
    found = {n.name.rpartition("/")[0] for n in report.nodes if n.partition}
    assert found == {"", *wanted}
    assert len(report.delegates) == 6
    assert "in false_graph_0" in str(report)  # what was refused there


def test_weights_of_branches_are_stored_once() -> None:
    size = len(lower(Layers().eval(), (X,), partitioner=None).buffer)
    wide = len(
        lower(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), (X,), partitioner=None).buffer
    )
    assert size < wide + 6000  # instructions and values, no third and fourth matrix of weights


def test_a_loop_that_does_not_end_is_stopped() -> None:
    """A file is untrusted: a jump to itself must not hang the process."""
    from edgewise.format.file import read
    from edgewise.runtime import Runtime, UnsupportedError

    manager = lower(Fn(collatz), (torch.tensor(7),), partitioner=None)
    plan = manager._emitted.program.execution_plan[0]
    (never,) = [
        i
        for i, v in enumerate(plan.values)
        if type(v.val).__name__ == "Bool" and not v.val.bool_val
    ][:1]
    jumps = [
        i.instr_args for i in plan.chains[0].instructions if isinstance(i.instr_args, JumpFalseCall)
    ]
    jumps[0].cond_value_index, jumps[0].destination_instruction = never, 0
    first = next(
        n
        for n, i in enumerate(plan.chains[0].instructions)
        if isinstance(i.instr_args, JumpFalseCall)
    )
    jumps[0].destination_instruction = first
    pte = manager._emitted.to_bytes()
    assert read(pte) is not None
    method = Runtime.get().load_program(pte).load_method("forward")
    with pytest.raises(UnsupportedError, match="loops may take 100000000 rounds"):
        method.execute([np.int64(7)])


def test_a_map_without_rows_is_an_error() -> None:
    from edgewise.runtime import Error

    shapes = (({0: torch.export.Dim.AUTO}, None),)
    pte = lower(
        Fn(lambda x, y: map_rows(lambda r, y: r + y, x, y)),
        (X, X[0].clone()),
        dynamic_shapes=shapes,
    ).buffer
    with pytest.raises(Error, match="select_copy"):
        run(pte, (X[:0], X[0].clone()))


def test_operators_of_a_branch() -> None:
    pte = lower(
        Fn(cond(lambda x: x.sum() > 0, torch.sin, torch.cos)), (X,), partitioner=None
    ).buffer
    assert operators(pte) == [
        "aten::sum.IntList_out",
        "aten::gt.Scalar_out",
        "aten::sin.out",
        "aten::cos.out",
    ]


def test_quantized_constants_of_bodies() -> None:
    """PT2E leaves numbers that became tensors in the bodies themselves."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(x.sum() > 0, lambda v: v * 0.9 + 0.1, lambda v: v * 0.5 - 0.3, (x,))
            first = torch.tensor(0)
            _, y = torch._higher_order_ops.while_loop(
                lambda i, v: i < 3, lambda i, v: (i + 1, torch.tanh(v * 0.7) + 0.1), (first, y)
            )
            return y

    model, x = Net(), torch.rand(2, 8)
    program = edgewise.compile(model, (x,), quantize="int8", calibration=[x, -x], verbose=False)
    run = edgewise.load(program.buffer)
    for given in (x, -x):
        np.testing.assert_allclose(run(given.numpy()), model(given).numpy(), atol=0.05)


@pytest.mark.parametrize("backend", ["xnnpack", "ethos-u55-128"])
def test_branches_within_branches_are_quantized_around(backend: str) -> None:
    if backend != "xnnpack":
        pytest.importorskip("ethosu", reason="extra [ethosu]")

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def within(v: torch.Tensor) -> torch.Tensor:
                return torch.cond(v.mean() > 0.6, lambda w: w * 0.9, lambda w: w * 0.5, (v,))

            return torch.cond(x.sum() > 0, within, lambda v: v - 0.3, (x * 2,))

    model, x = Net(), torch.rand(2, 8)
    options: Any = {"quantize": "int8", "calibration": [x, -x, x / 4], "verbose": False}
    program = edgewise.compile(model, (x,), backend=backend, **options)
    run = edgewise.load(program.buffer)
    for given in (x, -x, x / 4):
        np.testing.assert_allclose(run(given.numpy()), model(given).numpy(), atol=0.05)
