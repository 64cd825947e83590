"""Runs programs of the "reference" flavor on the host, in LiteRT's reference kernels.

LiteRT trusts the programs that it is given; ours come from files. Its interpreters run in a
process of their own, so that a damaged program ends that one and is an error here.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise import workers
from edgewise.backends.neutron.payload import ReferencePayload, read_reference
from edgewise.backends.neutron.reference_process import read, write

Array = NDArray[Any]

MOST_BYTES = 8 << 30
"""Of memory for all programs of the flavor that are loaded."""
TIME_LIMIT = 300.0
"""Seconds for one run."""

_TRY = "try compiling the file again, or copying it anew"


def load_delegate(
    payload: bytes, compile_specs: dict[str, bytes], named_data: Callable[[str], bytes]
) -> Callable[[list[Any]], Sequence[Any]]:
    """For `edgewise.runtime.register_backend`. ValueError if the payload is for the NPU or damaged;
    ImportError without the extra `neutron`."""
    del compile_specs, named_data
    return ReferenceProgram(read_reference(payload)).run


class ReferenceProgram:
    """A TFLite program with an interpreter. `run` takes the delegate's arguments."""

    def __init__(self, payload: ReferencePayload) -> None:
        self._payload = payload
        self._number = next(_numbers)
        counts = _interpreters.load(self._number, payload.model)
        weakref.finalize(self, _interpreters.forget, self._number)
        if counts != (len(payload.inputs), len(payload.outputs)):
            raise ValueError(
                f"[NeutronBackend] the payload must be whole; got flags for {len(payload.inputs)} "
                f"inputs and {len(payload.outputs)} outputs of {counts[0]} and {counts[1]}; {_TRY}"
            )

    def run(self, arguments: list[Any]) -> list[Array]:
        """Arguments: the inputs, then (unused) the outputs, in PyTorch's order of dimensions."""
        inputs = [
            np.moveaxis(value, 1, -1) if moved else np.asarray(value)
            for moved, value in zip(self._payload.inputs, arguments, strict=False)
        ]
        outputs = _interpreters.run(self._number, self._payload.model, inputs)
        return [
            np.moveaxis(data, -1, 1) if moved else data
            for data, moved in zip(outputs, self._payload.outputs, strict=True)
        ]


class _Interpreters:
    """The process with the interpreters: started when first needed, and again after it ended."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._loaded: dict[int, tuple[int, int]] = {}
        self._gone: deque[int] = deque()
        self._log: Any = None

    def load(self, number: int, model: bytes) -> tuple[int, int]:
        """Numbers of inputs and outputs. ValueError if it is no program that LiteRT runs."""
        with self._lock:
            self._start()
            while self._gone:
                gone = self._gone.popleft()
                if self._loaded.pop(gone, None) is not None:
                    self._ask({"do": "forget", "program": gone})
            if number not in self._loaded:
                data = np.frombuffer(model, np.uint8)
                message, _ = self._ask({"do": "load", "program": number}, [data])
                self._loaded[number] = tuple(message["counts"])
            return self._loaded[number]

    def run(self, number: int, model: bytes, inputs: Sequence[Array]) -> list[Array]:
        """The outputs. ValueError if the program cannot be run with these inputs."""
        with self._lock:
            self.load(number, model)
            _, outputs = self._ask({"do": "run", "program": number}, inputs)
            return outputs

    def forget(self, number: int) -> None:
        """Lets a program go that nobody can run any more, at the next call: this one may come
        from the garbage collector, in the middle of another."""
        self._gone.append(number)

    def stop(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            process, self._process = self._process, None
            self._loaded.clear()
            if process is None or self._owner != os.getpid():
                return  # a forked child leaves its parent's process alone
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, self._log):
                if pipe is not None:
                    pipe.close()

    def _is_alive(self) -> bool:
        process = self._process
        return process is not None and self._owner == os.getpid() and process.poll() is None

    def _start(self) -> None:
        if self._is_alive():
            return
        self.stop()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by `stop`
        self._owner = os.getpid()
        self._process = workers.start(
            "edgewise.backends.neutron.reference_process", str(MOST_BYTES), log=self._log
        )

    def _ask(
        self, message: dict[str, Any], arrays: Sequence[Array] = ()
    ) -> tuple[dict[str, Any], list[Array]]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        slow = threading.Timer(TIME_LIMIT, process.kill)
        slow.daemon = True
        slow.start()
        try:
            write(process.stdin, message, arrays)  # type: ignore[arg-type]
            answer, results = read(process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError, KeyError):
            raise ValueError(f"[NeutronBackend] {self._ending()}; {_TRY}") from None
        except BaseException:  # Ctrl-C: what is in the pipes belongs to no later call
            self.stop()
            raise
        finally:
            slow.cancel()
        if "error" not in answer:
            return answer, results
        if answer["kind"] == "ImportError":
            raise ImportError(
                "[NeutronBackend] programs of the flavor 'reference' run in LiteRT's kernels; got "
                f"{answer['error']}; try pip install 'edgewise[neutron]'"
            )
        raise ValueError(
            f"[NeutronBackend] LiteRT must be able to run the program; got {answer['error']}; "
            f"{_TRY}"
        )

    def _ending(self) -> str:
        """Of the process, which gave no answer."""
        process = self._process
        assert process is not None
        process.kill()
        code = process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self.stop()
        if code == -signal.SIGKILL:
            ended = f"was stopped, having run for {TIME_LIMIT:g} s or taken too much memory"
        else:
            ended = f"ended with {workers.how_it_ended(code)}"
        told = f" ({lines[-1]})" if lines else ""
        return f"LiteRT must be able to run the program; got its process, which {ended}{told}"


_numbers = itertools.count()
_interpreters = _Interpreters()
atexit.register(_interpreters.stop)
