"""What the page is made of: one file, complete, with the right figures; what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from report_support import RANKING_INPUTS, Ranking, hostile, large
from torch import nn

import edgewise
from edgewise.inspect import compare
from edgewise.inspect.reading import open_program
from edgewise.inspect.simplify import simplify
from edgewise.report import Subject, render, write
from edgewise.report.accuracy import Layers
from examples.models import MODELS


def data_of(page: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(found)


def compiled(name: str, **options: Any) -> tuple[nn.Module, edgewise.ExecutorchProgramManager]:
    model = MODELS[name].build().eval()
    inputs = MODELS[name].example_inputs(0)
    return model, edgewise.compile(model, inputs, verbose=False, **options)


def quantized(name: str) -> tuple[nn.Module, edgewise.ExecutorchProgramManager]:
    return compiled(name, quantize="int8", calibration=[MODELS[name].example_inputs(0)])


def test_the_page_is_one_file_of_bounded_size(tmp_path: Path) -> None:
    pte = tmp_path / "model.pte"
    compiled("mobilenet_v2")[1].save(pte, record=True)
    page = write(tmp_path / "page.html", [pte]).read_text()
    assert len(page) < 2e6
    outside = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)|url\(([^)]+)\)|@import""", page)
    assert {one or other for one, other in outside} <= {"#explorer", "#${this.marker}"}
    assert "Permission is hereby granted" in page  # dagre's licence goes with it
    assert "sourceMappingURL" not in page


def test_nodes_edges_and_memory_are_those_of_the_record() -> None:
    record = edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False).record()
    method = data_of(render([Subject("m", record)]))["programs"][0]["methods"][0]
    names = [n["name"] for n in method["nodes"]]
    known = record.method()
    assert names == [n.name for n in known.nodes]
    edges = {(names[a], names[b]) for a, b in method["edges"]}
    assert edges == {(e.source, e.target) for e in known.edges}
    assert [b[1:] for b in method["memory"]] == [
        [b.arena, b.offset, b.size, b.first, b.last] for b in known.memory
    ]
    sort = method["nodes"][names.index("sort")]
    assert [r["got"] for r in sort["refusals"]] == ["aten.sort.default"]
    assert method["modules"][0][1].endswith("Ranking")
    stem = [m[0] for m in method["modules"]].index("stem")
    conv = next(n for n in method["nodes"] if n.get("op") == "aten.convolution.default")
    assert method["modules"][method["modules"][conv["module"]][2]][0] == "stem"
    assert stem > 0


def test_quantizations_inside_of_an_operation_are_told_with_it() -> None:
    record = quantized("tiny_cnn")[1].record().method()
    simple = simplify(record)
    gone = {n.name for n in record.nodes} - {n.name for n in simple.method.nodes}
    assert gone == set(simple.stands_for)
    assert all("quantize" in record.by_name[name].operator for name in gone)
    kept = simple.method.by_name
    assert {e.source for e in simple.method.edges} | {e.target for e in simple.method.edges} <= set(
        kept
    )
    # The graph hangs together as before: each node but the inputs is read from one.
    assert {n.name for n in kept.values() if n.kind != "input"} == {
        e.target for e in simple.method.edges
    }
    weights = lambda m: sorted(w.name for n in m.nodes for w in n.weights)  # noqa: E731
    assert set(weights(record)) == set(weights(simple.method))
    product = next(n for n in kept.values() if n.operator == "aten.linear.default")
    assert "int8" in {w.tensor.dtype for w in product.weights}
    conv = next(n for n in kept.values() if n.operator == "aten.relu.default")
    assert simple.stored[conv.name].startswith("int8, scale 0.0")
    names = {name for b in simple.method.memory for name in b.nodes}
    assert names <= set(kept)


@pytest.mark.parametrize("name", ["tiny_cnn", "ds_cnn"])
def test_accuracy_is_told_at_the_nodes(name: str) -> None:
    model, program = quantized(name)
    comparison = compare(model, program, [MODELS[name].example_inputs(0)]).to_dict()
    layers = Layers(comparison)
    method = simplify(program.record().method()).method
    found = {n.name: f for n in method.nodes if (f := layers.of(n)) is not None}
    products = [n for n in method.nodes if n.macs]
    assert {n.name for n in products} <= set(found)
    measured = [x["sqnr_db"] for x in comparison["layers"]]
    assert all(f["db"] in measured for f in found.values())
    assert len(found) > 0.8 * len(measured)


