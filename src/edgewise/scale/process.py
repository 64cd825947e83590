"""The process that forks tasks: `supervisor` starts one for each worker.

    python -m edgewise.scale.process [MODULE | MODULE:FUNCTION] ...

It imports what tasks need once. Each task then runs in a fork of its own, so that it can crash, be
killed and be accounted for alone without the seconds that importing torch takes. Forking is safe as
no threads exist before it: with one thread for its loops, torch starts none. Tasks come on standard
input and outcomes go to the descriptor that was standard output, pickled. When the input ends, the
parent wants no more, or is gone without a word (Ray kills its actors): the task that runs is ended,
then this process. It writes no file that has a name, so nothing is left of it.

The fork server of `multiprocessing` does not do: a program has one alone, for whatever else it
runs; each fork of it runs the user's script again, and outlives a program that is killed.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import os
import pickle
import pkgutil
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import BinaryIO, NoReturn

from edgewise.scale.task import Context, Limits, Outcome, Shared, Status, Task

_PR_SET_PDEATHSIG = 1
_GRACE = 1.0
"""Seconds that a task has to end when nobody wants its result; `Supervisor` waits for two."""
_POLL = 0.05
_LOG_LINES = 12


def main() -> None:
    """Serves until the input ends. Arguments: what is imported or called before the first task."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What tasks print goes to their logs, never among the answers.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)  # a task that crashes writes nothing more
    # One thread: nothing to go wrong in a fork, and the same sums everywhere.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    prepare(*sys.argv[1:])
    # Collecting what is there already would copy its pages in each fork.
    gc.collect()
    gc.freeze()
    with suppress(EOFError, BrokenPipeError):
        _serve(requests, answers)


def prepare(*names: str) -> None:
    """Imports modules, and calls functions: "package.module:name"."""
    for name in names:
        module, _, function = name.partition(":")
        with suppress(ImportError):  # a task that needs it says so
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()


def _serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """EOFError or BrokenPipeError when nobody wants more."""
    held: dict[str, bytes] = {}
    while True:
        # Of the process that started this one.
        task, context = pickle.load(requests)  # noqa: S301
        sent = task.shared.items()
        held = {digest: held[digest] if data is None else data for digest, data in sent}
        given = {
            n: held[a.digest] if isinstance(a, Shared) else a for n, a in task.attachments.items()
        }
        outcome = _run(task, replace(context, attachments=given), requests, answers)
        pickle.dump(outcome, answers)
        answers.flush()


def _run(task: Task, context: Context, requests: BinaryIO, answers: BinaryIO) -> Outcome:
    """In a fork. The value of what ended by itself is what `_answer` made, still pickled."""
    with _memory() as log, _memory() as answer:
        start = time.monotonic()
        server = os.getpid()
        child = os.fork()
        if child == 0:
            for conversation in (requests, answers):
                conversation.close()
            _be(task, context, server, log, answer)
        try:
            passed = _watch(child, task.limits, requests.fileno())
        finally:
            _kill(child, signal.SIGKILL)
            _, waited, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(waited)
        status: Status = "ok"
        error = ""
        value = _content(answer) if code == 0 else b""
        if not value:
            status, error = passed or ("crash", _last_words(code, log))
        return Outcome(
            task.key,
            status,
            value or None,
            error,
            seconds=time.monotonic() - start,
            peak_bytes=usage.ru_maxrss * 1024,
            host=socket.gethostname(),
            limits=task.limits,
        )


def _be(task: Task, context: Context, server: int, log: BinaryIO, answer: BinaryIO) -> NoReturn:
    """What the fork does: the task, in a session of its own."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        answer.write(_answer(task, context))
        answer.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(task: Task, context: Context) -> bytes:
    """Status, value and error of a task that returns or raises."""
    try:
        function = pkgutil.resolve_name(task.function)
        return pickle.dumps(("ok", function(task.arguments, context), ""))
    except (Exception, SystemExit) as failure:
        traceback.print_exc()
        # The type unless the message says where.
        text = str(failure).strip() or "no message"
        where = "" if text.startswith("[") else f"{type(failure).__name__}: "
        return pickle.dumps(("error", None, where + text))


def _watch(child: int, limits: Limits, requests: int) -> tuple[Status, str] | None:
    """Until the child ends or passes a limit: then which one. EOFError if the parent ends the
    input meanwhile: it sends nothing else."""
    start = time.monotonic()
    process = os.pidfd_open(child)
    try:
        while True:
            ready = wait([process, requests], None if limits == Limits() else _POLL)
            if process in ready:
                return None
            if ready:
                # A task that is writing to the store takes back what is half done.
                _kill(child, signal.SIGINT)
                wait([process], _GRACE)
                raise EOFError
            if limits.bytes is not None and _resident_bytes(child) > limits.bytes:
                return "memory", f"more than its {_size(limits.bytes)} of memory"
            if limits.seconds is not None and time.monotonic() - start > limits.seconds:
                return "time", f"longer than its {limits.seconds:g} s"
    finally:
        os.close(process)


def _kill(child: int, how: signal.Signals) -> None:
    """And what it started."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, how)
            return
        except ProcessLookupError:
            continue  # not yet the leader of its group


def _resident_bytes(process: int) -> int:
    """Of a process and those that it started; 0 if it is gone."""
    total = 0
    pending = [process]
    page = os.sysconf("SC_PAGE_SIZE")
    while pending:
        one = pending.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * page
            for thread in Path(f"/proc/{one}/task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue
    return total


def _last_words(code: int, log: BinaryIO) -> str:
    """How a process ended that did not come through, and the end of its log."""
    text = f"ended with exit code {code}"
    if code < 0:
        text = f"killed by {signal.Signals(-code).name} ({signal.strsignal(-code)})"
        if -code == signal.SIGKILL:
            text += "; perhaps the system was out of memory"
    lines = _content(log).decode(errors="replace").strip().splitlines()[-_LOG_LINES:]
    return text + ("; last lines: " + "\n".join(lines) if lines else "")


def _memory() -> BinaryIO:
    """A file without a name, so that a full disk does not matter."""
    return open(os.memfd_create("edgewise"), "w+b")


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.3g} MiB"


if __name__ == "__main__":
    main()
