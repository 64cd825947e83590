"""What the NPU cannot run stays outside, node by node with the reason, and the rest runs there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ethosu_reference import SPECS, operator_steps, partitioned, parts, quantized
from torch import nn

import edgewise
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner
from edgewise.backends.ethosu.lowering import trial, vela
from edgewise.backends.ethosu.lowering.trial import offenders
from edgewise.edge.graph import fake
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.partition.spec import Refusal
from support import Fn, export, run_ours

QD = torch.ops.quantized_decomposed
NOT_U85, ALL = ("U55", "U65"), ("U55", "U65", "U85")
BOOLEANS = "booleans only on U85"


@dataclass(frozen=True)
class Lowered:
    """function(*inputs): what it has on the NPU, and why the rest is not."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    families: tuple[str, ...]
    delegates: int
    reasons: dict[str, str] = field(default_factory=dict)
    """By operator."""
    quantize: bool = True
    kernels: frozenset[str] = frozenset()
    """What runs outside without being asked for."""
    steps: int = 1
    """Of the result, by which it may be off: each operator by one, for what it reads."""


class Around(nn.Module):
    """The function between two convolutions."""

    def __init__(self, function: Callable[..., Any], before: int = 4, after: int = 4) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(4, before, 1), nn.Conv2d(after, 4, 1)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.function(self.before(x)))


class Diamond(nn.Module):
    """Squeeze and excitation: what one path computes scales what another one reads."""

    def __init__(self, gate: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.b, self.d, self.gate = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x)
        return x + self.d(self.gate(self.b(y)) * y)


class Branches(nn.Module):
    """Bodies that compute with what is dequantized in them."""

    def forward(self, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        def stored(y: torch.Tensor) -> torch.Tensor:
            return QD.quantize_per_tensor(y, 0.1, 0, -128, 127, torch.int8)

        def real(q: torch.Tensor) -> torch.Tensor:
            return QD.dequantize_per_tensor(q, 0.05, 3, -128, 127, torch.int8)

        return torch.cond(
            x.sum() > 0.5,
            lambda q: stored(torch.sigmoid(real(q)) + real(q)),
            lambda q: stored(torch.tanh(real(q))),
            (q,),
        )


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (1, 4, 6, 20), generator=torch.Generator().manual_seed(0))


def integers(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-100, 100, shape, generator=generator, dtype=torch.int8)


BOOLEAN_MOVES: dict[str, Callable[..., Any]] = {
    "aten.permute_copy.default": lambda c: c.permute(1, 0).contiguous(),
    "aten.expand_copy.default": lambda c: c.expand(2, 3, 4).clone(),
    "aten.repeat.default": lambda c: c.repeat(2, 2),
    "aten.cat.default": lambda c: torch.cat([c, c], 1),
    "aten.slice_copy.Tensor": lambda c: c[:, 1:3].clone(),
    "aten.constant_pad_nd.default": lambda c: F.pad(c, (1, 2)),
    "aten.select_copy.int": lambda c: c[:, 1].clone(),
}
TRUTHS = image(3, 4) > 0


