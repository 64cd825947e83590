"""Serves a folder with the headers that a page with threads needs.

    python examples/web/serve.py build/web/native/web --port 8000

The folder is that of the runtime; this example's page is added to it as `index.html`. Another page
is served from its own folder: `--page FOLDER`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
from pathlib import Path

from edgewise.report.live import server


def folders(runtime: Path, page: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server of the page's files and the runtime's, not started yet."""

    def find(path: str) -> Path | None:
        for folder in (page.resolve(), runtime.resolve()):
            found = (folder / (path or "index.html")).resolve()
            if found.is_relative_to(folder) and found.is_file():
                return found
        return None

    return server(find, port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runtime", type=Path, help="folder with edgewise.mjs")
    parser.add_argument("--page", type=Path, default=Path(__file__).parent)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if not (given.runtime / "edgewise.mjs").exists():
        parser.error(f"{given.runtime} must hold edgewise.mjs; it does not; try `make web`")
    with folders(given.runtime, given.page, given.port) as running:
        print(f"http://127.0.0.1:{running.server_port}/  (ctrl-c ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            running.serve_forever()


if __name__ == "__main__":
    main()