def test_the_time_of_an_operation_counts_once() -> None:
    record = edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False).record()
    folded = next(n for n in record.method().nodes if n.operator == "aten.relu.default")
    relu, conv = folded.name, folded.folded_into
    shared = {"time": 5.0}
    times = {conv: {**shared, "with": [relu]}, relu: {**shared, "with": [conv]}}
    times["sort"] = {"time": 2.0, "with": []}
    times["cumsum"] = {"time": 2.0, "with": []}
    profile = {"methods": [{"method": "forward", "nodes": times}]}
    method = data_of(render([Subject("m", record, profile)]))["programs"][0]["methods"][0]
    told = {n["name"]: n["us"] for n in method["nodes"] if "us" in n}
    assert told == {conv: 5.0, "sort": 2.0, "cumsum": 2.0}


def test_every_way_to_name_a_program(tmp_path: Path) -> None:
    pte = tmp_path / "model.pte"
    program = edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False)
    program.save(pte)
    page = write(tmp_path / "page.html", [pte, Subject("other", program.record())], title="Two")
    data = data_of(page.read_text())
    assert data["title"] == "Two"
    assert [(p["name"], p["complete"]) for p in data["programs"]] == [
        ("model.pte", False),
        ("other", True),
    ]


def test_a_file_alone_tells_its_operations(tmp_path: Path) -> None:
    pte = tmp_path / "model.pte"
    program = edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False)
    program.save(pte)
    record = open_program(pte)
    assert not record.complete
    method = record.method()
    names = {n.name for n in method.nodes}
    operators = [n.operator for n in method.nodes if n.kind == "call"]
    assert {"Conv2d", "FullyConnected", "aten::sort.values"} <= set(operators)
    assert {e.source for e in method.edges} | {e.target for e in method.edges} <= names
    read = {e.target for e in method.edges}
    assert all(n.name in read for n in method.nodes if n.kind != "input")
    full = program.record().method()
    assert method.arenas == full.arenas
    assert sorted(b.offset for b in method.memory) == sorted(b.offset for b in full.memory)
    assert sum(d.weight_bytes for d in method.delegates) == sum(
        d.weight_bytes for d in full.delegates
    )


@pytest.mark.peer
def test_a_file_of_the_peer_opens(tmp_path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(Ranking().eval(), RANKING_INPUTS)
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    pte = tmp_path / "peer.pte"
    with pte.open("wb") as file:
        lowered.to_executorch().write_to_file(file)
    data = data_of(write(tmp_path / "page.html", [pte]).read_text())
    operators = {n.get("op") for n in data["programs"][0]["methods"][0]["nodes"]}
    assert {"Conv2d", "FullyConnected"} <= operators


def test_texts_of_a_file_cannot_end_the_data() -> None:
    page = render([Subject("</script><b>", hostile())])
    assert page.count("</script>") == 2
    assert "onerror=document" not in page.split('id="data"')[0]
    assert data_of(page)["programs"][0]["name"] == "</script><b>"


def test_five_thousand_nodes_are_two_megabytes() -> None:
    assert len(render([Subject("large", large())])) < 2e6


REFUSED = {
    "no program": ([], {}, "programs must be one or more files; got none"),
    "too many profiles": (["m.pte"], {"profiles": ["a", "b"]}, "got 2 for 1"),
    "another file": (["bad.pte"], {}, "bad.pte"),
    "no JSON": (["m.pte"], {"profiles": ["text.json"]}, "text.json must be JSON"),
    "another JSON": (["m.pte"], {"comparisons": ["list.json"]}, "must have 'layers'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, options, message = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    Path("bad.pte").write_bytes(b"no program at all")
    Path("text.json").write_text("no JSON")
    Path("list.json").write_text("{}")
    edgewise.compile(nn.ReLU(), torch.zeros(2), verbose=False).save("m.pte")
    with pytest.raises(ValueError, match=message):
        write("page.html", programs, **options)
    assert not Path("page.html").exists()


def test_it_takes_no_torch(tmp_path: Path) -> None:
    edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False).save(tmp_path / "m.pte")
    code = (
        "import sys, edgewise.report\n"
        "edgewise.report.write(sys.argv[1] + '/p.html', [sys.argv[1] + '/m.pte'])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
