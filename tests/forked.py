"""`subprocess.Popen` of a module of ours without the seconds of starting Python: a fork runs it.

What this process has imported is there already. All else is as in a process of its own: pipes,
limits, signals, its end.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import IO, Any


class ForkedProcess:
    """words: the interpreter, "-m", the module and its arguments. stdin and stdout are pipes."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
    ) -> None:
        assert list(words[:2]) == [sys.executable, "-m"]
        assert stdin == stdout == subprocess.PIPE
        self.args, self.returncode, self.stderr = words, None, None
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child uses none
            self.pid = os.fork()
        if self.pid == 0:
            if start_new_session:
                os.setsid()
            os.dup2(asked, 0)
            os.dup2(answer, 1)
            if stderr is not None:
                os.dup2(stderr.fileno(), 2)
            _be(words[2], words[3:], {} if env is None else env)
        os.close(asked)
        os.close(answer)
        self.stdin = os.fdopen(ask, "wb")
        self.stdout = os.fdopen(answered, "rb")

    returncode: int | None

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None and self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        end = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.args), timeout or 0)
            time.sleep(0.001)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _be(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Runs the module as Python does, and ends."""
    code: Any = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 4096 else 4096)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115
            for number, mode in enumerate(("r", "w", "w"))
        )
        sys.argv = [module, *arguments]
        warnings.simplefilter("ignore")  # that it was imported already
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
