"""`tools/audit.py` against a database of this test: what it is asked, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pip_audit")
pytest.importorskip("tomllib")

ROOT = Path(__file__).parents[1]


def _vulnerability(package: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": "99"}]
    return {
        "id": "TEST-1",
        "summary": "of the test",
        "details": "of the test",
        "published": "2026-01-01T00:00:00Z",
        "modified": "2026-01-01T00:00:00Z",
        "affected": [
            {
                "package": {"name": package, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": events}],
            }
        ],
    }


class Database(HTTPServer):
    """Answers as osv.dev does. bad: name and version with a vulnerability."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bad = ("", "")
        self.asked: set[tuple[str, str]] = set()


class Handler(BaseHTTPRequestHandler):
    server: Database

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = (query["package"]["name"].lower(), query["version"])
        self.server.asked.add(asked)
        found = {"vulns": [_vulnerability(asked[0])]} if asked == self.server.bad else {}
        data = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def database() -> Iterator[Database]:
    with Database() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def _audit(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "audit.py"],
        env={**os.environ, "OSV_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_found(database: Database) -> None:
    made = _audit(f"http://127.0.0.1:{database.server_port}/v1/query")
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("No known vulnerabilities found") == 2
    import numpy as np

    assert ("numpy", np.__version__) in database.asked  # what is installed
    assert ("numpy", "1.26") in database.asked  # the lowest that is allowed


def test_the_lowest_version_is_vulnerable(database: Database) -> None:
    database.bad = ("numpy", "1.26")
    made = _audit(f"http://127.0.0.1:{database.server_port}/v1/query")
    assert made.returncode == 1
    _, lowest = made.stdout.split("lowest versions allowed:")
    assert "TEST-1" in lowest
    assert "Found 1 known vulnerability in 1 package" in lowest


def test_no_database() -> None:
    url = "http://127.0.0.1:9/v1/query"
    made = _audit(url)
    assert made.returncode == 1
    assert made.stdout.count(f"[audit] {url} must answer; got") == 2
