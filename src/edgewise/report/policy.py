"""What pages allow a browser to do: their own script and styles, nothing else.

Names in a page come from files that others wrote. They are escaped where they are shown; should
one slip through, the browser still runs no script but the one whose hash stands here, and asks no
other machine for anything.
"""

from __future__ import annotations

import base64
import hashlib


def content_policy(script: str, *, live: bool = False) -> str:
    """The element for a page's head. script: exactly what stands between its script's tags. live:
    whether it may load a runtime and programs from where it came from, and compile WebAssembly."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'" + (" 'self' 'wasm-unsafe-eval'" if live else ""),
        *(("connect-src 'self'", "worker-src 'self'") if live else ()),
        "base-uri 'none'",
        "form-action 'none'",
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'
