"""What commands print: a result on standard output, remarks and progress on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from edgewise.cli.errors import CHECK
from edgewise.cli.terminal import PlainConsole

_PIPED_WIDTH = 120
"""Columns of tables that are written to a pipe, unless COLUMNS says otherwise."""
_DELAY = 0.6
"""Seconds after which progress is shown: what is done by then shows nothing."""

Advance = Callable[[int], None]


@dataclass
class Output:
    """json: `result` prints data instead of text. quiet: neither remarks nor progress."""

    json: bool = False
    quiet: bool = False
    console: Console = field(default_factory=lambda: make_console(stderr=False))
    remarks: Console = field(default_factory=lambda: make_console(stderr=True))

    def result(self, data: Any, show: Callable[[Console], None]) -> None:
        """The command's one result: `data` as JSON if asked for, else what `show` prints."""
        if self.json:
            print(as_json(data))
        else:
            show(self.console)

    def note(self, text: str) -> None:
        """A remark for people, on standard error."""
        if not self.quiet:
            self.remarks.print(text, style="dim", markup=False, highlight=False)

    def lines(self, lines: Sequence[str]) -> None:
        """A remark in lines that stay as they are."""
        if not self.quiet:
            self.remarks.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def fail(self, message: str) -> NoReturn:
        """A limit that was asked for does not hold: after `result`, ends with `CHECK`."""
        complain(message, json=False, code=CHECK)
        raise typer.Exit(CHECK)

    @contextmanager
    def progress(self, text: str, total: int | None = None) -> Iterator[Advance]:
        """A bar for what may take over a second; yields a function that counts steps.

        total: how many steps there are; None: only the time is shown. Nothing is drawn where
        standard error is no terminal.
        """
        if self.quiet or not self.remarks.is_terminal:
            yield lambda steps: None
            return
        columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        if total is not None:
            columns[2:2] = [BarColumn(), MofNCompleteColumn()]
        bar = Progress(*columns, console=self.remarks, transient=True)
        task = bar.add_task(text, total=total)
        with _later(bar):
            yield lambda steps: bar.advance(task, steps)


@contextmanager
def _later(bar: Progress) -> Iterator[None]:
    """Starts the bar once some time has passed, stops it at the end."""
    import threading

    timer = threading.Timer(_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def make_console(*, stderr: bool) -> Console:
    """A terminal's own width and colours; a pipe has no colours, and wide lines."""
    console = PlainConsole(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in console._environ:
        console = PlainConsole(stderr=stderr, highlight=False, width=_PIPED_WIDTH)
    return console


def as_json(data: Any) -> str:
    """Indented; numpy's numbers and arrays are plain ones, what is not finite is null."""
    return json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    if hasattr(data, "tolist"):
        return _plain(data.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if data is None or isinstance(data, (str, int, float, bool)):
        return data
    return str(data)


def complain(message: str, *, json: bool, code: int) -> None:
    """An error: on standard error for people; with `--json` also as an object on standard
    output, so that who reads that finds out from there."""
    if json:
        print(as_json({"error": {"message": message, "exit_code": code}}))
    console = make_console(stderr=True)
    console.print("error:", style="bold red", end=" ")
    console.print(message, markup=False, highlight=False, soft_wrap=True)
    sys.stderr.flush()
