"""The pass manager: order, groups, what passes declare, and who looks on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import edgewise
from edgewise.errors import InternalError
from edgewise.passes import (
    Dump,
    Group,
    Pass,
    PassManager,
    Property,
    Times,
    Verifier,
    declared,
    watching,
)

EVEN: Property[list[int]] = Property(
    "numbers are even", lambda graph: ", ".join(str(n) for n in graph if n % 2)
)


def halve(graph: list[int]) -> bool:
    found = [i for i, n in enumerate(graph) if n % 2 == 0 and n > 2]
    for i in found[:1]:
        graph[i] //= 2
    return bool(found)


def drop_ones(graph: list[int]) -> bool:
    before = len(graph)
    graph[:] = [n for n in graph if n != 1]
    return len(graph) != before


def broken(graph: list[int]) -> None:
    if not graph:
        raise ValueError("no numbers")


def law(*steps: Pass[list[int]] | Group[list[int]]) -> PassManager[list[int]]:
    return PassManager("numbers", steps, broken)


def test_a_group_runs_until_nothing_changes() -> None:
    graph = [8, 1, 4]
    assert law(Group(Pass(halve), Pass(drop_ones)))(graph)
    assert graph == [2, 2]
    assert not law(Group(Pass(halve), Pass(drop_ones)))(graph)


def test_outside_of_a_group_a_pass_runs_once() -> None:
    graph = [8, 4]
    assert law(Pass(halve))(graph)
    assert graph == [4, 4]


def test_a_group_that_does_not_end_is_told() -> None:
    with pytest.raises(InternalError, match="must come to an end; got 16 rounds of flip"):
        law(Group(Pass(lambda graph: True, name="flip")))([1])


@declared(requires=(EVEN,), ensures=(EVEN,))
def add_one(graph: list[int]) -> bool:
    graph[0] += 1
    return True


def hidden(graph: list[int]) -> bool:
    graph.append(2)
    return False


def empty(graph: list[int]) -> bool:
    graph.clear()
    return True


# What passes do against what they say | the graph | what is told.
BROKEN: dict[str, tuple[Pass[list[int]], list[int], str]] = {
    "a requirement": (add_one, [3], "add_one requires that numbers are even; got 3"),
    "an assurance": (add_one, [2], "add_one ensures that numbers are even; got 3"),
    "a claim": (Pass(hidden), [2], "hidden must return whether it changed the graph"),
    "the law": (Pass(empty), [2], "empty must leave a valid graph; got no numbers"),
}


@pytest.mark.parametrize(("one", "graph", "told"), BROKEN.values(), ids=BROKEN)
def test_a_verifier_tells(one: Pass[list[int]], graph: list[int], told: str) -> None:
    with watching(Verifier(claims=True)), pytest.raises(InternalError, match=told):
        law(one)(graph)


def test_nobody_looks_on_behind_the_block() -> None:
    times = Times()
    with watching(times):
        law(Pass(halve))([4])
    law(Pass(halve))([4])
    assert times.runs == {("numbers", "halve"): 1}


def test_a_dump_has_what_changed_and_times(tmp_path: Path) -> None:
    dump = Dump(tmp_path / "passes")
    with watching(dump):
        law(Pass(halve), Pass(drop_ones))([4, 2])
    dump.close()
    written = {p.name: p.read_text() for p in (tmp_path / "passes").iterdir()}
    assert written.pop("times.txt").splitlines()[1].endswith("1  numbers: halve")
    assert written == {
        "000-numbers-before.txt": "[4, 2]\n",
        "001-numbers-halve.txt": "[2, 2]\n",
    }


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x)).clamp(0, 6).mean((2, 3))
        a, b = self.head(y).chunk(2, 1)
        return torch.cond(x.sum() > 0, torch.tanh, torch.sigmoid, (a,)) * b.softmax(-1)


def vision() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )


# Backend | quantization | managers whose passes run.
PROGRAMS: dict[str, tuple[Callable[[], torch.nn.Module], str, str | None, set[str]]] = {
    "control flow": (Net, "xnnpack", None, {"export", "edge", "xnnpack"}),
    "integers": (vision, "xnnpack", "int8", {"export", "edge", "xnnpack"}),
    "dynamic integers": (vision, "xnnpack", "int8-dynamic", {"export", "edge", "xnnpack"}),
    "integer weights": (vision, "xnnpack", "int8-weight", {"export", "edge", "xnnpack"}),
    "Ethos-U": (vision, "ethos-u55-128", "int8", {"export", "edge", "ethos-u"}),
    "Neutron": (vision, "neutron-imxrt700-reference", "int8", {"export", "edge", "neutron"}),
}


@pytest.mark.parametrize(
    ("make", "backend", "quantize", "managers"), PROGRAMS.values(), ids=PROGRAMS
)
def test_passes_do_what_they_declare(
    make: Callable[[], torch.nn.Module], backend: str, quantize: str | None, managers: set[str]
) -> None:
    x = (torch.rand(1, 3, 8, 8),)
    if backend.startswith("ethos"):
        pytest.importorskip("tosa_serializer")
    times = Times()
    with watching(Verifier(claims=True), times):
        edgewise.compile(
            make().eval(),
            x,
            backend=backend,
            quantize=quantize,
            calibration=[x] if quantize == "int8" else None,
            verbose=False,
        )
    assert {manager for manager, _ in times.runs} == managers
