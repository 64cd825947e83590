"""The site of several versions: what is listed, how one gets from one to another, search."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs_site  # noqa: E402


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "index.html").write_text("a page")
    return folder


@pytest.mark.parametrize(
    ("added", "listed"),
    [
        (["main"], ["main"]),
        (["main", "0.9.0"], ["0.9.0", "main"]),
        (["0.9.0", "0.10.0", "main", "0.9.1"], ["0.10.0", "0.9.1", "0.9.0", "main"]),
        (["1.0.0", "1.0.0"], ["1.0.0"]),
    ],
)
def test_versions_are_listed_newest_first(
    built: Path, tmp_path: Path, added: list[str], listed: list[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for version in added:
        docs_site.add(built, site, version)
    found = json.loads((site / "versions.json").read_text())
    assert [one["folder"] for one in found] == listed
    assert f'url={listed[0]}/"' in (site / "index.html").read_text()
    assert {p.name for p in site.iterdir() if p.is_dir()} == set(listed)


def test_a_version_is_written_anew(built: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (built / "old.html").write_text("a page that goes")
    docs_site.add(built, site, "main")
    (built / "old.html").unlink()
    docs_site.add(built, site, "main")
    assert [p.name for p in (site / "main").iterdir()] == ["index.html"]


@pytest.mark.parametrize("version", ["latest", "v1.2.3", "../main", "1.2", ""])
def test_other_names_are_refused(built: Path, tmp_path: Path, version: str) -> None:
    with pytest.raises(SystemExit, match=r"must be main or like 1\.2\.3"):
        docs_site.add(built, tmp_path / "site", version)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Served: two versions of a small documentation, built as the project's own; the older one
    lacks a page."""
    folder = tmp_path_factory.mktemp("site")
    source = folder / "source"
    source.mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", source)
    shutil.copytree(ROOT / "docs" / "_static", source / "_static")
    (source / "index.md").write_text("# Start\n\n```{toctree}\nnewts\n```\n")
    (source / "newts.md").write_text("# Newts\n\nAbout axolotls.\n")
    site = folder / "site"
    site.mkdir()
    for version in ("main", "0.1.0"):
        if version == "0.1.0":
            (source / "newts.md").unlink()
            (source / "index.md").write_text("# Start\n")
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-E"]
        subprocess.run([*command, str(source), str(folder / version)], check=True)
        docs_site.add(folder / version, site, version)
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.browser
def test_pages_lead_to_other_versions_and_are_searched(site: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    from browser_support import browser

    with browser() as driver:
        wait = WebDriverWait(driver, 20, 0.05)

        def choice() -> Any:
            return wait.until(lambda d: d.find_elements(By.ID, "versions"))[0]

        driver.get(site)  # leads to the newest release
        wait.until(lambda d: d.current_url.endswith("/0.1.0/"))
        names = [option.text for option in Select(choice()).options]
        assert names == ["0.1.0 (newest)", "in development"]
        assert Select(choice()).first_selected_option.text == "0.1.0 (newest)"
        Select(choice()).select_by_visible_text("in development")
        wait.until(lambda d: d.current_url.endswith("/main/"))
        driver.get(f"{site}/main/search.html?q=axolotls")
        found = wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, "ul.search li a"))
        assert found[0].get_attribute("href").startswith(f"{site}/main/newts.html")
        driver.get(f"{site}/main/newts.html")
        Select(choice()).select_by_visible_text("0.1.0 (newest)")  # which has no such page
        wait.until(lambda d: d.current_url.endswith("/0.1.0/"))
        expected = ("favicon.ico", "/0.1.0/newts.html")  # asked for, and not there
        told = [one["message"] for one in driver.get_log("browser")]
        assert not [text for text in told if not any(name in text for name in expected)], told
