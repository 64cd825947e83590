"""Passes over a graph, and what runs them in order or until nothing changes.

A pass edits a graph in place and returns whether it changed something. It declares what it
requires of the graph and what it ensures: properties that can be checked. A manager runs passes;
whoever wants to look on (`watching`) is told of each one: `Verifier` checks what was declared,
`Dump` writes the graph, `Times` adds up seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from edgewise.errors import InternalError
from edgewise.files import write_text

IR = TypeVar("IR")
_MOST_ROUNDS = 16
"""Of a group: passes that undo each other would go on for ever."""


@dataclass(frozen=True)
class Property(Generic[IR]):
    """What may be said of a graph. `broken`: what speaks against it; "" if nothing does."""

    text: str
    broken: Callable[[IR], str]
    of_valid_input: bool = False
    """Whether a user's program may break it, too, which is then refused once the passes ran."""


@dataclass(frozen=True)
class Pass(Generic[IR]):
    """A function that edits a graph and returns whether it changed it, with what it declares."""

    function: Callable[[IR], bool]
    requires: tuple[Property[IR], ...] = ()
    ensures: tuple[Property[IR], ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", "pass"))

    def __call__(self, graph: IR) -> bool:
        """Whether it changed the graph."""
        return self.function(graph)


def declared(
    *, requires: tuple[Property[IR], ...] = (), ensures: tuple[Property[IR], ...] = ()
) -> Callable[[Callable[[IR], bool]], Pass[IR]]:
    """Makes a pass of a function."""
    return lambda function: Pass(function, requires, ensures)


class Group(Generic[IR]):
    """Passes that are run in turns until none of them changes anything."""

    def __init__(self, *passes: Pass[IR]) -> None:
        self.passes = passes


class Watcher(Protocol):
    """Who is told of passes. `manager` tells how to verify and print the graph."""

    def before(self, manager: PassManager[Any], one: Pass[Any], graph: Any) -> None:
        """The pass is about to run."""

    def after(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, changed: bool, seconds: float
    ) -> None:
        """It has run."""


@dataclass(frozen=True)
class PassManager(Generic[IR]):
    """Runs its steps in order. `verify` raises if a graph breaks its law; `text` prints it."""

    name: str
    steps: Sequence[Pass[IR] | Group[IR]]
    verify: Callable[[IR], None] = lambda graph: None
    text: Callable[[IR], str] = str

    def __call__(self, graph: IR) -> bool:
        """Whether a pass changed the graph."""
        changed = False
        for step in self.steps:
            if isinstance(step, Pass):
                changed |= self._run(step, graph)
                continue
            for _ in range(_MOST_ROUNDS):
                # Not `any(...)`, which would leave out the passes after the first change.
                if not max([self._run(one, graph) for one in step.passes]):
                    break
                changed = True
            else:
                names = ", ".join(one.name for one in step.passes)
                raise InternalError(
                    f"[{self.name}] a group of passes must come to an end; got {_MOST_ROUNDS} "
                    f"rounds of {names}; this is a defect of edgewise: please report it"
                )
        return changed

    def _run(self, one: Pass[IR], graph: IR) -> bool:
        watchers = _watchers.get()
        for watcher in watchers:
            watcher.before(self, one, graph)
        start = time.perf_counter()
        changed = one(graph)
        seconds = time.perf_counter() - start
        for watcher in watchers:
            watcher.after(self, one, graph, changed, seconds)
        return changed


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(*watchers: Watcher) -> Iterator[None]:
    """They are told of each pass that runs inside, in this thread."""
    token = _watchers.set((*_watchers.get(), *watchers))
    try:
        yield
    finally:
        _watchers.reset(token)


@dataclass
class Verifier:
    """Raises InternalError if a pass breaks the graph, or does not do what it declares.

    claims: also that a pass which says that it changed nothing left the same text, and what holds
    only if the program is valid.
    """

    claims: bool = False
    ran: int = 0
    _text: str = ""

    def before(self, manager: PassManager[Any], one: Pass[Any], graph: Any) -> None:
        """Checks what the pass requires."""
        self._hold(manager, one, graph, one.requires, "requires")
        if self.claims:
            self._text = manager.text(graph)

    def after(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, changed: bool, seconds: float
    ) -> None:
        """Checks what it ensures, the graph's law, and its claim."""
        self.ran += 1
        self._hold(manager, one, graph, one.ensures, "ensures")
        try:
            manager.verify(graph)
        except Exception as error:
            raise InternalError(
                f"[{manager.name}] {one.name} must leave a valid graph; got {error}"
            ) from error
        if self.claims and not changed and manager.text(graph) != self._text:
            raise InternalError(
                f"[{manager.name}] {one.name} must return whether it changed the graph; got False "
                f"for a graph that is another"
            )

    def _hold(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, properties: Any, what: str
    ) -> None:
        for each in properties:
            if each.of_valid_input and not self.claims:
                continue
            broken = each.broken(graph)
            if broken:
                raise InternalError(
                    f"[{manager.name}] {one.name} {what} that {each.text}; got {broken}"
                )


@dataclass
class Times:
    """Seconds by manager and pass, in the order of the first runs."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    runs: dict[tuple[str, str], int] = field(default_factory=dict)

    def before(self, manager: PassManager[Any], one: Pass[Any], graph: Any) -> None:
        """Nothing."""

    def after(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, changed: bool, seconds: float
    ) -> None:
        """Adds the pass's seconds."""
        key = manager.name, one.name
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        self.runs[key] = self.runs.get(key, 0) + 1

    def __str__(self) -> str:
        lines = [f"{'milliseconds':>12}  {'runs':>4}  pass"]
        for key, seconds in self.seconds.items():
            lines.append(f"{1e3 * seconds:12.3f}  {self.runs[key]:4}  {': '.join(key)}")
        return "\n".join(lines) + "\n"


class Dump:
    """Writes the graph to a folder before the first pass of each manager's run and after each pass
    that changed it: `003-xnnpack-fuse_clamp.txt`; and, with `close`, what each pass took."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._times = Times()
        self._last: Any = None
        self._number = 0

    def before(self, manager: PassManager[Any], one: Pass[Any], graph: Any) -> None:
        """Writes a graph that was not seen before."""
        if graph is not self._last:
            self._write(manager, "before", graph)

    def after(
        self, manager: PassManager[Any], one: Pass[Any], graph: Any, changed: bool, seconds: float
    ) -> None:
        """Writes the graph if the pass changed it."""
        self._times.after(manager, one, graph, changed, seconds)
        if changed:
            self._write(manager, one.name, graph)

    def close(self) -> None:
        """Writes `times.txt`."""
        write_text(self._folder / "times.txt", str(self._times))

    def _write(self, manager: PassManager[Any], what: str, graph: Any) -> None:
        self._last = graph
        name = f"{self._number:03}-{manager.name}-{what}.txt".replace("/", "_").replace(" ", "_")
        self._number += 1
        write_text(self._folder / name, manager.text(graph).rstrip() + "\n")
