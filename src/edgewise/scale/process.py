"""The process that forks tasks: started once for each worker, it imports what they need.

Each task runs in a fork of its own, so that it can crash, be killed and be accounted for alone
without the seconds that importing torch takes. Forking is safe as no threads exist before it:
with one thread for its loops, torch starts none. Parent and server talk in lines of JSON;
requests and results are files in the folder that a line names. If the parent is gone without a word
(Ray kills its actors), what it kept on disk is removed here.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pickle
import select
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_GRACE = 1.0
"""Seconds that a task has to end when nobody wants its result; `Supervisor` waits for two."""
REQUEST, RESULT, LOG = "request.pickle", "result.pickle", "log.txt"
END = "end"
"""In a line: no more tasks, and what the parent kept on disk is its own to remove."""


def main() -> int:
    """Serves until it is told to end. Arguments: the parent's folder, and what `_prepare` takes."""
    lines = os.fdopen(os.dup(0), "rb", buffering=0)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    # What tasks print goes to their logs, never into the conversation.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    scratch, *names = sys.argv[1:]
    for name in names:
        _prepare(name)
    # Collecting what is there already would copy its pages in each fork.
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError):  # the parent is gone, with a line on its way to it
        if _serve(lines, out):
            return 0
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)  # `out` may hold what nobody can read


def _serve(lines: Any, out: Any) -> bool:
    """Forks a task for each line. Whether the parent has said that there are no more."""
    out.write(json.dumps({"ready": os.getpid()}) + "\n")
    for line in iter(lines.readline, b""):
        request = json.loads(line)
        if END in request:
            return True
        child = _fork(Path(request["folder"]), [lines.fileno(), out.fileno()])
        out.write(json.dumps({"started": child}) + "\n")
        ended = _wait(child, lines.fileno())
        if ended is not None:
            out.write(json.dumps({"status": ended[0], "peak": ended[1]}) + "\n")
    return False


def _prepare(name: str) -> None:
    """Imports a module, or calls a function: "package.module:name"."""
    module, _, function = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError:
        return  # a task that needs it says so
    if function:
        getattr(found, function)()


def _fork(folder: Path, own: list[int]) -> int:
    server = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError:  # a full disk, or the parent's Ctrl-C: the supervisor finds no log
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for descriptor in own:
            os.close(descriptor)
        _answer(folder)
        code = 0
    except OSError as failure:  # of the answer's own file
        print(describe(failure), file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _answer(folder: Path) -> None:
    """Runs the request; its result, or the error that it raised, becomes the file."""
    answer: tuple[str, Any, str]
    try:
        # Written by the process that started this one, into a folder that is its own.
        request = pickle.loads((folder / REQUEST).read_bytes())  # noqa: S301
        module, _, name = request["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        answer = ("ok", function(request["arguments"], request["context"]), "")
        data = pickle.dumps(answer)
    except (Exception, SystemExit) as failure:
        traceback.print_exc()
        data = pickle.dumps(("error", None, describe(failure)))
    part = folder / (RESULT + ".part")
    part.write_bytes(data)
    part.rename(folder / RESULT)


def describe(failure: BaseException) -> str:
    """The type unless the message says where; the message without torch's long tails."""
    text = str(failure).strip() or "no message"
    return text if text.startswith("[") else f"{type(failure).__name__}: {text}"


def kill_task(child: int, how: signal.Signals = signal.SIGKILL) -> None:
    """And what it started."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, how)
            return
        except ProcessLookupError:
            continue  # not yet the leader of its group


def _wait(child: int, parent: int) -> tuple[int, int] | None:
    """The child's wait status and peak memory in bytes; None if the parent has ended it."""
    watched = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([watched, parent], [], [])
        if watched not in ready:
            # While a task runs the parent sends nothing but the end, or is gone. A task that is
            # writing to the store takes back what is half done.
            kill_task(child, signal.SIGINT)
            select.select([watched], [], [], _GRACE)
            kill_task(child)
            os.waitpid(child, 0)
            return None
    finally:
        os.close(watched)
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss * 1024


if __name__ == "__main__":
    raise SystemExit(main())
