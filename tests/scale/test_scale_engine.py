"""Tasks in processes of their own: what becomes of them, when they run, what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgewise.scale.engine import run_all
from edgewise.scale.local import LocalEngine
from edgewise.scale.task import Limits, Outcome, Task

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(2) as made:
        yield made


def call(name: str, limits: Limits = Limits(30), **arguments: object) -> Task:  # noqa: B008
    return Task(f"scale_functions:{name}", arguments, limits=limits)


OUTCOMES = [
    ("double", Limits(), "ok", ""),
    ("refuse", Limits(), "error", "[refuse] x must be 1; got 2"),
    ("missing", Limits(), "error", "has no attribute 'missing'"),
    ("crash", Limits(), "crash", "SIGSEGV (Segmentation fault); last lines: the last words"),
    ("leave", Limits(), "crash", "exit code 7"),
    ("leave_in_peace", Limits(), "crash", "exit code 0"),
    ("sleep", Limits(seconds=0.3), "time", "longer than its 0.3 s"),
    ("eat", Limits(bytes=200 << 20), "memory", "more than its 200 MiB of memory"),
]


def test_outcomes(engine: LocalEngine) -> None:
    tasks = [call(name, limits, x=i) for i, (name, limits, _, _) in enumerate(OUTCOMES)]
    found = list(run_all(engine, tasks))
    for outcome, (name, _, status, text) in zip(found, OUTCOMES, strict=True):
        assert (name, outcome.status) == (name, status), outcome
        assert text in outcome.error
    # Limits are seen every 50 ms: what is far above both was not seen.
    assert 0.3 < found[6].seconds < 10
    assert 200 << 20 < found[7].peak_bytes < 1000 << 20


def test_outcomes_come_in_order_and_tasks_are_taken_as_there_is_room(engine: LocalEngine) -> None:
    taken = 0

    def tasks() -> Iterator[Task]:
        nonlocal taken
        for x in range(30):
            taken += 1
            yield call("double", x=x)

    values = []
    for outcome in run_all(engine, tasks()):
        values.append(outcome.value)
        assert taken <= len(values) + 2 * engine.slots
    assert values == [2 * x for x in range(30)]


def test_equal_tasks_run_once(engine: LocalEngine, tmp_path: Path) -> None:
    same = [call("note", x=1, file=str(tmp_path / "ran"), seconds=0.2) for _ in range(3)]
    assert [o.value for o in run_all(engine, same)] == [2, 2, 2]
    assert (tmp_path / "ran").read_text() == "1\n"


def test_exclusive_tasks_run_alone(engine: LocalEngine) -> None:
    other = LocalEngine(1)  # turns are the machine's, not an engine's
    with other:
        for index in range(4):
            engine.submit(call("span", x=index, seconds=0.15))
        alone = Task("scale_functions:span", {"x": 9, "seconds": 0.15}, exclusive=True)
        other.submit(alone)
        start, end = other.next().value
        spans = [engine.next().value for _ in range(4)]
    assert all(e <= start or end <= s for s, e in spans), (start, end, spans)
    pairs = [(a, b) for a in spans for b in spans if a < b]
    assert any(b[0] < a[1] for a, b in pairs), "the others did not overlap"


def test_attachments(engine: LocalEngine) -> None:
    big = engine.share(b"x" * 1000)
    tasks = [
        Task("scale_functions:attached", {"x": i}, {"big": big, "small": b"y" * i})
        for i in range(4)
    ]
    assert [o.value for o in run_all(engine, tasks)] == [1000, 1001, 1002, 1003]


def test_attachments_of_the_last_task_are_kept() -> None:
    """A worker that had others meanwhile is sent them again."""
    with LocalEngine(1) as engine:
        shared = [engine.share(b""), engine.share(b"1")]
        for index in (0, 0, 1, 1, 0):
            given = {"big": shared[index], "small": b""}
            engine.submit(Task("scale_functions:attached", {}, given))
            assert engine.next().value == index


def test_a_lost_worker_s_task_is_tried_again(engine: LocalEngine, tmp_path: Path) -> None:
    tasks = [call("lose_worker", file=str(tmp_path / "mark")), *(call("double", x=i) for i in (5,))]
    found = list(run_all(engine, tasks))
    assert [o.value for o in found] == ["done", 10]


def test_a_task_that_loses_each_worker_is_lost(engine: LocalEngine) -> None:
    engine.submit(call("lose_worker"))
    outcome = engine.next()
    assert (outcome.status, outcome.error) == ("lost", "its worker was lost 4 times")


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    engine = LocalEngine(1)
    file = tmp_path / "processes"
    engine.submit(call("sleep_with_a_child", file=str(file)))
    wait_until(lambda: file.exists())
    engine.close()
    wait_until(lambda: not any(map(_is_alive, map(int, file.read_text().split()))), 10)
    with pytest.raises(RuntimeError, match="closed"):
        engine.submit(call("double", x=1))


def test_a_task_may_take_back_what_is_half_done(tmp_path: Path) -> None:
    engine = LocalEngine(1)
    engine.submit(call("half_done", file=str(tmp_path / "part")))
    wait_until(lambda: (tmp_path / "part").exists())
    engine.close()
    assert not (tmp_path / "part").exists()


def test_nothing_is_left_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    script = (
        "from edgewise.scale.supervisor import Supervisor\n"
        "from edgewise.scale.task import Context, Limits, Task\n"
        f"arguments = {{'file': {str(tmp_path / 'processes')!r}}}\n"
        "task = Task('scale_functions:sleep_with_a_child', arguments, limits=Limits(60))\n"
        "Supervisor().run(task, Context())\n"
    )
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(HERE)}
    worker = subprocess.Popen([sys.executable, "-c", script], env=environment)
    file = tmp_path / "processes"
    wait_until(lambda: file.exists())
    worker.kill()
    worker.wait()
    wait_until(lambda: not any(map(_is_alive, map(int, file.read_text().split()))), 10)
    (locks,) = (tmp_path / "tmp").iterdir()
    assert locks.name.startswith("edgewise-turns-")


SCRIPT = """
import sys
sys.path.append({folder!r})
from edgewise.scale import LocalEngine, Task
print("begins")
with LocalEngine(1) as engine:
    for x in (1, 2):
        engine.submit(Task("scale_functions:double", {{"x": x}}))
        print(engine.next().value)
