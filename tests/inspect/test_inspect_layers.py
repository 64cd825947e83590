"""Cycles by layer and the arena of an NPU program: Vela's tables beside our own model."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import edgewise
from edgewise.backends.ethosu import payload
from edgewise.backends.ethosu.lowering.estimating import origin_of
from edgewise.backends.ethosu.simulator.timing import timeline
from edgewise.cli.app import app
from edgewise.inspect.layers import layers, slowest, table_of
from edgewise.inspect.reading import delegate_payloads
from edgewise.inspect.record import (
    DelegateRecord,
    EdgeRecord,
    EstimateRecord,
    MethodRecord,
    ModuleRecord,
    NodeRecord,
    find_record,
)

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


class Net(nn.Module):
    """A residual block, a table and a product: layers of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.stem(x).relu()
        return self.head((stem + self.block(stem).sigmoid()).mean((2, 3)))


@pytest.fixture(scope="module", params=TARGETS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 32, 32)
    program = edgewise.compile(
        Net().eval(), x, backend=request.param, quantize="int8", calibration=[x], verbose=False
    )
    path: Path = tmp_path_factory.mktemp("layers") / "net.pte"
    program.save(path, record=True)
    return path


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("table_7", "relu"),
        ("rescale_12/lut/Mul", "softmax"),
        ("rescale_12_transpose", "softmax"),
        ("table_70", ""),
        ("rescale", ""),
        ("#1102", ""),
        ("", ""),
    ],
)
def test_what_vela_puts_in_is_for_the_node_that_it_names(name: str, node: str) -> None:
    assert origin_of(name, {"table_7": "relu", "rescale_12": "softmax"}) == node


def method_of(file: Path) -> MethodRecord:
    record = find_record(file)
    assert record is not None
    return record.method()


def test_every_cycle_of_the_model_is_some_layers(file: Path) -> None:
    (_, _, _, data) = next(iter(delegate_payloads(file)))
    told = timeline(payload.from_bytes(data).commands)
    rows = layers(method_of(file))
    kernels = {span.offset for span in told.spans if span.lane == "NPU"}
    # A table is looked up on the way out of the layer before it: no command, no time.
    assert {row.operator for row in rows if not row.commands} == {"LUT"}
    assert {offset for row in rows for offset in row.commands} <= kernels
    # Kernels follow each other; only the last transfers may outlast them.
    ends = [span.end for span in told.spans if span.lane == "NPU"]
    assert sum(row.model_cycles or 0 for row in rows) == max(ends)
    assert sum(row.waiting for row in rows) == told.busy("waiting")


def test_layers_are_at_the_modules_that_they_compute(file: Path) -> None:
    rows = [row for row in layers(method_of(file)) if row.macs]
    of = {row.module: row for row in rows if row.module}
    assert {"stem", "block.0", "block.1", "head"} <= set(of)
    assert of["stem"].macs >= 16 * 16 * 16 * 27
    (mean,) = (row for row in rows if row.node and "mean" in row.node.operator)
    assert mean.macs == 16 * 16 * 16
    assert all(row.source.split(":")[0].endswith(".py") for row in of.values())
    assert all(0 < row.utilization <= 1 for row in of.values())


def test_blocks_of_the_arena_are_nobody_elses_while_they_are_held(file: Path) -> None:
    method = method_of(file)
    (delegate,) = method.delegates
    assert delegate.estimates is not None
    blocks = [dict(block) for block in delegate.estimates.memory]
    assert len(blocks) >= 6
    count = len(delegate.estimates.layers)
    assert all(0 <= b["first"] <= b["last"] < count for b in blocks)
    for a, b in combinations(blocks, 2):
        apart = a["last"] <= b["first"] or b["last"] <= a["first"]  # reader and writer of a step
        space = (
            a["address"] + a["bytes"] <= b["address"] or b["address"] + b["bytes"] <= a["address"]
        )
        assert apart or space or a["memory"] != b["memory"], (a, b)
    figures = delegate.estimates.figures
    for memory in {b["memory"] for b in blocks}:
        peak = max(b["address"] + b["bytes"] for b in blocks if b["memory"] == memory)
        assert peak <= figures[f"{memory} bytes used"]


class Product(nn.Module):
    """Between products of two results: what only the CPU has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x).tanh()
        sorted_, _ = (first @ first.transpose(1, 2)).sort(dim=-1)
        second = self.second(sorted_)
        return second @ second.transpose(1, 2)


@pytest.fixture(scope="module", params=TARGETS)
def products(request: pytest.FixtureRequest) -> MethodRecord:
    torch.manual_seed(0)
    x = torch.randn(1, 12, 12)
    program = edgewise.compile(
        Product().eval(), x, backend=request.param, quantize="int8", calibration=[x], verbose=False
    )
    return program.record().method()


def test_each_delegate_has_its_own_layers(products: MethodRecord) -> None:
    assert [delegate.partition for delegate in products.delegates] == ["ethosu_0", "ethosu_1"]
    modules = [{r.module for r in layers(products) if r.delegate == d and r.macs} for d in (0, 1)]
    assert ["first" in of and "second" not in of for of in modules] == [True, False]
    assert ["second" in of and "first" not in of for of in modules] == [False, True]


def test_a_product_has_the_time_of_all_its_commands(products: MethodRecord) -> None:
    # On U55 and U65 it is a multiplication and a sum for each column, in one layer of Vela's.
    rows = [row for row in layers(products) if row.operator == "MatMul"]
    assert len(rows) == 2
    for row in rows:
        assert row.model_cycles is not None
        assert 0.4 < row.model_cycles / row.cycles < 2.5, row


def test_explain_and_profile_print_them(file: Path) -> None:
    for command in (["explain", str(file)], ["profile", str(file), "-n", "1", "-w", "0"]):
        told = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
        assert told.exit_code == 0, told.output
        assert "NPU cycles by layer:" in told.output
        assert "by edgewise's model" in told.output
        assert any(
            "Conv2D" in line and "stem" in line and "test_inspect_layers.py:" in line
            for line in told.output.splitlines()
        ), told.output


def test_a_layer_named_for_what_ends_it_is_for_what_multiplies() -> None:
    steps = (ModuleRecord("", "Net"), ModuleRecord("conv", "Conv2d"))
    nodes = (
        NodeRecord("conv", "call", "aten.convolution.default", modules=steps, delegate=0, macs=9),
        NodeRecord("clamp", "call", "aten.clamp.default", delegate=0),
        NodeRecord("other", "call", "aten.add.Tensor", delegate=0),
    )
    edges = (EdgeRecord("conv", 0, "clamp", 0), EdgeRecord("clamp", 0, "other", 0))
    rows = (
        {"operator": "Conv2D", "node": "clamp", "cycles": 10, "MACs": 9},
        {"operator": "Add", "node": "other", "cycles": 30},
        {"operator": "Transpose", "node": "gone", "cycles": 20, "bound": "Sram"},
    )
    estimates = EstimateRecord("a compiler", {}, rows)
    delegate = DelegateRecord("X", "x_0", 0, 0, estimates=estimates)
    found = layers(MethodRecord("forward", nodes, edges, delegates=(delegate,)))
    assert [row.node.name if row.node else None for row in found] == ["conv", "other", None]
    assert found[0].module == "conv"
    assert [row.cycles for row in slowest(found)] == [30, 20, 10]
    heads, cells = table_of(found, found)
    assert heads == [">compiler", ">share", "limited by", "layer", "module"]
    assert cells[0] == ["10", "16.7 %", "", "Conv2D", "conv"]
