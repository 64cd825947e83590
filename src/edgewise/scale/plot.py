"""Trade-off plots in SVG: a cost from left to right, a figure from bottom to top."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 560, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 46
_SHAPES = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
    "diamond": "M0 -6.5L6.5 0L0 6.5L-6.5 0Z",
    "square": "M-4.6 -4.6H4.6V4.6H-4.6Z",
    "triangle": "M0 -6L6 4.8H-6Z",
    "cross": "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
}
SHAPES = tuple(_SHAPES)
COLOURS = 8
"""Classes `c0` ... of the page's style."""


@dataclass(frozen=True)
class Mark:
    """A point. row: its index in the table, which links lead to."""

    x: float
    y: float
    name: str
    row: int
    colour: int
    shape: str


def draw(marks: Sequence[Mark], x_name: str, y_name: str, *, more_is_better: bool = True) -> str:
    """The points, and a line through those that no other beats in both."""
    xs, ys = [m.x for m in marks], [m.y for m in marks]
    is_log = min(xs) > 0 and max(xs) / min(xs) > 30
    across, columns = _axis(xs, _LEFT, _WIDTH - _RIGHT, is_log)
    up, lines = _axis(ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{html.escape(y_name)} by {html.escape(x_name)}">'
    ]
    for value in lines:
        y = up(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for value in columns:
        x = across(value)
        parts.append(
            f'<line class="grid" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" x1="{x:.1f}" x2="{x:.1f}"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
        )
    best = _front(marks, more_is_better)
    line = " ".join(f"{across(m.x):.1f},{up(m.y):.1f}" for m in best)
    parts.append(f'<polyline class="front" points="{line}"/>')
    for mark in marks:
        parts.append(
            f'<a href="#row{mark.row}" data-row="{mark.row}">'
            f'<path class="mark c{mark.colour % COLOURS}" d="{_SHAPES[mark.shape]}" '
            f'transform="translate({across(mark.x):.1f},{up(mark.y):.1f})">'
            f"<title>{html.escape(mark.name)}: {mark.y:.4g}, {mark.x:.4g}</title></path></a>"
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="axis" x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{html.escape(x_name)}{', logarithmic' if is_log else ''}</text>"
        f'<text class="axis" transform="translate(14,{(_TOP + _HEIGHT - _BOTTOM) / 2}) '
        f'rotate(-90)" text-anchor="middle">{html.escape(y_name)}</text></svg>'
    )
    return "".join(parts)


def legend(models: Mapping[str, int], backends: Mapping[str, str]) -> str:
    """Colours for models, shapes for backends."""
    parts = []
    for name, colour in models.items():
        parts.append(_key(name, f"c{colour % COLOURS}", "circle"))
    for name, shape in backends.items():
        parts.append(_key(name, "plain", shape))
    return f'<p class="legend">{"".join(parts)}</p>'


def _key(name: str, style: str, shape: str) -> str:
    return (
        f'<span><svg viewBox="-8 -8 16 16" width="14" height="14"><path class="mark {style}" '
        f'd="{_SHAPES[shape]}"/></svg>{html.escape(name)}</span>'
    )


def _front(marks: Sequence[Mark], more_is_better: bool) -> list[Mark]:
    sign = 1 if more_is_better else -1
    best = -math.inf
    front = []
    for mark in sorted(marks, key=lambda m: (m.x, -sign * m.y)):
        if sign * mark.y > best:
            best = sign * mark.y
            front.append(mark)
    return front


def _axis(
    values: Sequence[float], first: float, last: float, is_log: bool = False
) -> tuple[Callable[[float], float], list[float]]:
    """From a value to its place between `first` and `last`; the values that get a line."""
    low, high = min(values), max(values)
    if is_log:
        low, high = low / 1.3, high * 1.3
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(powers) <= 3 else (1,)
        ticks = [s * 10.0**p for p in powers for s in steps if low <= s * 10.0**p <= high]
    else:
        margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        low, high = low - margin, high + margin
        step = 10.0 ** math.floor(math.log10((high - low) / 5))
        step *= next(s for s in (1, 2, 5, 10) if (high - low) / (s * step) <= 6)
        start, end = math.ceil(low / step), math.floor(high / step)
        ticks = [round(i * step, 12) for i in range(start, end + 1)]
    scaled: Callable[[float], float] = math.log10 if is_log else float

    def place(value: float) -> float:
        share = (scaled(value) - scaled(low)) / (scaled(high) - scaled(low))
        return first + share * (last - first)

    return place, ticks
