"""Tables of `edgewise explain`: what is not delegated, by cause, and the layers of an NPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from edgewise.cli.tables import table
from edgewise.inspect.layers import layers as layers_of
from edgewise.inspect.layers import slowest, summary_of, table_of
from edgewise.inspect.refused import Cause, causes

if TYPE_CHECKING:
    from edgewise.inspect.record import MethodRecord

_MOST_LOCATIONS = 3


def show_refused(console: Console, method: MethodRecord) -> None:
    """By cause; what stands between two delegates first, then the costliest."""
    rows = []
    following = 0
    for cause in causes(method):
        if cause.follows:
            following += len(cause.nodes)
            continue
        operators = Text("\n").join(Text(f"{n} x {name}") for name, n in cause.operators.items())
        if cause.splits:
            operators.append("\nbetween delegates", "yellow")
        lines = [_location(*one) for one in cause.locations]
        where = "\n".join(lines[:_MOST_LOCATIONS])
        if len(lines) > _MOST_LOCATIONS:
            where += f"\nand {len(lines) - _MOST_LOCATIONS} more"
        rows.append((operators, _why(cause), where))
    if rows:
        console.print()
        console.print(table(["not delegated", "why", "where"], rows))
    if following:
        count = f"{following} quantization{'s' * (following != 1)}"
        console.print(f"{count} at the borders of delegates, on the CPU", style="dim")


def _why(cause: Cause) -> Text:
    """The rules, what they found, and what to change."""
    text = Text()
    for index, refusal in enumerate(cause.refusals):
        got = cause.got(index)
        text.append("\n" if text else "")
        text.append(f"{refusal.backend}: {'' if got or not refusal.got else 'not '}{refusal.rule}")
        if got:
            text.append(f"; got {' or '.join(got[:2])}{', ...' if len(got) > 2 else ''}")
    for hint in cause.hints:
        text.append(f"\ntry {hint}", "green")
    return text or Text("no backend was asked")


def _location(module: str, source: str) -> str:
    return " at ".join(filter(None, (module, short_location(source))))


def show_layers(console: Console, method: MethodRecord, most: int) -> None:
    """What is expected of delegates on an NPU, the slowest layers first."""
    rows = layers_of(method)
    for index, delegate in enumerate(method.delegates):
        own = [row for row in rows if row.delegate == index]
        if not most or delegate.estimates is None or not any(row.cycles for row in own):
            continue
        shown = slowest(own)[:most]
        heads, cells = table_of(shown, own)
        console.print()
        head = f"delegate {index}, {summary_of(own, delegate.estimates)}"
        console.print(Text(head, "bold"))
        console.print(table(heads, cells))
        if len(own) > len(shown):
            console.print(f"and {len(own) - len(shown)} more: --layers {len(own)}", style="dim")


def short_location(source: str) -> str:
    """A line of the model: from the working directory, or the last two names of its path."""
    path, colon, line = source.rpartition(":")
    if not colon:
        return source
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return f"{'/'.join(Path(path).parts[-2:])}:{line}"
