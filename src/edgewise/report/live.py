"""A page that runs its own programs: served with the runtime for browsers, to this machine only."""

from __future__ import annotations

import errno
import http.server
import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edgewise.report.writing import opened, render

Found = bytes | Path | None
"""What a path of an address stands for."""

RUNTIME = (
    "edgewise.mjs",
    "edgewise-worker.js",
    "edgewise-module.js",
    "edgewise-module.worker.js",
    "edgewise-module.wasm",
)
"""The files of the runtime for browsers."""

_HEADERS = {
    # Threads of WebAssembly share memory, which a browser allows to such pages only.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
}


def web_runtime(folder: str | Path | None = None) -> Path:
    """The folder with the runtime for browsers: the one given, else the wheel's own, else what
    `make web` left beside these sources. FileNotFoundError if a part of it is missing."""
    package = Path(__file__).resolve().parents[1]
    own = [package / "runtime" / "web", package.parents[1] / "build" / "web" / "native" / "web"]
    folders = own if folder is None else [Path(folder)]
    for one in folders:
        if all((one / name).is_file() for name in RUNTIME):
            return one
    raise FileNotFoundError(
        errno.ENOENT,
        f"[report] a live page needs the runtime for browsers ({', '.join(RUNTIME)}); got none; "
        "try `make web` in edgewise's sources, then --runtime build/web/native/web",
        str(folders[-1]),
    )


def live_server(
    programs: Sequence[str | Path],
    *,
    profiles: Sequence[str | Path | None] = (),
    comparisons: Sequence[str | Path | None] = (),
    title: str | None = None,
    runtime: str | Path | None = None,
    port: int = 0,
) -> http.server.ThreadingHTTPServer:
    """A server, not started yet, of the page about `.pte` files; the page can run them.

    programs, profiles, comparisons, title: as of `write`. runtime: as of `web_runtime`. port: as
    of `server`.
    """
    folder = web_runtime(runtime)
    subjects = opened(programs, profiles, comparisons)
    files: dict[str, bytes | Path] = {f"runtime/{name}": folder / name for name in RUNTIME}
    models = {f"programs/{n}.pte": Path(path) for n, path in enumerate(programs)}
    where = {"runtime": "runtime/edgewise.mjs", "programs": [*models]}
    files |= {**models, "": render(subjects, title, live=where).encode()}
    return server(lambda path: files.get(path), port)


def server(find: Callable[[str], Found], port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server for this machine's browsers, not started yet, with the headers that threads need.

    find: what an address's path (decoded, without its first "/" and anything like "..") stands
    for; "" is the page. port: 0 for any that is free. OSError with what to do if it is taken.
    """

    class Handler(_Handler):
        found = staticmethod(find)

    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as cause:
        raise OSError(
            cause.errno, f"[report] port {port} must be free; got {cause.strerror}; try --port 0"
        ) from None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    found: Callable[[str], Found]

    def do_GET(self) -> None:
        # A page of elsewhere whose name was made to lead here sends that name.
        if self.headers.get("Host", "").partition(":")[0] not in ("127.0.0.1", "localhost"):
            self.send_error(403, "Only for this machine")
            return
        path = posixpath.normpath(unquote(urlsplit(self.path).path)).lstrip("/")
        path = "" if path == "." else path
        found = self.found(path)
        if found is None or (isinstance(found, Path) and not found.is_file()):
            self.send_error(404)
            return
        suffix = Path(path or "index.html").suffix
        data = found.read_bytes() if isinstance(found, Path) else found
        self.send_response(200)
        self.send_header("Content-Type", _TYPES.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: object) -> None:
        pass
