"""A framework in a process of its own, asked over a pipe.

Each framework so has its own libraries and thread pool, and ours runs without torch. Only one
framework works at a time. Separate processes alone do not keep the frameworks apart: a pool spins
for a while after its work is done and takes a core from the other, so the asker pauses between
turns (see `latency.py`).
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

Handler = Callable[[dict[str, Any]], dict[str, Any]]


class Asked(Protocol):
    """Anything that answers requests."""

    def ask(self, **request: Any) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Worker:
    """A child process running `script --worker FRAMEWORK`."""

    def __init__(self, script: Path, framework: str, python: str = sys.executable) -> None:
        self._framework = framework
        # Libraries are talkative: what they say is shown on failure only.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(script), "--worker", framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer; an error there is a RuntimeError here."""
        self.send(**request)
        return self.receive()

    def send(self, **request: Any) -> None:
        """A request whose answer `receive` waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The answer to what was sent. Raises as `ask`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure(f"the process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failure(answer["error"])
        return answer

    def _failure(self, message: str) -> RuntimeError:
        self._log.seek(0)
        last = "".join(self._log.readlines()[-40:])
        return RuntimeError(f"[{self._framework}] {message}\n{last}")

    def close(self) -> None:
        """End the process by closing its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()


class Local:
    """The same interface in this process."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def ask(self, **request: Any) -> dict[str, Any]:
        """Answer at once."""
        return self._handler(request)

    def close(self) -> None:
        """Nothing to end."""


def serve(handler: Handler) -> None:
    """Answer requests until the input ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = handler(json.loads(line))
        except Exception as error:  # any failure of a framework is the asker's to show
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
