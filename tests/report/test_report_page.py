"""The page in a real browser: it opens, unfolds, finds, explains, at every size and scheme."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from report_support import EVIL, RANKING_INPUTS, Ranking, hostile, large
from torch import nn

import edgewise
from browser_support import browser, look, show
from edgewise.report import Subject, write

pytestmark = pytest.mark.browser

SIZES = {"wide": (1280, 900), "narrow": (400, 860)}
SCHEMES = ("light", "dark")

# What is cut off or hidden at the right edge of the page.
OVERFLOW = """
return [...document.querySelectorAll('body *')].filter((e) => {
  if (e.closest('svg, .scroll, .pane, .level, .skip, #tip, noscript')) return false;
  const r = e.getBoundingClientRect();
  return r.width > 0 && r.right > innerWidth + 1;
}).map((e) => e.tagName + '.' + e.className).slice(0, 5);
"""

# The least contrast (WCAG 2) of visible text with what is behind it, and where.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (c) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (c) => c.slice(0, 3).map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] === 255) return c;
  }
  return [255, 255, 255, 255];
};
let worst = [99, ''];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const aside = e.closest('svg, script, style, noscript, .skip, #tip');
  if (!own || aside || !e.getClientRects().length) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < worst[0]) worst = [ratio, `${e.tagName}.${e.className} ${e.textContent}`];
}
return worst;
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    pte = folder / "ranking.pte"
    program = edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False)
    program.save(pte, record=True)
    bare = folder / "bare.pte"
    program.save(bare)
    measured = Subject("measured.pte", program.record(), *measurements(program.record()))
    delegation = folder / "delegation.html"
    program.delegation_report().to_html(delegation)
    return {
        "delegation": delegation,
        "one": write(folder / "one.html", [pte]),
        "bare": write(folder / "bare.html", [bare]),
        "several": write(folder / "several.html", [pte, measured]),
        "measured": write(folder / "measured.html", [measured]),
        "large": write(folder / "large.html", [Subject("large.pte", large())]),
        "flat": write(folder / "flat.html", [Subject("flat.pte", large(flat=True))]),
        "hostile": write(folder / "hostile.html", [Subject(EVIL, hostile())], title="<b>"),
        "npu": write(folder / "npu.html", [npu_program(folder)]),
        "hostile npu": write(folder / "hostile_npu.html", [hostile_npu(program.record())]),
        "hostile figures": write(folder / "figures.html", [hostile_figures(program.record())]),
    }


def measurements(record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A profile and a comparison as the other tools write them."""
    method = record.method()
    calls = [n for n in method.nodes if n.kind == "call" and not n.folded_into]
    stats = {"mean": 101.0, "min": 90.0, "p50": 100.0, "p90": 120.0, "p99": 130.0, "max": 140.0}
    profile = {
        "format": "edgewise-profile",
        "methods": [
            {
                "method": "forward",
                "runs": 20,
                "call": stats,
                "execute": stats,
                "instructions": [],
                "nodes": {n.name: {"time": 3.5 + i, "with": []} for i, n in enumerate(calls)},
            }
        ],
    }
    layer = {"operator": "aten.linear.default", "source": "", "cosine": 0.99, "max_error": 0.1}
    comparison = {
        "batches": 3,
        "outputs": [{"name": "0", "sqnr_db": 31.5, "cosine": 0.99, "max_error": 0.1}],
        "layers": [
            {
                **layer,
                **{"name": "linear", "module": "attend", "sqnr_db": 25.25, "added_noise": 0.01},
                "peak": 4.5,
                "histogram": {"low": -1.5, "high": 2.0, "wanted": [1, 5, 2], "got": [2, 4, 2]},
            },
            {**layer, "name": "linear_1", "module": "head.0", "sqnr_db": None, "added_noise": 0.0},
        ],
        "lines": [{"source": "model.py:7", "operators": ["linear"], "layers": 1, "share": 1.0}],
        "advice": ["methods=[..., 'adaround']: weights are rounded for the layers' results"],
        "earlier": {
            "label": "rounding alone",
            "outputs": {"0": 28.5},
            "layers": {"linear": 21.5, "linear_1": None},
        },
    }
    return profile, comparison


