"""Programs in a web page, in a real browser: what they give there is what eager PyTorch gives."""

from __future__ import annotations

import base64
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewise
from browser_support import browser
from examples.models.mobilenet_v2 import mobilenet_v2
from examples.web.serve import folders

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "build" / "web" / "native" / "web"
PAGE = ROOT / "examples" / "web"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (RUNTIME / "edgewise-module.wasm").exists(), reason="nothing built for pages: make web"
    ),
]


class Kernels(torch.nn.Module):
    """Nothing of XNNPACK's; integers, booleans and channels last go through the page."""

    def forward(
        self, x: torch.Tensor, i: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x.cumsum(1), i.sort(-1).values, x.to(memory_format=torch.channels_last) > 0.5


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1 << 19))  # more than a megabyte

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)
        return self.seen + 0


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], torch.nn.Module]
    inputs: tuple[torch.Tensor, ...]
    options: dict[str, Any]


def image(size: int = 96) -> torch.Tensor:
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))


CASES = [
    Case("float32", mobilenet_v2, (image(),), {}),
    Case("kernels", Kernels, (image(8), torch.arange(5).flip(0)), {"backend": "none"}),
    Case("state", Counter, (torch.linspace(0, 1, 1 << 19),), {}),
    Case(
        "attention",
        lambda: torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        (torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2)),),
        {},
    ),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(PAGE / "index.html", folder)
    for case in CASES:
        torch.manual_seed(0)
        model = case.model().eval()
        edgewise.compile(model, case.inputs, verbose=False, **case.options).save(
            folder / f"{case.name}.pte"
        )
    (folder / "broken.pte").write_bytes(b"not a program")
    return folder


@pytest.fixture(scope="module")
def page(files: Path) -> Iterator[Any]:
    running = folders(RUNTIME, files)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    with browser() as driver:
        driver.get(f"http://127.0.0.1:{running.server_port}/index.html")
        yield driver
        running.shutdown()
        running.server_close()


HELP = """
  const done = arguments[arguments.length - 1];
  const ARRAYS = { float32: Float32Array, int64: BigInt64Array };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const text = (data) => {
    let all = "";
    for (const b of new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) {
      all += String.fromCharCode(b);
    }
    return btoa(all);
  };
  (async () => {
    const { load } = await import("./edgewise.mjs");
"""
END = "})().then(done, (failure) => done({ error: failure.message }));"

RUN = f"""
  const [name, given, threads, runs] = arguments;
  {HELP}
    const program = await load(name, {{ threads }});
    const inputs = given.map(({{ type, shape, data }}) =>
      ({{ type, shape, data: new ARRAYS[type](bytes(data)) }}));
    const said = await program.describe();
    let result;
    for (let i = 0; i < runs; i++) result = await program.run(inputs);
    program.close();
    const outputs = result.outputs.map(({{ type, shape, data }}) =>
      ({{ type, shape, data: text(data) }}));
    return {{ outputs, said, methods: program.methods, version: program.version }};
  {END}
"""


