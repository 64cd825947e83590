"""A line chart in SVG, complete in itself."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

_LEFT, _TOP, _HEIGHT, _BOTTOM = 56, 40, 260, 215
_LETTERS = 38
"""Of a label, that fit below; its end says more than its beginning."""
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:14px}"
    ".page{fill:#fff}.grid{stroke:#ddd}.line{fill:none;stroke:#4a7ab5;stroke-width:1.5}"
    ".point{fill:#4a7ab5}.marked{fill:#c8402f}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#1b1d21}.grid{stroke:#3a3d44}"
    ".line{stroke:#7fb0ea}.point{fill:#7fb0ea}.marked{fill:#ff8a75}}"
)
"""It has a background of its own, so that it is legible on pages of both kinds."""


@dataclass(frozen=True)
class Point:
    """A value in decibels; `detail` is shown under the pointer, `marked` stands out."""

    label: str
    value: float
    detail: str = ""
    marked: bool = False


def draw(title: str, points: Sequence[Point]) -> str:
    """Points from left to right. What is infinite lies on the border."""
    finite = [p.value for p in points if math.isfinite(p.value)] or [0.0]
    step = _step(max(finite) - min(min(finite), 0.0))
    low = math.floor(min(min(finite), 0.0) / step) * step
    high = math.ceil(max(max(finite), low + step) / step) * step
    pitch = max(14.0, 700 / max(1, len(points)))
    width = _LEFT + pitch * len(points) + 90

    def x(index: int) -> float:
        return _LEFT + pitch * (index + 0.5)

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (high - min(max(value, low), high)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{_TOP + _HEIGHT + _BOTTOM}" '
        f'viewBox="0 0 {width:.0f} {_TOP + _HEIGHT + _BOTTOM}"><style>{_STYLE}</style>',
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="title" x="{_LEFT}" y="20">{html.escape(title)} (dB)</text>',
    ]
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - 90:.0f}" '
            f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    path = " ".join(f"{x(i):.1f},{y(p.value):.1f}" for i, p in enumerate(points))
    parts.append(f'<polyline class="line" points="{path}"/>')
    for index, point in enumerate(points):
        shown = f"{point.value:.1f} dB" if math.isfinite(point.value) else "exact"
        kind, radius = ("marked", 5) if point.marked else ("point", 3)
        hint = html.escape(f"{point.label}: {shown} {point.detail}".strip())
        parts.append(
            f'<circle class="{kind}" cx="{x(index):.1f}" cy="{y(point.value):.1f}" '
            f'r="{radius}"><title>{hint}</title></circle>'
            f'<text transform="translate({x(index) + 4:.1f},{_TOP + _HEIGHT + 12}) rotate(60)">'
            f"{html.escape(point.label[-_LETTERS:])}</text>"
        )
    return "".join(parts) + "</svg>\n"


def _step(span: float) -> float:
    """Between the lines of the grid: at most ten."""
    return next((s for s in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if span <= 10 * s), 100.0)
