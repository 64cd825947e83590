"""What tests let workers do."""

from __future__ import annotations

import os
import signal
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
    return len(context.attachment("big")) + len(context.attachment("small"))


def lose_worker(arguments: Any, context: Any) -> str:
    """Ends the process that forks, the first time."""
    mark = Path(arguments["file"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return "done"