def run(page: Any, name: str, inputs: tuple[torch.Tensor, ...], threads: int, runs: int = 1) -> Any:
    given = [
        {
            "type": str(x.dtype).removeprefix("torch."),
            "shape": list(x.shape),
            "data": base64.b64encode(x.numpy().tobytes()).decode(),
        }
        for x in inputs
    ]
    return page.execute_async_script(RUN, f"{name}.pte", given, threads, runs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_gives_what_eager_gives(page: Any, case: Case, threads: int) -> None:
    got = run(page, case.name, case.inputs, threads, runs=3)
    assert "error" not in got, got
    assert got["methods"] == ["forward"]
    assert got["version"] == edgewise.__version__
    torch.manual_seed(0)
    model = case.model().eval()
    with torch.no_grad():
        for _ in range(3):
            wanted = model(*case.inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert [info["shape"] for info in got["said"]["inputs"]] == [list(x.shape) for x in case.inputs]
    assert len(got["outputs"]) == len(wanted)
    for output, want in zip(got["outputs"], wanted, strict=True):
        assert output["shape"] == list(want.shape)
        assert output["type"] == str(want.dtype).removeprefix("torch.")
        data = np.frombuffer(base64.b64decode(output["data"]), want.contiguous().numpy().dtype)
        np.testing.assert_allclose(
            data.reshape(output["shape"]), want.numpy(), rtol=1e-5, atol=2e-5
        )


def test_int8(page: Any, files: Path) -> None:
    """Integers are the same on every machine, so they are compared with the runtime here."""
    torch.manual_seed(0)
    model = mobilenet_v2().eval()
    edgewise.compile(
        model, (image(),), quantize="int8", calibration=[(image(),)], verbose=False
    ).save(files / "int8.pte")
    got = run(page, "int8", (image(),), threads=2)
    here = np.asarray(edgewise.load(files / "int8.pte")(image()))
    there = np.frombuffer(base64.b64decode(got["outputs"][0]["data"]), np.float32)
    step = np.diff(np.unique(here)).min()
    assert np.abs(there.reshape(here.shape) - here).max() <= 1.01 * step


REFUSED = [
    ("broken.pte", "[]", "identifier"),
    ("missing.pte", "[]", "missing.pte: 404"),
    ("state.pte", "[]", "[forward] takes 1 inputs; got 0"),
    (
        "state.pte",
        "[new Int8Array(1 << 19)]",
        "[forward, input 0] a float32 tensor is a Float32Array",
    ),
    ("state.pte", "[new Float32Array(3)]", "shape [524288] needs 524288 elements; got 3"),
    ("state.pte", "[{ shape: [3], data: new Float32Array(3) }]", "[forward]"),
]


@pytest.mark.parametrize(("name", "inputs", "said"), REFUSED)
def test_it_says_what_is_wrong(page: Any, name: str, inputs: str, said: str) -> None:
    script = f"""
      {HELP}
        const program = await load("{name}", {{ threads: 1 }});
        return await program.run({inputs});
      {END}
    """
    assert said in page.execute_async_script(script)["error"]


def test_the_documentation(page: Any, files: Path) -> None:
    text = (ROOT / "docs" / "web.md").read_text()
    (block,) = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    shutil.copy(files / "float32.pte", files / "model.pte")
    body = block.replace('import { load } from "./edgewise.mjs";', "")
    script = f"{HELP} {body} return [inputs[0].shape, scores.length, milliseconds > 0]; {END}"
    assert page.execute_async_script(script) == [[1, 3, 96, 96], 1000, True]


def test_state_is_reset(page: Any) -> None:
    script = f"""
      {HELP}
        const program = await load("state.pte", {{ threads: 1 }});
        const ones = new Float32Array(1 << 19).fill(1);
        const seen = [];
        for (let i = 0; i < 2; i++) {{
          await program.run([ones]);
          seen.push(Array.from(new Set((await program.run([ones])).outputs[0].data)));
          await program.reset();
        }}
        return seen;
      {END}
    """
    assert page.execute_async_script(script) == [[2], [2]]


def test_a_page_that_is_not_isolated_is_told(files: Path) -> None:
    import functools
    import http.server

    shutil.copy(RUNTIME / "edgewise.mjs", files)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(files))
    handler.func.extensions_map[".mjs"] = "text/javascript"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running, browser() as driver:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        driver.get(f"http://127.0.0.1:{running.server_port}/index.html")
        error = driver.execute_async_script(f'{HELP} await load("state.pte"); {END}')["error"]
        running.shutdown()
    assert "Cross-Origin-Opener-Policy: same-origin" in error


def test_the_page(page: Any, files: Path) -> None:
    """As a user: choose a file, run it, read the times."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    said = page.find_element(By.ID, "said")
    page.find_element(By.ID, "file").send_keys(str(files / "float32.pte"))
    WebDriverWait(page, 30, 0.05).until(lambda _: "loaded in" in said.text)
    page.find_element(By.ID, "run").click()
    WebDriverWait(page, 60, 0.05).until(lambda _: "ms at best" in said.text)
    cells = page.find_element(By.ID, "values").text
    assert "input 0 float32 1 x 3 x 96 x 96" in cells
    assert "output 0 float32 1 x 1000" in cells
    page.find_element(By.ID, "file").send_keys(str(files / "broken.pte"))
    WebDriverWait(page, 30, 0.05).until(lambda _: "identifier" in said.text)
