"""Cuts a program's file short while it is loaded; started by test_cut_short.py, since what goes
wrong ends the process: `cut_short.py CASE FOLDER`. Prints "done".

FOLDER holds `own.pte` and `own.ptd` (weights that the kernels read at every call), `delegate.pte`
(the same for XNNPACK) and `y.npy` (what both give for ones).
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgewise
from edgewise.runtime import Error, Method, Program, Runtime, Verification

FOLDER = Path(sys.argv[2])
EXPECTED = np.load(FOLDER / "y.npy")
ONES = np.ones((1, 64), np.float32)
PAGE = mmap.PAGESIZE


def program(name: str, data: str | None = None, **options: Any) -> Program:
    path = FOLDER / data if data else None
    return Runtime.get().load_program(FOLDER / name, data_path=path, threads=1, **options)


def check(method: Method) -> None:
    np.testing.assert_allclose(method.execute([ONES])[0], EXPECTED, rtol=1e-5, atol=1e-5)


def fails(call: Callable[[], object], file: str) -> None:
    with pytest.raises(Error, match=f"{file}.*cut short") as caught:
        call()
    assert caught.type is Error


def cut(name: str, size: int = 0) -> bytes:
    """The file's bytes of before."""
    path = FOLDER / name
    data = path.read_bytes()
    os.truncate(path, size)
    return data


def between_calls() -> None:
    """Calls that read what is gone fail from then on; others go on."""
    method = program("own.pte", "own.ptd").load_method("forward")
    other = program("delegate.pte").load_method("forward")
    check(method)
    cut("own.pte")  # a loaded method reads its plan and the weights
    check(method)
    data = cut("own.ptd")
    fails(lambda: method.execute([ONES]), "own.ptd")
    check(other)
    (FOLDER / "own.ptd").write_bytes(data)
    fails(lambda: method.execute([ONES]), "own.ptd")
    fails(method.reset, "own.ptd")


def made_anew() -> None:
    """While what was loaded before is still there."""
    before = program("own.pte", "own.ptd").load_method("forward")
    data = cut("own.ptd")
    fails(lambda: before.execute([ONES]), "own.ptd")
    (FOLDER / "own.ptd").write_bytes(data)
    check(program("own.pte", "own.ptd").load_method("forward"))


def before_the_method() -> None:
    """At every page: the delegate is made of what is left, or is refused; what was made, runs."""
    size = (FOLDER / "delegate.pte").stat().st_size
    for left in range(0, size, PAGE):
        loaded = program("delegate.pte")
        data = cut("delegate.pte", left)
        try:
            method = loaded.load_method("forward")
        except Error as error:
            told = str(error)
            assert "cut short" in told, told
        else:
            check(method)
            assert left > size - 2 * PAGE, f"{left} of {size} bytes are enough"
        (FOLDER / "delegate.pte").write_bytes(data)


def many_threads() -> None:
    """Each call of 8 threads gives the right result or the error; those of others, the result."""
    loaded = program("own.pte", "own.ptd")
    methods = [loaded.load_method("forward") for _ in range(6)]
    others = [program("delegate.pte").load_method("forward") for _ in range(2)]
    failed = [0] * len(methods)
    started = threading.Barrier(9)
    stop = threading.Event()

    def work(index: int) -> None:
        started.wait()
        while not stop.is_set() and failed[index] < 50:
            try:
                result = methods[index].execute([ONES])[0]
            except Error as error:
                told = str(error)
                assert "cut short" in told, told
                failed[index] += 1
            else:
                assert failed[index] == 0
                np.testing.assert_allclose(result, EXPECTED, rtol=1e-5, atol=1e-5)

    def go_on(method: Method) -> None:
        started.wait()
        while not stop.is_set():
            check(method)

    wrong: list[Any] = []
    threading.excepthook = wrong.append
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(methods))]
    rest = [threading.Thread(target=go_on, args=(m,)) for m in others]
    for thread in (*threads, *rest):
        thread.start()
    started.wait()
    cut("own.ptd", PAGE)
    for thread in threads:
        thread.join(60)
    stop.set()
    for thread in rest:
        thread.join(60)
    assert not wrong, wrong
    assert failed == [50] * len(methods)


def full() -> None:
    """A copy: nobody's writing is seen."""
    methods = [
        program("own.pte", "own.ptd", verification=Verification.Full).load_method("forward"),
        program("delegate.pte", verification=Verification.Full).load_method("forward"),
    ]
    for name in ("own.pte", "own.ptd", "delegate.pte"):
        (FOLDER / name).write_bytes(b"\xff" * (FOLDER / name).stat().st_size)
        cut(name)
    for method in methods:
        check(method)
        method.reset()
        check(method)


def full_has_no_handler() -> None:
    _ = program("own.pte", "own.ptd", verification=Verification.Full)
    _fault()


def _fault() -> None:
    """In a file that is not ours."""
    path = FOLDER / "other"
    path.write_bytes(b"x" * PAGE)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    os.truncate(path, 0)
    print(mapped[0])


def another_file() -> None:
    """The handler of before tells of it; ours left no trace of the fault that was."""
    faulthandler.enable()
    method = program("own.pte", "own.ptd").load_method("forward")
    cut("own.ptd")
    fails(lambda: method.execute([ONES]), "own.ptd")
    print("ours is over", file=sys.stderr, flush=True)
    _fault()


def a_later_handler() -> None:
    """It has the first word. Once it is gone, ours is back."""
    loaded = program("own.pte", "own.ptd")
    faulthandler.enable()
    faulthandler.disable()
    method = loaded.load_method("forward")
    cut("own.ptd")
    fails(lambda: method.execute([ONES]), "own.ptd")


def sent_and_ignored() -> None:
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    loaded = program("own.pte", "own.ptd")
    os.kill(os.getpid(), signal.SIGBUS)
    check(loaded.load_method("forward"))


def sent() -> None:
    _ = program("own.pte", "own.ptd")
    os.kill(os.getpid(), signal.SIGBUS)


def sent_to_python() -> None:
    got = []
    signal.signal(signal.SIGBUS, lambda number, _: got.append(number))
    loaded = program("own.pte", "own.ptd")
    os.kill(os.getpid(), signal.SIGBUS)
    assert got == [signal.SIGBUS]
    del loaded
    os.kill(os.getpid(), signal.SIGBUS)
    assert len(got) == 2


def after_unloading() -> None:
    loaded = program("own.pte", "own.ptd")
    del loaded
    _fault()


def a_model() -> None:
    model = edgewise.load(FOLDER / "own.pte", data_path=FOLDER / "own.ptd")
    model(ONES)
    cut("own.ptd", PAGE)
    fails(lambda: model(ONES), "own.ptd")


def after_a_fork() -> None:
    method = program("own.pte", "own.ptd").load_method("forward")
    child = os.fork()
    if child == 0:
        cut("own.ptd")
        fails(lambda: method.execute([ONES]), "own.ptd")
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    fails(lambda: method.execute([ONES]), "own.ptd")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done")
