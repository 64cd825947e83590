"""Text of files on a terminal: control characters are shown, not sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Of terminals, but for new lines and tabs, and what turns the direction of writing."""


def shown(text: str) -> str:
    """The text with escapes (`\\x1b`) instead of what a terminal would obey."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class PlainConsole(Console):
    """A console that sends the control codes of its own styles, and none of what it prints."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As Rich's, the text of each segment shown."""
        for segment in super().render(renderable, options):
            if segment.control is None and _CONTROL.search(segment.text):
                segment = Segment(shown(segment.text), segment.style)
            yield segment

    def render_str(self, text: str, **options: Any) -> Any:
        """As Rich's; it drops some control characters, which are shown before that."""
        return super().render_str(shown(text), **options)
