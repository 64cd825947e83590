"""The operator table: what each row accepts is one delegate, what it refuses still runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import quantized_cases
import torch
from xnnpack_bounds import assert_as_promised
from xnnpack_cases import ACCEPTED, ASKED, REFUSED, UNREACHED

import lesser_cpu
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.edge.program import Constants
from support import (
    RUNTIMES,
    Fn,
    assert_close,
    eager64,
    export,
    kinds,
    lower,
    operators,
    payloads,
    run_ours,
)

pytestmark = pytest.mark.matrix


def skip_states_of_2_12(row: str, module: torch.nn.Module) -> None:
    states = set(getattr(module, "places", ())) - {0}
    if row == "lstm" and states and str(torch.__version__) < "2.13":
        pytest.skip("torch.export of 2.12 gives the last states a dimension more")


def flat(table: dict) -> list:
    return [
        pytest.param(
            row,
            *(case if isinstance(case, tuple) else (case,)),
            id=f"{row}: {name}" if name else row,
        )
        for row, cases in table.items()
        for name, case in cases.items()
    ]


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize(("row", "module", "inputs"), flat(ACCEPTED))
def test_accepted(
    row: str, module: torch.nn.Module, inputs: tuple, runtime: str, lowered: Callable
) -> None:
    skip_states_of_2_12(row, module)
    lesser_cpu.skip_logarithm_of_infinity(row, inputs, runtime)
    program = lowered(module, inputs)
    assert operators(program.buffer) == ["delegate"], program.delegation_report()
    (outputs,) = RUNTIMES[runtime](program.buffer, inputs)
    assert_as_promised(program, outputs, module, inputs, runtime=runtime)


LONG: dict[str, torch.nn.Module] = {
    "mean": Fn(lambda x: x.mean((1, 2, 3))),
    "sum": Fn(lambda x: x.sum((1, 2, 3))),
    "variance": Fn(lambda x: x.var((1, 2, 3))),
    "group norm": torch.nn.GroupNorm(1, 64),
}


@pytest.mark.parametrize("name", LONG)
def test_sums_of_half_a_million_keep_their_digits(name: str) -> None:
    module, x = LONG[name], 1 + torch.linspace(-1, 1, 64 * 96 * 96).sin().reshape(1, 64, 96, 96)
    buffer = lower(module, (x,)).buffer
    assert operators(buffer) == ["delegate"]
    (got,), wanted = run_ours(buffer, (x,))[0], eager64(module, (x,))[0]
    assert float((got.double() - wanted).norm() / wanted.norm()) < 1e-6


@pytest.mark.parametrize(("row", "module", "inputs", "operator", "reason"), flat(REFUSED))
def test_refused(
    row: str, module: torch.nn.Module, inputs: tuple, operator: str, reason: str
) -> None:
    program = lower(module, inputs)
    if operator:
        (node,) = [n for n in program.delegation_report().refused if n.operator == operator]
        (reasons,) = node.reasons.values()
        assert any(reason in r for r in reasons), reasons
        assert operators(program.buffer) != ["delegate"]
    assert_close(run_ours(program.buffer, inputs)[0], eager64(module, inputs))


@pytest.mark.parametrize("name", ASKED)
def test_refused_and_decomposed(name: str) -> None:
    module, inputs, reason = ASKED[name]
    skip_states_of_2_12(name.partition(":")[0], module)
    program = export(module, inputs)
    (row,) = [row for row in TABLE.definitions if row.name == name.partition(":")[0]]
    nodes = [n for n in program.graph.nodes if n.target in row.targets]
    if reason:
        (node,) = nodes
        reasons = [str(refusal) for refusal in row.refusals(node, Constants(program))]
        assert any(r.startswith(reason) for r in reasons), reasons
    if "dropout" not in name:
        pte = lower(module, inputs).buffer
        assert_close(run_ours(pte, inputs)[0], eager64(module, inputs))


def test_every_row_has_an_accepted_case() -> None:
    names = sorted([*ACCEPTED, *quantized_cases.ACCEPTED])
    assert names == sorted(row.name for row in TABLE.definitions)


@pytest.fixture(scope="module")
def lowered() -> Callable:
    """Each case is lowered once for both runtimes."""
    made: dict[int, object] = {}

    def once(module: torch.nn.Module, inputs: tuple) -> object:
        if id(module) not in made:
            made[id(module)] = lower(module, inputs)
        return made[id(module)]

    return once


def test_every_rule_has_a_refusing_case_or_a_reason() -> None:
    """Rules are checked where programs reach them; the others by asking the row."""
    shown = [case[3] for cases in REFUSED.values() for case in cases.values()]
    shown += [case[2] for case in ASKED.values()]
    shown += [case[3] for case in quantized_cases.REFUSED.values()]
    for row in TABLE.definitions:
        for constraint in row.constraints:
            reached = any(text.startswith(constraint.rule) for text in shown)
            assert reached or (row.name, constraint.rule) in UNREACHED, (row.name, constraint.rule)


def test_documentation_table_is_made_of_the_rows() -> None:
    for row in TABLE.definitions:
        assert row.name
        assert row.targets
        assert all(c.rule for c in row.constraints)


ROWS = torch.linspace(-2, 2, 12).reshape(2, 6)
SQUARE = torch.linspace(-1, 1, 24).reshape(6, 4)
NODES = {
    "sigmoid": (Fn(torch.sigmoid), ROWS, ["Clamp", "Sigmoid"]),
    "sigmoid: half": (Fn(torch.sigmoid), ROWS.half(), ["Sigmoid"]),
    "rsqrt: zeros": (
        Fn(lambda x: x.relu().rsqrt().clamp(max=9)),
        ROWS,
        ["Clamp", "SquareRoot", "Div"],
    ),
    "rsqrt: a norm's epsilon": (
        Fn(lambda x: (x.square() + 1e-5).rsqrt()),
        ROWS,
        ["Square", "Add", "ReciprocalSquareRoot"],
    ),
    "rsqrt: a bound": (
        Fn(lambda x: x.clamp(min=0.5).rsqrt()),
        ROWS,
        ["Clamp", "ReciprocalSquareRoot"],
    ),
    "addmm: a layer": (
        Fn(lambda x, w, b: torch.addmm(b, x, w), w=SQUARE, b=torch.arange(4.0)),
        ROWS,
        ["FullyConnected"],
    ),
    "addmm: one number": (
        Fn(lambda x, w, b: torch.addmm(b, x, w), w=SQUARE, b=torch.tensor([0.5])),
        ROWS,
        ["FullyConnected"],
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str) -> None:
    """Which nodes a row makes, and that they compute the same."""
    module, x, expected = NODES[name]
    pte = lower(module, (x,)).buffer
    (graph,) = payloads(pte)
    assert kinds(graph) == expected
    bound = {} if x.dtype == torch.float32 else {"rel": 1e-3}
    assert_close(run_ours(pte, (x,))[0], eager64(module, (x,)), **bound)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_cells_are_kept_whole(name: str) -> None:
    module = getattr(torch.nn, name)(6, 4)
    report = lower(module, (ROWS,)).delegation_report()
    assert {n.operator for n in report.nodes} >= {f"aten.{name[:-4].lower()}_cell.default"}
