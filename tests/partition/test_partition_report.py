"""The report: every node with its backend or the reasons against it, its work and source line."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from edgewise.backends.xnnpack import ConfigPrecisionType, XnnpackPartitioner
from edgewise.inspect.needs import runs_on
from support import Fn, export, lower, partitioners


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).relu()
        y = torch.atan(y)  # refused
        y = y.mean((2, 3))
        return self.linear(y).cumsum(1)  # refused too


IMAGE = (torch.randn(1, 3, 6, 6),)


@pytest.fixture(scope="module")
def report() -> edgewise.DelegationReport:
    return lower(Mixed(), IMAGE).delegation_report()


def test_nodes(report: edgewise.DelegationReport) -> None:
    assert [(n.operator, n.backend, n.partition) for n in report.nodes] == [
        ("aten.convolution.default", "XnnpackBackend", "xnnpack_0"),
        ("aten.relu.default", "XnnpackBackend", "xnnpack_0"),
        ("aten.atan.default", "runtime", ""),
        ("aten.mean.dim", "XnnpackBackend", "xnnpack_1"),
        ("aten.linear.default", "XnnpackBackend", "xnnpack_1"),
        ("aten.cumsum.default", "runtime", ""),
    ]
    assert report.delegates == ["xnnpack_0", "xnnpack_1"]
    names = [n.name for n in report.nodes]
    assert [n.inputs for n in report.nodes] == [[], *([name] for name in names[:-1])]
    assert {tuple(n.types) for n in report.nodes} == {("float32",)}


def test_shares(report: edgewise.DelegationReport) -> None:
    macs = {n.operator: n.macs for n in report.nodes}
    assert macs["aten.convolution.default"] == 8 * 4 * 4 * 3 * 3 * 3
    assert macs["aten.linear.default"] == 8 * 5
    assert macs["aten.atan.default"] == 0
    assert report.share() == pytest.approx(4 / 6)
    assert report.share("macs") == 1
    sizes = {n.operator: n.bytes for n in report.nodes}
    assert sizes["aten.atan.default"] == 2 * 4 * 8 * 4 * 4
    assert sizes["aten.linear.default"] == 4 * (8 + 8 * 5 + 5 + 5)
    delegated = sum(n.bytes for n in report.nodes if n.partition)
    assert report.share("bytes") == pytest.approx(delegated / sum(sizes.values()))


def test_source_lines_are_those_of_the_model(report: edgewise.DelegationReport) -> None:
    lines = Path(__file__).read_text().splitlines()
    for node in report.refused:
        path, _, line = node.source.rpartition(":")
        assert path == __file__
        assert "# refused" in lines[int(line) - 1]
    assert {n.module for n in report.nodes} >= {"conv", "linear"}


def test_every_refused_node_has_reasons(report: edgewise.DelegationReport) -> None:
    assert [n.reasons for n in report.refused] == [
        {"XnnpackBackend": ["an operator of the XNNPACK table; got aten.atan.default"]},
        {"XnnpackBackend": ["an operator of the XNNPACK table; got aten.cumsum.default"]},
    ]
    assert all(not n.reasons for n in report.nodes if n.partition)


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "bert_small"])
@pytest.mark.parametrize(
    "partitioner",
    [
        XnnpackPartitioner(),
        XnnpackPartitioner(["linear", "conv2d"]),
        XnnpackPartitioner(config_precisions=ConfigPrecisionType.STATIC_QUANT),
    ],
    ids=["all", "two rows", "no precision"],
)
def test_every_refused_node_of_a_model_has_reasons(name: str, partitioner: Any) -> None:
    from examples.models import MODELS

    program = export(MODELS[name].build(0), MODELS[name].example_inputs(0))
    report = edgewise.to_edge_transform_and_lower(
        program, partitioner=partitioner
    ).delegation_report()
    assert report.nodes
    for node in report.refused:
        assert node.reasons.get("XnnpackBackend"), node
    text = str(report)
    assert "no backend was asked" not in text


def test_json_holds_all_of_it(report: edgewise.DelegationReport, tmp_path: Path) -> None:
    from dataclasses import asdict

    loaded = json.loads(report.to_json(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == loaded
    assert loaded["method"] == "forward"
    assert loaded["delegates"] == 2
    assert loaded["nodes"] == [asdict(n) for n in report.nodes]
    assert loaded["share"]["macs"] == 1


class Balance(HTMLParser):
    """Whether every tag that is opened is closed; what the page's data say."""

    VOID = ("meta", "br", "input", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.data: Any = None

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if data.startswith('{"title"'):
            self.data = json.loads(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_well_formed(report: edgewise.DelegationReport, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert not parser.open
    (method,) = parser.data["programs"][0]["methods"]
    assert [n["name"] for n in method["nodes"]] == [n.name for n in report.nodes]
    assert [n["source"] for n in method["nodes"]] == [n.source for n in report.nodes]
    refused = {n["name"]: n["refusals"] for n in method["nodes"] if "refusals" in n}
    assert set(refused) == {n.name for n in report.refused}
    assert len(method["delegates"]) == 2


def test_html_of_integers_has_the_models_operators() -> None:
    """Quantizations are told of the operators that they belong to, and only there."""
    made = edgewise.compile(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        IMAGE,
        quantize="int8",
        calibration=[IMAGE],
        verbose=False,
    )
    parser = Balance()
    parser.feed(made.delegation_report().to_html())
    (method,) = parser.data["programs"][0]["methods"]
    assert [n["op"] for n in method["nodes"]] == [
        "aten.convolution.default",
        "aten.relu.default",
        "aten.convolution.default",
    ]
    assert [n.get("stored") for n in method["nodes"]] == [None, "int8", "int8"]
    assert method["edges"] == [[0, 1], [1, 2]]


def test_html_escapes() -> None:
    name = "<script>alert(1)</script>"
    report = edgewise.to_edge({name: export(Fn(torch.atan), IMAGE)}).delegation_report(name)
    page = report.to_html()
    assert "<script>alert" not in page
    assert "\\u003cscript>alert" in page


def test_text(report: edgewise.DelegationReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    lines = Path(__file__).read_text().splitlines()
    first, second = (
        next(i for i, line in enumerate(lines, 1) if line.endswith(end))
        for end in ("# refused", "# refused too")
    )
    here = Path(__file__).name
    assert str(report).splitlines() == [
        "method forward: 6 nodes, 2 delegates",
        "  runs on         delegates  nodes     MACs           bytes moved",
        "  XnnpackBackend  2          4 (67 %)  3.5 k (100 %)  3.64 kB (77 %)",
        "  runtime         -          2 (33 %)  0 (0 %)        1.06 kB (23 %)",
        "not delegated, between delegates:",
        "  1 x aten.atan.default: not an operator of the XNNPACK table (1.02 kB, 22 %;",
        f"      {here}:{first})",
        "not delegated:",
        f"  1 x aten.cumsum.default: not an operator of the XNNPACK table ({here}:{second})",
    ]


def test_what_stands_between_delegates(report: edgewise.DelegationReport) -> None:
    assert [n.operator for n in report.nodes if n.splits] == ["aten.atan.default"]


class Many(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.add(x, x.relu(), alpha=2)
        y = torch.add(y, x, alpha=2)
        y = torch.add(y, x, alpha=3)
        return torch.sub(y, x, alpha=5)


def test_one_entry_for_an_operator_and_a_rule() -> None:
    text = str(lower(Many(), IMAGE).delegation_report())
    squeezed = " ".join(text.split())
    assert "1 x aten.sub.Tensor" in squeezed
    assert "3 x aten.add.Tensor" in squeezed
    assert ": alpha=1; got alpha=2 or alpha=3, ... (" in squeezed
    assert "+3 more lines)" in squeezed
    assert text.count("try multiplying the second operand first") == 1


class Borders(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sort(self.first(x))[0] * torch.tensor(2).cumsum(0))


def test_causes_without_consequences_and_advice_that_was_taken() -> None:
    x = torch.randn(2, 8)
    program = edgewise.compile(
        Borders().eval(),
        (x,),
        backend="neutron-imxrt700-reference",
        quantize="int8",
        calibration=[x],
        verbose=False,
    )
    text = str(program.delegation_report())
    squeezed = " ".join(text.split())
    assert "quantizations at the borders of delegates, on the CPU" in squeezed
    assert "goes with its operator" not in text
    assert "aten.sort.default" in text
    assert "try" not in squeezed.partition("not delegated")[2].split()
    assert "NeutronQuantizer with" not in squeezed


def test_lines_fit_a_terminal() -> None:
    def deep(x: torch.Tensor) -> torch.Tensor:
        for i in range(20):
            x = torch.add(x, x.atan(), alpha=i + 2)
        return x

    text = str(lower(Fn(deep), IMAGE).delegation_report())
    assert max(map(len, text.splitlines())) <= 100
    assert "20 x aten.atan.default" in text
    assert "got alpha=2 or alpha=3, ..." in " ".join(text.split())


def test_an_operator_that_was_not_kept_whole_is_named() -> None:
    def masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) + y.relu()

    x = torch.randn(1, 2, 4, 8)
    exported = export(Fn(masked), (x, x))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=XnnpackPartitioner())
    report = edge.delegation_report()
    pieces = [n for n in report.nodes if n.decomposed_from]
    assert pieces
    for node in pieces:
        assert node.decomposed_from is not None
        assert node.decomposed_from.operator == "aten.scaled_dot_product_attention.default"
        (refusal,) = node.decomposed_from.refusals
        assert (refusal.backend, refusal.rule) == ("XnnpackBackend", "dropout_p=0")
        assert refusal.got == "dropout_p=0.5"
    refused = sum(not n.partition for n in pieces)
    squeezed = " ".join(str(report).split())
    assert (
        "1 x aten.scaled_dot_product_attention.default: dropout_p=0; got dropout_p=0.5" in squeezed
    )
    assert f"became {refused} operators outside of delegates" in squeezed
    assert json.loads(report.to_json())["nodes"][0]["decomposed_from"]["refusals"]
    assert "dropout_p=0.5" in report.to_html()


def test_a_package_s_lines_are_shown_from_the_package_on() -> None:
    from edgewise.edge.graph import source_line

    node = torch.fx.Graph().placeholder("x")
    folder = Path(torch.__file__).parent
    node.meta["stack_trace"] = f"""
  File "/home/user/model.py", line 3, in forward
  File "/opt/lib/site-packages/timm/layers/norm.py", line 12, in forward
  File "{folder}/nn/functional.py", line 7, in relu
"""
    assert source_line(node) == "timm/layers/norm.py:12"
    node.meta["stack_trace"] = """
  File "/home/user/torch/model.py", line 3, in forward
  File "/opt/lib/python3/dist-packages/torch/nn/modules/linear.py", line 12, in forward
"""
    assert source_line(node) == "/home/user/torch/model.py:3"


def test_compile_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    program = edgewise.compile(nn.ReLU(), IMAGE)
    printed = capsys.readouterr()
    releases = f"runs on {runs_on(program.needs())}"
    assert printed.err == f"{program.delegation_report()}\n{releases}\n"
    assert not printed.out
    edgewise.compile(nn.ReLU(), IMAGE, verbose=False)
    assert capsys.readouterr().err == ""


def test_a_verbose_partitioner_has_it_printed(capsys: pytest.CaptureFixture[str]) -> None:
    program = export(nn.ReLU(), IMAGE)
    for verbose in (True, False):
        edge = edgewise.to_edge_transform_and_lower(
            program, partitioner=XnnpackPartitioner(verbose=verbose)
        )
        assert (str(edge.delegation_report()) in capsys.readouterr().err) == verbose
        edge.to_executorch()
        assert capsys.readouterr().err == ""


def test_without_partitioners() -> None:
    report = lower(Mixed(), IMAGE, partitioner=None).delegation_report()
    assert report.share() == 0
    assert report.delegates == []
    assert "no backend was asked" in str(report)


def test_an_empty_method() -> None:
    report = lower(Fn(lambda x: x), IMAGE).delegation_report()
    assert report.share() == 1
    assert str(report).startswith("method forward: 0 nodes")


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


MACS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], int]] = {
    "convolution": (
        nn.Conv2d(4, 6, (3, 2), stride=2, bias=False),
        (torch.ones(2, 4, 7, 8),),
        2 * 6 * 3 * 4 * 4 * 3 * 2,
    ),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (torch.ones(1, 4, 5, 5),), 6 * 9 * 2 * 9),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (torch.ones(1, 4, 5, 5),), 4 * 9 * 9),
    "transposed": (
        nn.ConvTranspose2d(4, 6, 3, stride=2),
        (torch.ones(1, 4, 5, 5),),
        4 * 25 * 6 * 9,
    ),
    "linear": (nn.Linear(5, 7), (torch.ones(2, 3, 5),), 2 * 3 * 5 * 7),
    "product": (Fn(torch.mm), (torch.ones(3, 5), torch.ones(5, 7)), 3 * 5 * 7),
    "batch product": (Fn(torch.bmm), (torch.ones(2, 3, 5), torch.ones(2, 5, 7)), 2 * 3 * 5 * 7),
    "bias and product": (
        Fn(lambda x, w, b: torch.addmm(b, x, w), w=torch.ones(5, 7), b=torch.ones(7)),
        (torch.ones(3, 5),),
        3 * 5 * 7,
    ),
    "attention": (
        Fn(attention),
        (torch.ones(2, 4, 6, 8), torch.ones(2, 4, 5, 8), torch.ones(2, 4, 5, 3)),
        2 * 4 * 6 * 5 * (8 + 3),
    ),
    "elementwise": (Fn(lambda x: x * 2 + 1), (torch.ones(3, 5),), 0),
}


@pytest.mark.parametrize("partitioner", ["xnnpack", None])
@pytest.mark.parametrize("name", MACS)
def test_macs(name: str, partitioner: str | None) -> None:
    module, inputs, expected = MACS[name]
    edge = edgewise.to_edge_transform_and_lower(
        export(module, inputs), partitioner=partitioners(partitioner)
    )
    assert sum(n.macs for n in edge.delegation_report().nodes) == expected
