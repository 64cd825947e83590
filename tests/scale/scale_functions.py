"""What tests let workers do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any


def double(arguments: Any, context: Any) -> int:
    return 2 * arguments["x"]


def note(arguments: Any, context: Any) -> int:
    """Leaves a line in a file, takes a while."""
    with open(arguments["file"], "a") as file:
        file.write(f"{arguments['x']}\n")
    time.sleep(arguments.get("seconds", 0))
    return 2 * arguments["x"]


def refuse(arguments: Any, context: Any) -> None:
    raise ValueError("[refuse] x must be 1; got 2")


def crash(arguments: Any, context: Any) -> None:
    print("the last words")
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(arguments: Any, context: Any) -> None:
    os._exit(7)


def leave_in_peace(arguments: Any, context: Any) -> None:
    os._exit(0)


def sleep(arguments: Any, context: Any) -> None:
    time.sleep(60)


def eat(arguments: Any, context: Any) -> None:
    held = []
    while True:
        held.append(bytearray(b"x" * (8 << 20)))
        time.sleep(0.005)


def span(arguments: Any, context: Any) -> tuple[float, float]:
    start = time.monotonic()
    time.sleep(arguments["seconds"])
    return start, time.monotonic()


def attached(arguments: Any, context: Any) -> int:
    return len(context.attachments["big"]) + len(context.attachments["small"])


def sleep_with_a_child(arguments: Any, context: Any) -> None:
    """Tells its process, the one that forked it and one that it started."""
    child = subprocess.Popen(["sleep", "60"])
    text = f"{os.getpid()} {os.getppid()} {child.pid}"
    part = Path(arguments["file"] + ".part")
    part.write_text(text)
    part.rename(arguments["file"])
    time.sleep(60)


def half_done(arguments: Any, context: Any) -> None:
    file = Path(arguments["file"])
    try:
        file.touch()
        time.sleep(60)
    finally:
        time.sleep(0.3)
        file.unlink()


def lose_worker(arguments: Any, context: Any) -> str:
    """Ends the process that forks; if there is a file's name, the first time alone."""
    mark = Path(arguments.get("file", ""))
    if not mark.is_file():
        if "file" in arguments:
            mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return "done"