"""


@pytest.mark.parametrize("how", ["file", "standard input", "command", "module"])
def test_scripts_run_once(how: str, tmp_path: Path) -> None:
    """However Python was given it, and without `if __name__ == "__main__"`."""
    text = SCRIPT.format(folder=str(HERE))
    (tmp_path / "script.py").write_text(text)
    words, given = {
        "file": (["script.py"], ""),
        "standard input": (["-"], text),
        "command": (["-c", text], ""),
        "module": (["-m", "script"], ""),
    }[how]
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        input=given,
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert (done.stdout, done.stderr) == ("begins\n2\n4\n", "")


def wait_until(condition: Callable[[], bool], most: float = 60) -> None:
    """Looks again and again, for `most` seconds."""
    end = time.monotonic() + most
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_keys_are_of_content() -> None:
    one = Task("m:f", {"a": 1, "b": [2]}, versions={"torch": "1"})
    same = Task("m:f", {"b": [2], "a": 1}, limits=Limits(5), exclusive=True, label="x",
                versions={"torch": "1"})  # fmt: skip
    assert one.key == same.key
    for other in (
        Task("m:g", one.arguments, versions=one.versions),
        Task("m:f", {"a": 2, "b": [2]}, versions=one.versions),
        Task("m:f", one.arguments, versions={"torch": "2"}),
    ):
        assert other.key != one.key


@pytest.mark.parametrize(
    ("status", "then", "now", "stands"),
    [
        ("ok", Limits(1), Limits(9), True),
        ("error", Limits(1), Limits(9), True),
        ("crash", Limits(1), Limits(9), True),
        ("time", Limits(5), Limits(5), True),
        ("time", Limits(5), Limits(6), False),
        ("time", Limits(5), Limits(None), False),
        ("memory", Limits(5, 100), Limits(9, 100), True),
        ("memory", Limits(5, 100), Limits(5, 200), False),
        ("lost", Limits(), Limits(), False),
    ],
)
def test_wider_limits_are_another_try(status: str, then: Limits, now: Limits, stands: bool) -> None:
    assert Outcome("k", status, limits=then).stands(now) is stands  # type: ignore[arg-type]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (OSError, IndexError):
        return False
