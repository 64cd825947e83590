"""A report that runs its own programs in a browser: it shows what eager PyTorch computes."""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from browser_support import browser, look
from edgewise.report.live import live_server
from examples.models.mobilenet_v2 import mobilenet_v2

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "build" / "web" / "native" / "web"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (RUNTIME / "edgewise-module.wasm").exists(), reason="nothing built for pages: make web"
    ),
]


class Several(nn.Module):
    """Methods with inputs of several types; the second keeps state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor, i: torch.Tensor, half: torch.Tensor) -> Any:
        return x.cumsum(0), x[i], half * 3

    def count(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)
        return self.seen + 0


X = torch.linspace(-1, 1, 6)


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return mobilenet_v2().eval()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    model, image = classifier(), torch.rand(1, 3, 64, 64)
    made = {
        "float": edgewise.compile(model, (image,), verbose=False),
        "int8": edgewise.compile(
            model, (image,), quantize="int8", calibration=[(image,)], verbose=False
        ),
        "npu": edgewise.compile(
            nn.Conv2d(3, 4, 3), (image,), backend="ethos-u55-128", quantize="int8",
            calibration=[(image,)], verbose=False,
        ),
    }  # fmt: skip
    net = Several()
    inputs = (X, torch.tensor([0, 2]), torch.ones(2).half())
    methods = {
        "forward": torch.export.export(net, inputs),
        "count": torch.export.export(_Method(net), (torch.ones(3),)),
    }
    made["pixels"] = edgewise.compile(
        Pixels(), (torch.rand(1, 3, 4, 6),), backend="none", verbose=False
    )
    made["several"] = edgewise.to_edge_transform_and_lower(methods).to_executorch()
    for name, program in made.items():
        program.save(folder / f"{name}.pte")
    return {name: folder / f"{name}.pte" for name in made}


class Pixels(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(3)


class _Method(nn.Module):
    def __init__(self, net: Several) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net.count(x)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as opened:
        yield opened


class Page:
    """The part of the page that runs programs, as its user has it."""

    def __init__(self, driver: Any, *files: Path) -> None:
        self.driver = driver
        self.server = live_server(files, runtime=RUNTIME)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Page:
        look(self.driver, 1280, 900, "light")
        self.driver.get(f"http://127.0.0.1:{self.server.server_port}/")
        self.until(lambda d: d.execute_script("return document.documentElement.dataset.ready"))
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def until(self, done: Any) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 60, 0.05).until(done)

    def press(self) -> str:
        """Presses the button, and waits for what is then said."""
        self.driver.execute_script("document.getElementById('run-start').click()")
        script = "return !document.getElementById('run-start').disabled"
        self.until(lambda d: d.execute_script(script))
        return str(self.text("#run-said"))

    def text(self, selector: str) -> Any:
        script = "return document.querySelector(arguments[0])?.textContent"
        return self.driver.execute_script(script, selector)

    def fill(self, number: int, way: str, text: str | Path) -> None:
        from selenium.webdriver.support.ui import Select

        row = self.driver.find_element("css selector", f'[data-input="{number}"]')
        Select(row.find_element("css selector", "select")).select_by_visible_text(way)
        kind = "[type=file]" if isinstance(text, Path) else "[data-text]"
        field = row.find_element("css selector", kind)
        if not isinstance(text, Path):
            field.clear()
        field.send_keys(str(text))

    def rows(self) -> list[list[str]]:
        script = """return [...document.querySelectorAll('#run-outputs tbody tr')]
          .map((row) => [...row.cells].map((cell) => cell.textContent.trim()))"""
        return [list(row) for row in self.driver.execute_script(script)]

    def output(self, program: int, number: int) -> np.ndarray[Any, Any]:
        """All elements of an output, as the page would save them."""
        script = """const done = arguments[2];
          const made = URL.createObjectURL;
          URL.createObjectURL = (blob) => {
            blob.arrayBuffer().then((data) => done([...new Uint8Array(data)]));
            return made(blob);
          };
          document.querySelector(`[data-save="${arguments[0]} ${arguments[1]}"]`).click();
          URL.createObjectURL = made;"""
        data = bytes(self.driver.execute_async_script(script, program, number))
        return np.load(io.BytesIO(data))


def test_two_programs_on_an_array(driver: Any, programs: dict[str, Path], tmp_path: Path) -> None:
    model, image = classifier(), torch.rand(1, 3, 64, 64)
    np.save(tmp_path / "image.npy", image.numpy())
    want = model(image).detach().numpy()
    with Page(driver, programs["float"], programs["int8"]) as page:
        assert re.match(r"loaded in .*ms, .*ms", page.press())
        page.fill(0, ".npy file", tmp_path / "image.npy")
        assert page.press() == "done"
        found = page.output(0, 0)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
        first, second = page.rows()
        assert first[:3] == ["output 0", "float32", "1\u00d71000"]
        shown = [float(text.replace(",", "")) for text in first[3:6]]
        np.testing.assert_allclose(shown, [want.min(), want.mean(), want.max()], rtol=2e-3)
        quantized = page.output(1, 0)
        noise = 10 * math.log10((found**2).sum() / ((found - quantized) ** 2).sum())
        assert second[7] == f"{noise:.1f} dB"
        times = re.findall(r"ms at best, .*?ms in the middle of 20 runs", page.text("#run-outputs"))
        assert len(times) == 2
        assert not driver.get_log("browser")


def test_types_values_and_methods(driver: Any, programs: dict[str, Path]) -> None:
    from selenium.webdriver.support.ui import Select

    with Page(driver, programs["several"]) as page:
        page.press()
        page.fill(0, "values", "1 2 3 4 5 6")
        page.fill(1, "values", "5, 0")
        page.fill(2, "values", "0.5 -2")
        assert page.press() == "done"
        np.testing.assert_array_equal(page.output(0, 0), np.cumsum(np.arange(1, 7, dtype="f4")))
        np.testing.assert_array_equal(page.output(0, 1), np.float32([6, 1]))
        np.testing.assert_array_equal(page.output(0, 2), np.float16([1.5, -6]))
        page.fill(0, "values", "1 2")
        assert re.search("takes 6 values; got 2", page.press())
        Select(driver.find_element("id", "method")).select_by_visible_text("count")
        page.until(lambda d: "loaded" in page.text("#run-said"))
        page.fill(0, "values", "1 2 3")
        assert page.press() == "done"
        # State begins anew with each run.
        np.testing.assert_array_equal(page.output(0, 0), np.float32([1, 2, 3]))


def test_an_image(driver: Any, programs: dict[str, Path], tmp_path: Path) -> None:
    from PIL import Image

    rgb = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    Image.fromarray(rgb).save(tmp_path / "image.png")
    want = (rgb.transpose(2, 0, 1)[None] / np.float32(255)).astype(np.float32).cumsum(3)
    with Page(driver, programs["pixels"]) as page:
        page.press()
        page.fill(0, "image", tmp_path / "image.png")
        assert page.press() == "done"
        np.testing.assert_allclose(page.output(0, 0), want, rtol=1e-6)


def test_an_npus_program_says_why_not(driver: Any, programs: dict[str, Path]) -> None:
    with Page(driver, programs["npu"], programs["float"]) as page:
        page.press()
        assert "EthosUBackend" in page.text("#run-outputs .failed")
        assert page.press() == "done"
        assert len(page.rows()) == 1
    with Page(driver, programs["npu"]) as page:
        assert page.press() == "no program runs here"


def test_arrays_that_do_not_fit(driver: Any, programs: dict[str, Path], tmp_path: Path) -> None:
    bad = {
        "double.npy": np.zeros((1, 3, 64, 64)),
        "small.npy": np.zeros((1, 3, 8, 8), "f4"),
        "fortran.npy": np.asfortranarray(np.zeros((1, 3, 64, 64), "f4")),
    }
    told = {
        "double.npy": r"takes float32; double\.npy holds float64; try astype",
        "small.npy": r"64",
        "fortran.npy": "must lie by rows",
        "text.npy": "must be NumPy's",
    }
    for name, array in bad.items():
        np.save(tmp_path / name, array)
    (tmp_path / "text.npy").write_text("no array")
    with Page(driver, programs["float"]) as page:
        page.press()
        for name, said in told.items():
            page.fill(0, ".npy file", tmp_path / name)
            page.press()
            text = f"{page.text('#run-said')} {page.text('#run-outputs')}"
            assert re.search(said, text), (name, text)
