"""Debian's Chromium, driven by Selenium, to look at pages with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def browser(width: int = 1280, height: int = 900, scheme: str = "light") -> Iterator[Any]:
    """Debian's Chromium without a window, with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        try:
            driver.set_page_load_timeout(60)
            driver.set_script_timeout(60)
            look(driver, width, height, scheme)
            yield driver
        finally:
            driver.quit()


def look(driver: Any, width: int, height: int, scheme: str) -> None:
    """Gives the browser a size in pixels and the user's choice of light or dark."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def show(driver: Any, page: Path) -> None:
    """Opens a page from disk and waits for its scripts."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get_log("browser")
    driver.get(page.as_uri())
    ready = "return document.documentElement.dataset.ready === '1'"
    WebDriverWait(driver, 30, 0.02).until(lambda d: d.execute_script(ready))
