"""What no backend took, told by cause: in records, on the page's data and in the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import edgewise
from edgewise.cli.app import app
from edgewise.inspect.record import MethodRecord, ModuleRecord, NodeRecord, RefusalRecord
from edgewise.inspect.refused import causes


def node(name: str, operator: str, rule: str, module: str = "m", **more: Any) -> NodeRecord:
    refusal = RefusalRecord("N", rule, more.pop("got", ""), more.pop("hint", ""), rule == "follows")
    return NodeRecord(
        name, "call", operator, modules=(ModuleRecord(module, "M"),), source=f"{module}.py:1",
        refusals=(refusal,), **more,
    )  # fmt: skip


def told(*nodes: NodeRecord) -> list[tuple[dict[str, int], bool]]:
    return [(dict(c.operators), c.follows) for c in causes(MethodRecord("forward", tuple(nodes)))]


WHOLE = {"decomposed_from": "aten.layer_norm.default"}
# nodes; what is counted, and whether it is a consequence
CASES: dict[str, tuple[list[NodeRecord], list[tuple[dict[str, int], bool]]]] = {
    "two of one kind": (
        [node("a", "x", "r"), node("b", "x", "r", "n")], [({"x": 2}, False)],
    ),
    "two kinds, one rule": (
        [node("a", "x", "r"), node("b", "y", "r")], [({"x": 1, "y": 1}, False)],
    ),
    "two rules": (
        [node("a", "x", "r", bytes=1), node("b", "x", "s", bytes=2)],
        [({"x": 1}, False), ({"x": 1}, False)],
    ),
    "pieces of two layer norms": (
        [node(f"{m}{i}", f"aten.{o}", "r", m, **WHOLE)
         for m in ("m", "n") for i, o in enumerate(("mean", "rsqrt", "mul"))],
        [({"aten.layer_norm.default": 2}, False)],
    ),
    "one kind of piece": (
        [node(m, "aten.rsqrt", "r", m, **WHOLE) for m in ("m", "n")],
        [({"aten.rsqrt": 2}, False)],
    ),
    "consequences come last": (
        [node("q", "quantize", "follows", bytes=99), node("a", "x", "r")],
        [({"x": 1}, False), ({"quantize": 1}, True)],
    ),
    "between delegates come first": (
        [node("a", "x", "r", bytes=99), node("b", "y", "s", splits=True)],
        [({"y": 1}, False), ({"x": 1}, False)],
    ),
    "delegated": ([node("a", "x", "r", delegate=0)], []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_operators_of_a_cause(case: str) -> None:
    nodes, wanted = CASES[case]
    assert told(*nodes) == wanted


class Net(nn.Module):
    """Layer norms that an NPU of Neutron does not take as they are, sorts and integers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        y = self.first(x).sort(dim=1).values
        return self.second(y).sort(dim=1).values + ids


@pytest.mark.parametrize("backend", ["xnnpack", "neutron-imxrt700-reference", "ethos-u55-128"])
def test_remarks_name_operator_module_and_line_and_nothing_that_was_done(
    backend: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 16), torch.ones(16, dtype=torch.int64))
    program = edgewise.compile(
        Net().eval(), inputs, backend=backend, quantize="int8", calibration=[inputs], verbose=False
    )
    path = tmp_path / "net.pte"
    program.save(path, record=True)
    shown = CliRunner().invoke(app, ["explain", str(path)], env={"COLUMNS": "200"}).output
    for text in (shown, str(program.delegation_report())):
        assert "2 x aten.sort.default" in text
        assert re.search(r"test_inspect_refused\.py:\d+", text)
        assert "try quantize=" not in text
        assert re.search(r"try [^\n]*Quantizer", text) is None
        # Names of nodes, which only the graph has: `linear_1`, `quantize_per_tensor_default_3`.
        assert re.findall(r"\b(?!int|py|ethosu)[a-z_]+(?:_default)?_\d+\b", text) == []
        # Consequences are told together, not one by one.
        assert "quantized_decomposed" not in text
