"""Serves a folder with the headers that a page with threads needs.

    python examples/web/serve.py build/web/native/web --port 8000

The folder is that of the runtime; this example's page is added to it as `index.html`. Another page
is served from its own folder: `--page FOLDER`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
from pathlib import Path

HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-store",
}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of `page` first, then those of the runtime's folder."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args: object, page: Path, **options: object) -> None:
        self.page = page
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        there = super().translate_path(path)
        here = self.page / Path(there).relative_to(self.directory)
        return str(here if here.exists() else there)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: object) -> None:
        pass


def server(runtime: Path, page: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server on this machine only, not started yet. `port`: 0 for any that is free."""
    handler = functools.partial(Handler, directory=str(runtime.resolve()), page=page.resolve())
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runtime", type=Path, help="folder with edgewise.mjs")
    parser.add_argument("--page", type=Path, default=Path(__file__).parent)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if not (given.runtime / "edgewise.mjs").exists():
        parser.error(f"{given.runtime} must hold edgewise.mjs; it does not; try `make web`")
    with server(given.runtime, given.page, given.port) as running:
        print(f"http://127.0.0.1:{running.server_port}/  (ctrl-c ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            running.serve_forever()


if __name__ == "__main__":
    main()