def hostile_figures(record: Any) -> Subject:
    """Markup in every text and number of a profile and a comparison, but for names of methods."""

    def spoiled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: spoiled(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [spoiled(v) for v in value]
        return value if key in ("method", "format", "module", "operator") else EVIL

    return Subject(EVIL, record, *(spoiled(one) for one in measurements(record)))


def npu_program(folder: Path) -> Path:
    """A file with two delegates of Ethos-U around an operator that is none of its."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3))
    model = nn.Sequential(stem, Sorted(), nn.Conv2d(16, 8, 1)).eval()
    x = torch.randn(1, 3, 32, 32)
    program = edgewise.compile(
        model, x, backend="ethos-u55-128", quantize="int8", calibration=[x], verbose=False
    )
    path = folder / "npu.pte"
    program.save(path, record=True)
    return path


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(dim=1).values


def hostile_npu(record: Any) -> Subject:
    lane = {"busy": EVIL, "spans": [[EVIL, EVIL, EVIL], [0, 1, EVIL]]}
    told = {"delegate": EVIL, "target": EVIL, "clock": EVIL, "cycles": EVIL, "lanes": {EVIL: lane}}
    problem = {"delegate": 0, "problem": EVIL}
    return Subject(EVIL, record, npu={"forward": [told, problem]})


def texts(driver: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent.trim())"
    found: list[str] = driver.execute_script(script, selector)
    return found


def find(driver: Any, text: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    box = driver.find_element(By.ID, "search")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(text)
    box.send_keys(Keys.ENTER)


def errors(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", ["one", "bare", "several", "measured", "delegation", "npu"])
def test_it_opens_and_is_legible(
    driver: Any, pages: dict[str, Path], page: str, size: str, scheme: str
) -> None:
    look(driver, *SIZES[size], scheme)
    show(driver, pages[page])
    if page != "bare":
        driver.execute_script("document.querySelector('.chip').click()")
    assert driver.execute_script(OVERFLOW) == []
    ratio, where = driver.execute_script(CONTRAST)
    assert ratio >= 4.5, where
    ground = driver.execute_script(
        "return getComputedStyle(document.documentElement).backgroundColor"
    )
    assert (ground == "rgb(245, 246, 248)") == (scheme == "light")
    assert errors(driver) == []


def test_modules_unfold_in_tree_and_graph(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["one"])
    assert "stem" in texts(driver, ".row .name")
    driver.execute_script("document.getElementById('collapse').click()")
    assert "linear" in texts(driver, ".box text.name")
    assert "relu" not in texts(driver, ".box text.name")
    driver.execute_script("document.getElementById('expand').click()")
    assert {"convolution", "relu", "sort"} <= set(texts(driver, ".box text.name"))
    # By a double click on the box, and by the keyboard in the tree.
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    driver.execute_script("document.getElementById('collapse').click()")
    boxes = driver.find_elements(By.CSS_SELECTOR, ".box.group")
    assert len(boxes) == 2
    driver.execute_script("document.getElementById('explorer').scrollIntoView()")
    ActionChains(driver).double_click(boxes[0]).perform()
    assert "convolution" in texts(driver, ".box text.name")
    row = driver.find_element(By.CSS_SELECTOR, "[role=treeitem]")
    row.click()
    count = len(texts(driver, ".row"))
    driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert len(texts(driver, ".row")) == 1 < count
    driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert len(texts(driver, ".row")) == count
    assert errors(driver) == []


def test_a_refused_node_says_why(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["one"])
    find(driver, "refused sort")
    assert texts(driver, "#hits") == ["1 hit"]
    assert texts(driver, "#details h3") == ["sort"]
    (why,) = texts(driver, "#details .why")
    assert "an operator of the XNNPACK table" in why
    assert "aten.sort.default" in why
    assert "between two delegates" in why
    facts = dict(zip(texts(driver, "#details dt"), texts(driver, "#details dd"), strict=True))
    assert facts["Runs on"] == "Runtime kernels"
    assert "report_support.py:" in facts["Line"]
    assert facts["Input"] == "float32[1, 16]"
    # It is drawn, marked and inside the view.
    inside = """
      const box = document.querySelector('.box.selected').getBoundingClientRect();
      const view = document.querySelector('.graph').getBoundingClientRect();
      return box.left >= view.left && box.right <= view.right
        && box.top >= view.top && box.bottom <= view.bottom;
    """
    assert driver.execute_script(inside)
    assert texts(driver, ".box.selected.refused text.warn") == ["!"]
    reasons = texts(driver, ".reason h4 code")
    assert sorted(reasons) == ["aten.cumsum.default", "aten.sort.default"]
    find(driver, "no such operator")
    assert texts(driver, "#hits") == ["0 hits"]
    assert "Nothing matches" in texts(driver, "#tree")[0]


def test_measurements_are_at_their_nodes(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["measured"])
    cards = texts(driver, ".card")
    assert "100 µsMedian latency" in cards
    assert "31.5 dBWorst output" in cards
    find(driver, "attend")
    facts = dict(zip(texts(driver, "#details dt"), texts(driver, "#details dd"), strict=True))
    assert facts["Accuracy"] == "25.3 dB, before 21.5 dB adds 1.0 % noise"
    assert facts["Time"].startswith("5.50 µs")
    assert texts(driver, "#costs .tabs button")[0] == "Time"
    assert len(texts(driver, ".chart.accuracy circle")) == 4  # before and now
    assert texts(driver, "#accuracy .legend .key") == ["rounding alone", "now"]
    cells = texts(driver, "#accuracy .layers tbody tr > *")
    assert cells[:6] == ["linear", "100 %", "21.5", "25.3", "+3.8", "attend"]
    assert texts(driver, "#accuracy .ops th") == ["model.py:7"]
    assert texts(driver, ".advice li") == [
        "methods=[..., 'adaround']: weights are rounded for the layers' results"
    ]
    assert texts(driver, ".histogram text") == ["-1.5", "2"]
    assert len(texts(driver, ".histogram rect")) == 3
    driver.execute_script(
        "const s = document.getElementById('colour'); s.value = 'noise';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert "25.3 dB" in texts(driver, ".box text.sub")
    assert errors(driver) == []


def test_several_programs_keep_to_one_selection(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["several"])
    assert texts(driver, ".compare thead th") == ["ranking.pte", "measured.pte"]
    assert len(texts(driver, ".graph")) == 2
    find(driver, "sort")
    assert len(texts(driver, ".box.selected")) == 2
    driver.execute_script("document.querySelectorAll('#refused [data-program=\"1\"]')[0].click()")
    assert texts(driver, ".host.active .caption") == ["measured.pte"]
    assert "Time" in texts(driver, "#details dt")
    assert errors(driver) == []


def test_a_file_without_a_record_shows_what_it_holds(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["bare"])
    assert "without a record" in texts(driver, "#subtitle")[0]
    assert "record=True" in texts(driver, "#details")[0]
    assert "delegate 0" in texts(driver, ".row .name")
    find(driver, "Conv2d")
    facts = dict(zip(texts(driver, "#details dt"), texts(driver, "#details dd"), strict=True))
    assert facts["Runs on"] == "XNNPACK delegate 0"
    assert facts["kernel_height"] == "3"
    assert errors(driver) == []


@pytest.mark.parametrize("page", ["large", "flat"])
def test_five_thousand_nodes_stay_usable(driver: Any, pages: dict[str, Path], page: str) -> None:
    """Bounds on what is in the document, not on time: benchmarks/report_page.py has that."""
    look(driver, *SIZES["wide"], "light")
    show(driver, pages[page])
    for press in ("collapse", "expand"):
        driver.execute_script("document.getElementById(arguments[0]).click()", press)
        assert 0 < len(texts(driver, ".box")) < 800
    find(driver, "op_4321")
    assert texts(driver, "#details .full") == ["aten.relu.default"]
    assert len(texts(driver, ".box.selected")) == 1
    find(driver, "linear")
    assert texts(driver, "#hits") == ["2,600 hits"]
    assert len(texts(driver, ".row")) == 200
    assert errors(driver) == []


def test_the_npus_timeline(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["npu"])
    timelines = texts(driver, "#npu h3 small")
    assert len(timelines) == 2
    for text in timelines:
        assert re.search(r"^ethos-u55-128: [\d,]+ cycles, .* at 500 MHz, by edgewise's model", text)
    legend = texts(driver, "#npu .time-of .legend span")
    assert any(re.match(r"NPU computes .*%$", text) for text in legend), legend
    assert any(text.startswith("CPU: ") and "not timed" in text for text in legend)
    assert texts(driver, "#npu svg.npu text")[:1] == ["NPU"]
    script = "return [...document.querySelectorAll('#npu g[data-tip]')].map((g) => g.dataset.tip)"
    tips = driver.execute_script(script)
    conv = r"Conv2D, 0\.0, \w+\.py:\d+: CONV, [\d,]+ MACs, .*: [\d,]+ cycles from"
    assert any(re.match(conv, tip) for tip in tips), [t for t in tips if "CONV" in t]
    assert any("transfer" in tip for tip in tips)
    boxes = "return [...document.querySelectorAll('#npu rect')].map((r) => r.getBBox().width)"
    assert min(driver.execute_script(boxes)) > 0
    assert errors(driver) == []


def test_layers_of_the_npu_are_sorted_by_what_is_asked(driver: Any, pages: dict[str, Path]) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages["npu"])
    rows = "return [...document.querySelectorAll('.layers')[0].tBodies[0].rows]"
    cells = rows + ".map((r) => [...r.cells].map((c) => c.textContent.trim()))"
    heads = texts(driver, ".layers-of:first-of-type th .sort")
    of = {head: heads.index(head) for head in heads}
    assert {"Layer", "Module", "Line", "Cycles, model", "Cycles, compiler", "MACs used"} <= set(of)

    def column(head: str) -> list[str]:
        return [row[of[head]] for row in driver.execute_script(cells)]

    def figures(head: str) -> list[int]:
        return [int(re.sub(r"[^\d].*", "", text.replace(",", ""))) for text in column(head)]

    def sort(head: str) -> str:
        script = "const h = document.querySelectorAll('.layers')[0].querySelectorAll('.sort')"
        driver.execute_script(f"{script}[arguments[0]].click()", of[head])
        script = "return document.activeElement.parentElement.getAttribute('aria-sort')"
        found: str = driver.execute_script(script)
        return found

    assert figures("Cycles, model") == sorted(figures("Cycles, model"), reverse=True)
    assert sort("Cycles, compiler") == "descending"
    assert figures("Cycles, compiler") == sorted(figures("Cycles, compiler"), reverse=True)
    assert sort("Cycles, compiler") == "ascending"
    assert figures("Cycles, compiler") == sorted(figures("Cycles, compiler"))
    assert sort("Module") == "ascending"
    assert column("Module") == sorted(column("Module"))
    assert {"0.0", "0.2"} <= set(column("Module"))
    assert sort("#") == "ascending"
    assert figures("#") == list(range(len(figures("#"))))
    # Selecting a layer selects its node, and the graph can be coloured by both figures.
    driver.execute_script("document.querySelector('.layers .link').click()")
    assert texts(driver, "#details h3")
    options = texts(driver, "#colour option")
    assert {"NPU cycles, edgewise's model", "NPU cycles, compiler's"} <= set(options)
    assert any(text.startswith("Sram over the layers") for text in texts(driver, "#npu h4"))
    assert errors(driver) == []


SAFE = ("one", "measured", "hostile", "hostile figures", "hostile npu")


@pytest.mark.parametrize("page", SAFE)
def test_names_are_text_and_never_markup(driver: Any, pages: dict[str, Path], page: str) -> None:
    look(driver, *SIZES["wide"], "light")
    show(driver, pages[page])
    title = driver.title
    every_button = "for (const b of document.querySelectorAll('button')) b.click()"
    driver.execute_script(every_button)
    driver.execute_script(
        "const s = document.getElementById('colour');"
        "for (const o of s.options) { s.value = o.value; s.dispatchEvent(new Event('change')); }"
    )
    if page == "hostile":
        find(driver, "img")
        assert title == "<b>"
        assert "onerror" in texts(driver, "#details h3, #details dd")[1]
    assert driver.title == title
    assert driver.execute_script("return document.images.length") == 0
    # Attributes of the page's own elements only: none that a browser would run.
    handlers = """return [...document.querySelectorAll('*')].flatMap((e) =>
      [...e.attributes].filter((a) => a.name.startsWith('on')).map((a) => a.name))"""
    assert driver.execute_script(handlers) == []
    assert errors(driver) == []


def test_the_policy_stops_what_slips_through(driver: Any, pages: dict[str, Path]) -> None:
    """Markup that got into the page by a mistake runs nothing and loads nothing."""
    show(driver, pages["one"])
    title = driver.title
    driver.execute_script(
        "document.body.insertAdjacentHTML('beforeend', arguments[0])",
        "<img src=x onerror=\"document.title='broken'\">"
        "<a id=link href=\"javascript:document.title='broken'\">x</a>",
    )
    driver.execute_script("document.getElementById('link').click()")
    driver.execute_async_script("setTimeout(arguments[0], 200)")
    assert driver.title == title
    refused = errors(driver)
    assert any("Content Security Policy" in message for message in refused), refused
