"""The served page: what is given to whom. What it computes is in tests/web/test_web_report.py."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_support import RANKING_INPUTS, Ranking

import edgewise
from edgewise.report import write
from edgewise.report.live import RUNTIME, live_server, web_runtime


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "ranking.pte"
    edgewise.compile(Ranking(), RANKING_INPUTS, verbose=False).save(path, record=True)
    return path


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with the names of the runtime's, and a secret beside them."""
    folder = tmp_path_factory.mktemp("runtime")
    for name in (*RUNTIME, "secret.txt"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture(scope="module")
def port(program: Path, runtime: Path) -> Iterator[int]:
    with live_server([program], runtime=runtime) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running.server_port
        running.shutdown()


def asked(port: int, path: str, host: str = "127.0.0.1") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    answer.data = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


FOUND = {
    "/": "text/html; charset=utf-8",
    "/?a=b": "text/html; charset=utf-8",
    "/runtime/edgewise.mjs": "text/javascript",
    "/runtime/edgewise-module.wasm": "application/wasm",
    "/programs/0.pte": "application/octet-stream",
}


@pytest.mark.parametrize("path", FOUND)
def test_parts_of_the_page(port: int, program: Path, path: str) -> None:
    answer = asked(port, path, "localhost" if "?" in path else "127.0.0.1")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == FOUND[path]
    # Without both a browser gives no memory that threads share.
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    if path.endswith(".pte"):
        assert answer.data == program.read_bytes()  # type: ignore[attr-defined]


ABSENT = (
    "/runtime/secret.txt",
    "/runtime/../runtime/secret.txt",
    "/programs/1.pte",
    "/programs/..%2f..%2fetc/passwd",
    "/etc/passwd",
    "//etc/passwd",
)


@pytest.mark.parametrize("path", ABSENT)
def test_nothing_else_is_given(port: int, path: str) -> None:
    assert asked(port, path).status == 404


def test_pages_of_elsewhere_get_nothing(port: int) -> None:
    """Whose owner lets a name of theirs lead to this machine."""
    assert asked(port, "/programs/0.pte", host="elsewhere.example").status == 403


def test_only_the_served_page_can_load(port: int, program: Path, tmp_path: Path) -> None:
    served = asked(port, "/").data.decode()  # type: ignore[attr-defined]
    written = write(tmp_path / "page.html", program).read_text()
    policy = re.compile(r'Content-Security-Policy" content="([^"]*)"')
    assert "connect-src 'self'" in policy.findall(served)[0]
    assert "'self'" not in policy.findall(written)[0]
    live = json.loads(re.findall(r'id="data">(.*?)</script>', served, re.DOTALL)[0])["live"]
    assert live == {"runtime": "runtime/edgewise.mjs", "programs": ["programs/0.pte"]}
    assert "class Runner" in served
    assert "class Runner" not in written


# Where a shell ran the tests in its background, they and what they start ignore SIGINT.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from edgewise.cli import main
sys.exit(main())
"""


def test_the_command_serves_until_it_is_interrupted(program: Path, runtime: Path) -> None:
    options = ["--live", "--json", "--port", "0", "--runtime", str(runtime)]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "report", str(program), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")["address"]
        assert asked(int(address.rstrip("/").rpartition(":")[2]), "/").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_what_is_refused(program: Path, runtime: Path, port: int, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"edgewise\.mjs.*got none; try `make web`"):
        web_runtime(tmp_path)
    with pytest.raises(OSError, match=rf"port {port} must be free; .*; try --port 0"):
        live_server([program], runtime=runtime, port=port)
    with pytest.raises(ValueError, match="one or more files; got none"):
        live_server([], runtime=runtime)
