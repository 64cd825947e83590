"""Runs readers on damaged files, one after the other.

Files whose outcome is new (another rule that they break, another line that raises) are damaged
further: that leads into the reader as coverage does, for a small part of its cost.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kinds import KINDS, Kind, corpus

SECONDS = 5
"""That one file may take."""
MEMORY = 512 << 20
"""Bytes by which one file may raise what the process takes."""
_KEPT = 2000


_OWN = re.compile(
    r"/\S+|'[^']*'|\"[^\"]*\"|`[^`]*`|[0-9a-fx]*[0-9][0-9a-fx.]*|\{.*|(?<=.)\[.{30,}", re.DOTALL
)
"""Of an error's text, what is this file's own: paths, names, numbers, lists."""


class TooSlow(BaseException):
    """No `except Exception` of a reader hides it."""


@dataclass(frozen=True)
class Failure:
    """A file that was a reader's undoing."""

    data: bytes
    told: str


@dataclass
class Report:
    """outcomes: how often each was seen, as text without numbers and names."""

    executions: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)


def fuzz(
    name: str, folder: Path, *, seed: int = 0, count: int | None = None, seconds: float = 1e9
) -> Report:
    """The corpus of a kind, then damaged files, until `count` or `seconds` are over.

    folder: for the file that is read.
    """
    kind = KINDS[name]
    files = [(path.name, path.read_bytes()) for path in corpus(name)]
    rng = random.Random(f"{name} {seed}")
    report = Report()
    begin = time.monotonic()
    kind.run(corpus(name)[0])  # imports what it needs, which takes its time
    for given, data in files:
        one(kind, folder / given, data, report)
    start = [data for _, data in files]
    while (count is None or report.executions < count) and time.monotonic() < begin + seconds:
        given, data = rng.choice(files)
        made = kind.mutate(data, start, rng)
        if one(kind, folder / given, made, report) and len(files) < _KEPT:
            files.append((given, made))
    report.seconds = time.monotonic() - begin
    return report


def one(kind: Kind, path: Path, data: bytes, report: Report) -> bool:
    """Reads one file. Whether its outcome was new."""
    path.write_bytes(data)
    before = _peaks()
    try:
        with _limit():
            kind.run(path)
        outcome = "read"
    except kind.errors as error:
        outcome = _place(error)
        if not str(error).startswith("["):
            outcome = f"no text of ours: {outcome}"
            report.failures.setdefault(outcome, Failure(data, _told(error)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # PanicException of pyo3 is one
        outcome = f"escaped: {_place(error)}"
        report.failures.setdefault(outcome, Failure(data, _told(error)))
    taken = max(after - found for after, found in zip(_peaks(), before, strict=True))
    if taken > MEMORY:
        report.failures.setdefault("memory", Failure(data, f"took {taken >> 20} MiB"))
    new = outcome not in report.outcomes
    report.outcomes[outcome] = report.outcomes.get(outcome, 0) + 1
    report.executions += 1
    return new


def _peaks() -> tuple[int, int]:
    """Most bytes that this process took, and one that it started and that has ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own, others = (resource.getrusage(one).ru_maxrss * 1024 for one in who)
    return own, others


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(error: BaseException) -> str:
    """The error's kind, its text without what differs from file to file, and where it began."""
    first: BaseException = error
    while first.__cause__ is not None or first.__context__ is not None:
        first = first.__cause__ or first.__context__  # type: ignore[assignment]
    where = ""
    for frame, line in traceback.walk_tb(first.__traceback__):
        where = f"{Path(frame.f_code.co_filename).name}:{line}"
    text = _OWN.sub("#", str(error))
    return f"{type(error).__name__} {where} {text[:50]}...{text[-50:]}"


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
