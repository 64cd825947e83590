"""The adapter in the real Model Explorer: loaded as an extension, its graphs checked, drawn."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch
from torch import nn

import edgewise

pytest.importorskip("model_explorer", reason="extra `model-explorer`")
MODULE = "edgewise.model_explorer"


class Ranking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).sort(dim=1).values)


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "model.pte"
    edgewise.compile(Ranking(), torch.zeros(2, 16), verbose=False).save(path, record=True)
    return path


@pytest.fixture(scope="module")
def bare(pte: Path) -> Path:
    path = pte.with_name("bare.pte")
    path.write_bytes(pte.read_bytes())
    return path


def converted(path: Path) -> dict[str, Any]:
    """Through Model Explorer's own manager of extensions, to the graph classes it has."""
    from dacite import Config, from_dict
    from model_explorer.extension_manager import ExtensionManager
    from model_explorer.graph_builder import Graph

    manager = ExtensionManager([MODULE])
    manager.custom_extension_modules = [f"{MODULE}.main"]  # it is a singleton
    manager.load_extensions()
    (known,) = [e for e in manager.get_extensions_metadata() if e["id"] == "edgewise"]
    assert known["fileExts"] == ["pte"]
    command = {
        "cmdId": "convert",
        "extensionId": "edgewise",
        "modelPath": str(path),
        "settings": {},
        "deleteAfterConversion": False,
    }
    found = manager.run_cmd(command)
    assert json.loads(json.dumps(found)) == found
    return {g["id"]: from_dict(Graph, g, Config(strict=True)) for g in found["graphs"]}


def check(graph: Any) -> None:
    ids = [n.id for n in graph.nodes]
    assert len(set(ids)) == len(ids)
    outputs = {n.id: {m.id for m in n.outputsMetadata} for n in graph.nodes}
    for node in graph.nodes:
        for edge in node.incomingEdges:
            assert edge.sourceNodeOutputId in outputs[edge.sourceNodeId]
        assert all(isinstance(a.value, str) for a in node.attrs)
    namespaces = {n.namespace for n in graph.nodes}
    assert set(graph.groupNodeAttributes) <= {
        "/".join(one.split("/")[:depth]) for one in namespaces for depth in range(1, 9)
    }


def test_modules_and_the_file_are_graphs(pte: Path) -> None:
    graphs = converted(pte)
    assert list(graphs) == ["forward: modules", "forward: file"]
    for graph in graphs.values():
        check(graph)
    modules = {n.label: n for n in graphs["forward: modules"].nodes}
    assert modules["relu.default"].namespace == "stem/1"
    assert graphs["forward: modules"].groupNodeAttributes["stem"]["operators"] == "2"
    sort = {a.key: a.value for a in modules["sort.default"].attrs}
    assert "an operator of the XNNPACK table; got aten.sort.default" in sort["not delegated"]
    assert "test_model_explorer.py:" in sort["source line"]
    shapes = modules["relu.default"].outputsMetadata[0].attrs[0]
    assert (shapes.key, shapes.value) == ("tensor_shape", "float32[2, 16]")


def test_delegates_are_opened_without_a_record(bare: Path) -> None:
    graphs = converted(bare)
    assert list(graphs) == ["forward: file"]
    check(graphs["forward: file"])
    inside = [n for n in graphs["forward: file"].nodes if n.namespace.startswith("delegate 0")]
    assert [n.label for n in inside] == ["FullyConnected"]
    assert inside[0].namespace == "delegate 0: XnnpackBackend"


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pte"
    bad.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="ET12"):
        converted(bad)


@pytest.fixture(scope="module")
def server(pte: Path) -> Iterator[str]:
    """Model Explorer's own server, on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "model_explorer", "--no_open_in_browser", "--host=127.0.0.1"]
    command += [f"--port={port}", f"--extensions={MODULE}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(1200):  # it imports much
                try:
                    urllib.request.urlopen(f"{address}/check_health", timeout=2)
                    break
                except OSError:
                    assert process.poll() is None, "the server ended"
                    time.sleep(0.1)
            else:
                pytest.fail("the server did not answer in two minutes")
            yield address
        finally:
            process.terminate()


@pytest.mark.browser
def test_it_is_drawn(server: str, pte: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    from browser_support import browser

    data = quote(json.dumps({"models": [{"url": str(pte), "adapterId": "edgewise"}]}))
    with browser() as driver:
        driver.get(f"{server}/?data={data}&show_open_in_new_tab=0")
        # Nodes are drawn by WebGL; how many there are is text.
        text = "return document.body.innerText"
        shown = "forward: modules\n6 nodes"
        WebDriverWait(driver, 90, 0.2).until(lambda d: shown in d.execute_script(text))