def _cases() -> dict[str, Lowered]:
    return {
        **{
            f"booleans: {name}": Lowered(Fn(f), (TRUTHS,), NOT_U85, 0, {name: BOOLEANS}, False)
            for name, f in BOOLEAN_MOVES.items()
        },
        **{
            f"booleans on U85: {name}": Lowered(Fn(f), (TRUTHS,), ("U85",), 1, {}, False)
            for name, f in BOOLEAN_MOVES.items()
        },
        "booleans by index": Lowered(
            Fn(lambda c: c.index_select(1, torch.tensor([2, 0]))), (TRUTHS,), ("U85",), 1, {}, False
        ),
        "integers, padded": Lowered(
            Fn(lambda x: F.pad(x, (1, 2), value=7)), (integers(3, 4),), ALL, 1
        ),
        "integers, a function of them": Lowered(
            Fn(torch.abs), (integers(3, 4),), ALL, 0,
            {"aten.abs.default": "operands are quantized real numbers"}, False,
        ),
        "slopes that are computed": Lowered(
            Fn(lambda x, w: F.prelu(x, w)), (image(), image(4)), NOT_U85, 0,
            kernels=frozenset(
                f"aten.{n}" for n in ("gt.Scalar", "mul.Tensor", "view_copy.default", "where.self")
            ),
        ),
        "slopes that are computed and quantized": Lowered(
            Fn(lambda x, w: F.prelu(x, torch.tanh(w))), (image(), image(4)), NOT_U85, 1,
            kernels=frozenset(
                f"aten.{n}" for n in ("gt.Scalar", "mul.Tensor", "view_copy.default", "where.self")
            ),
        ),
        "a transposed convolution": Lowered(
            Around(nn.ConvTranspose2d(4, 6, (1, 4), stride=(1, 2), padding=(0, 1)), after=6),
            (image(),), NOT_U85, 1,
        ),
        "a large permutation": Lowered(
            Fn(lambda x: torch.sigmoid(torch.tanh(x).permute(1, 0)) + 1),
            (image(70000, 2),), NOT_U85, 1,
        ),
        "windows with padding that is not counted": Lowered(
            Around(nn.AvgPool2d((2, 9), 1, 1, count_include_pad=False)),
            (image(),), NOT_U85, 2, {"aten.avg_pool2d.default": "windows of at most 8 x 8"},
        ),
        "windows with padding": Lowered(  # the weights behind enlarge a step of the average
            Around(nn.AvgPool2d((2, 9), 1, 1)), (image(),), ALL, 1, steps=7
        ),
        "a convolution of large steps": Lowered(
            nn.Conv2d(4, 4, 3, stride=(4, 7)), (image(),), ALL, 1
        ),
        "a sum of many": Lowered(Fn(torch.sum), (image(65537),), ALL, 1),
        "a sum compared": Lowered(Fn(lambda a: a.sum() > 0.5), (image(3, 4),), ("U85",), 1),
        "a sum compared elsewhere": Lowered(
            Fn(lambda a: a.sum() > 0.5), (image(3, 4),), NOT_U85, 1,
            {"aten.gt.Scalar": "others have no booleans"},
        ),
        "two paths": Lowered(Diamond(torch.sigmoid), (image(),), ALL, 1),
        "two paths, hardsigmoid": Lowered(Diamond(F.hardsigmoid), (image(),), ALL, 1),
        "branches": Lowered(
            Branches(), (image(4), integers(4, 6)), ALL, 2, {}, False,
            frozenset({"aten.sum.dim_IntList", "aten.gt.Scalar"}),
        ),
    }  # fmt: skip


with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    CASES = _cases()  # each with the same weights in every run
FLAT = [
    pytest.param(name, family, id=f"{name}, {family}")
    for name, case in CASES.items()
    for family in case.families
]


