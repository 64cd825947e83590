"""The context in which runs are recorded."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from edgewise.profiling.result import Profile
from edgewise.profiling.runs import Event, Instruction, MethodRuns, Part, Run, numbered
from edgewise.runtime import _native, _profiles

if TYPE_CHECKING:
    from edgewise.inspect.record import ProgramRecord


class profile:
    """Records every run of every method while it is open, by whichever thread.

    `with edgewise.profile() as result:` gives a `Profile`, which may be read inside and after.
    A run belongs to every profile that is open when it begins and when it ends: profiles may be
    nested, and opened by several threads. A run that fails is not recorded.

    Args:
        record: of the program, or its path: which module and source line each operator comes
            from. None: the file beside the program, if there is one.
        warmup: the first runs of each method that are not kept.

    Raises:
        ValueError: `warmup` is negative, or `record` is the path of something else.
        RuntimeError: it was opened before; each `with` takes a new one.
    """

    def __init__(
        self, *others: object, record: ProgramRecord | str | Path | None = None, warmup: int = 0
    ) -> None:
        if others:
            raise TypeError(
                f"[profile] takes record and warmup by name, and records every run inside of it; "
                f"got {type(others[0]).__name__}; try `with edgewise.profile() as p: model(x)`"
            )
        if warmup < 0:
            raise ValueError(f"[profile] warmup must be 0 or more; got {warmup}")
        if isinstance(record, (str, Path)):
            from edgewise.inspect.record import load_record

            record = load_record(record)
        self._record = record
        self._recorder = _Recorder(warmup)
        self._is_used = False

    def __enter__(self) -> Profile:
        if self._is_used:
            raise RuntimeError(
                "[profile] a profile is opened once; got a second time; try edgewise.profile()"
            )
        self._is_used = True
        _profiles.add(self._recorder)
        return Profile(self._recorder.methods, self._record)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _profiles.remove(self._recorder)
        self._recorder.close()


class _Recorder:
    """Keeps calls as they come, and reads them when they are asked for."""

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._lock = threading.Lock()
        self._calls: list[tuple[_native.Method, str, int, _native.CallProfile]] = []
        self._is_open = True
        self._skipped: dict[tuple[str, str], int] = {}
        self._methods: dict[tuple[str, str], MethodRuns] = {}
        self._alive: dict[int, _native.Method] = {}  # whose ids stand for files without a path

    def add(self, method: _native.Method, path: str, call: _native.CallProfile) -> None:
        entry = (method, path, threading.get_native_id(), call)
        with self._lock:
            if self._is_open:
                self._calls.append(entry)

    def close(self) -> None:
        with self._lock:
            self._is_open = False

    def methods(self) -> list[MethodRuns]:
        with self._lock:
            calls, self._calls = self._calls, []
            for method, path, thread, call in calls:
                self._read(method, path, thread, call)
            return list(self._methods.values())

    def _read(
        self, method: _native.Method, path: str, thread: int, call: _native.CallProfile
    ) -> None:
        info = method.info
        key = (path or str(id(method)), info.name)
        self._alive[id(method)] = method
        if self._skipped.setdefault(key, 0) < self._warmup:
            self._skipped[key] += 1
            return
        found = self._methods.get(key)
        if found is None:
            found = self._methods[key] = MethodRuns(info.name, path, _instructions(info))
        found.runs.append(_run(thread, call))


def _instructions(info: _native.MethodInfo) -> list[Instruction]:
    result = []
    for kind, target in _native.instructions(info):
        if isinstance(target, int):
            result.append(Instruction(kind, info.delegates[target].backend, target))
        else:
            result.append(Instruction(kind, target or ""))
    return result


def _run(thread: int, call: _native.CallProfile) -> Run:
    events, parts = call.contents()
    known = {
        number: Part(name, tuple(nodes), counters)
        for number, (name, nodes, counters) in parts.items()
    }
    return Run(
        thread,
        call.begin,
        call.end,
        call.run_begin,
        call.run_end,
        numbered(
            Event(begin, end, instruction, None if part is None else known[part])
            for begin, end, instruction, part in events
        ),
        call.dropped,
    )