@pytest.mark.parametrize(("name", "family"), FLAT)
def test_falls_back_node_by_node(name: str, family: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    program = (
        quantized(case.module, case.inputs) if case.quantize else export(case.module, case.inputs)
    )
    spec = EthosUCompileSpec(SPECS[family])
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    made = edge.to_executorch()
    report = edge.delegation_report()
    assert len(report.estimates) == case.delegates
    left = {n.operator: " ".join(map(str, n.refusals)) for n in report.nodes if not n.partition}
    for operator, reason in case.reasons.items():
        assert re.search(reason, left[operator]), left
    kernels = {name for name in left if not name.startswith(BORDERS)}
    assert kernels == set(case.reasons) | case.kernels
    expected = program.module()(*case.inputs)
    ((found,),) = run_ours(made.buffer, case.inputs)
    if not expected.dtype.is_floating_point:
        off = (found.int() - expected.int()).abs().max()
        assert off <= (0 if expected.dtype == torch.bool else 1)
        return
    scale = next(n for n in reversed(program.graph.nodes) if is_dequantize(n)).args[1]
    assert float((found - expected).abs().max()) <= (case.steps + 1e-3) * scale
    for part in parts(partitioned(program, family)):
        values = [fake(n) for n in part.graph.nodes if n.op == "placeholder"]
        read = [torch.randint(-128, 128, v.shape).to(v.dtype) for v in values[-1:]]
        off = operator_steps(part, read, family)
        assert max(off.values()) <= 1, off


BORDERS = ("quantized_decomposed.", "getitem", "_operator.getitem")


class Model:
    """Units by number, of which a set is refused together with another one."""

    def __init__(self, *bad: tuple[int, ...]) -> None:
        self.bad, self.asked = bad, 0

    def __call__(self, units: Any) -> Refusal | None:
        self.asked += 1
        found = [b for b in self.bad if set(b) <= set(units)]
        return Refusal("Vela compiles it", str(found[0])) if found else None


def test_offenders_are_those_refused_alone_or_the_last_of_the_shortest_beginning() -> None:
    units = list(range(40))
    assert list(offenders(units, Model((3,), (17,), (5, 9)))) == [3, 17]
    model = Model((5, 9), (8, 30))
    assert {unit: r.got for unit, r in offenders(units, model).items()} == {9: "(5, 9)"}
    assert model.asked < 50


def test_what_was_tried_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    plain = vela.compile_tosa

    def counted(tosa: bytes, *options: Any) -> Any:
        compiled.append(len(tosa))
        return plain(tosa, *options)

    monkeypatch.setattr(trial.vela, "compile_tosa", counted)
    program = quantized(Around(F.relu), (image(),))
    spec = EthosUCompileSpec("ethos-u55-128")
    edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    assert len(compiled) == 1


def test_a_partition_that_vela_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest runs there, and the report has its words."""
    monkeypatch.setattr("edgewise.backends.ethosu.lowering.moving._MOST_MOVED", 2**40)
    function = Fn(lambda x: torch.sigmoid(torch.tanh(x).permute(1, 0)) + 1)
    spec = EthosUCompileSpec("ethos-u55-128")
    edge = edgewise.to_edge_transform_and_lower(
        quantized(function, (image(70000, 2),)), partitioner=[EthosUPartitioner(spec)]
    )
    report = edge.delegation_report()
    assert len(report.estimates) == 2
    (node,) = [n for n in report.nodes if n.operator == "aten.permute_copy.default"]
    assert re.search("Vela compiles it for .*; got .*Transpose", str(node.refusals[0]))


def test_a_partition_that_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another partitioner's, say: Vela refuses it once it is compiled."""
    monkeypatch.setattr(
        "edgewise.backends.ethosu.lowering.partitioner.refusal_of", lambda *asked: None
    )
    monkeypatch.setattr("edgewise.backends.ethosu.lowering.moving._MOST_MOVED", 2**40)
    function = Fn(lambda x: torch.sigmoid(torch.tanh(x).permute(1, 0)) + 1)
    program = quantized(function, (image(70000, 2),))
    spec = EthosUCompileSpec("ethos-u55-128")
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    report = edge.delegation_report()
    assert not report.estimates
    (node,) = [n for n in report.nodes if n.operator == "aten.permute_copy.default"]
    assert str(node.refusals[0]).startswith("Vela compiles it for ethos-u55-128; got Non-pass")


@pytest.mark.parametrize("name", ["mobilenet_v3_small"])
def test_squeeze_and_excitation_is_one_delegate(name: str) -> None:
    from examples.models import MODELS

    model = MODELS[name]
    inputs = model.example_inputs(0)
    program = edgewise.compile(
        model.build(), inputs, backend="Ethos-U55-128", quantize="int8", calibration=[inputs],
        verbose=False,
    )  # fmt: skip
    report = program.delegation_report()
    assert (len(report.estimates), report.share("macs")) == (1, 1)
