"""Workers of a Ray cluster."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgewise.scale.engine import Engine
from edgewise.scale.supervisor import Supervisor
from edgewise.scale.task import Context, Outcome, Shared, Task, digest
from edgewise.scale.versions import versions

if TYPE_CHECKING:
    from edgewise.scale.store import Store

RETRIES = 3
"""How often Ray runs a task again whose worker or node was lost."""


class RayEngine(Engine):
    """One of Ray's tasks for each task, with a CPU each; within it, a process as anywhere else.

    address: of a cluster ("10.0.0.1:6379", or "auto"); None: one is started here.
    working_dir: a folder that Ray brings to the workers, for the code that sources name, but for
    what `excludes` says; None: they find it under `context.root`. Connects unless this process
    is connected (then `working_dir` is for who connected to say); what was connected here is
    disconnected by `close`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        context: Context | None = None,
        preload: Sequence[str] = (),
        working_dir: str | None = None,
        excludes: Sequence[str] = (),
    ) -> None:
        try:
            import ray
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                "[RayEngine] Ray must be installed; try pip install 'edgewise[scale,ray]'",
                name="ray",
            ) from missing
        self._ray: Any = ray
        self._connected_here = not ray.is_initialized()
        self._context = context or Context()
        if self._connected_here:
            environment: dict[str, Any] = {}
            if working_dir:
                environment = {"working_dir": working_dir, "excludes": list(excludes)}
                # The root is then the folder that a worker starts in.
                self._context = replace(self._context, root="")
            self._connect(address, environment)
        self._preload = tuple(preload)
        self._run = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(_run)
        self._running: dict[Any, Task] = {}

    @property
    def slots(self) -> int:
        """The CPUs that the cluster has now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, data: bytes) -> Shared:
        return Shared(digest(data), self._ray.put(data))

    def submit(self, task: Task) -> None:
        shared = task.shared
        options = {"name": f"edgewise {task.label or task.function}", "enable_task_events": False}
        reference = self._run.options(**options).remote(
            task.with_handles(dict.fromkeys(shared)),
            self._context,
            self._preload,
            list(shared),
            *shared.values(),
        )
        self._running[reference] = task

    def next(self) -> Outcome:
        if not self._running:
            raise RuntimeError("[RayEngine] no task is queued or running")
        (ready,), _ = self._ray.wait(list(self._running), num_returns=1)
        task = self._running.pop(ready)
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(ready)
            return outcome
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError) as lost:
            text = f"its worker was lost {1 + RETRIES} times: {_first_line(lost)}"
        except errors.OutOfMemoryError as lost:
            text = f"Ray ended it, its node was out of memory: {_first_line(lost)}"
        return Outcome(task.key, "lost", error=text, limits=task.limits)

    def close(self) -> None:
        """Cancels what runs; disconnects if this engine connected."""
        if not self._ray.is_initialized():
            return
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        if self._connected_here:
            self._ray.shutdown()

    def check(self, store: Store) -> None:
        """RuntimeError if a node has other versions, or does not see the store."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = self._ray.remote(num_cpus=0, max_retries=1)(_probe)
        name = "probe.txt"
        store.write(name, b"edgewise")
        nodes = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        answers = {
            n["NodeManagerHostname"]: probe.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
            ).remote(store.location, name)
            for n in nodes
        }
        for host, answer in answers.items():
            _check(host, self._ray.get(answer), store.location)

    def _connect(self, address: str | None, environment: dict[str, Any]) -> None:
        options: dict[str, Any] = {
            "logging_level": "ERROR",
            "log_to_driver": False,
            "runtime_env": environment,
        }
        if address is None:
            options |= {"include_dashboard": False, "object_store_memory": 256 << 20}
        try:
            self._ray.init(address=address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError) as failure:
            raise ConnectionError(
                f"[RayEngine] a cluster must answer at {address or 'this machine'}; got "
                f"{_first_line(failure)}; try `ray status --address {address or 'auto'}`"
            ) from failure


@functools.cache
def _supervisor(preload: tuple[str, ...]) -> Supervisor:
    """Of this process of Ray's, which runs task after task."""
    return Supervisor(preload)


def _run(
    task: Task, context: Context, preload: tuple[str, ...], digests: list[str], *shared: bytes
) -> Outcome:
    """In a worker of Ray's: the task in a process of its own, under its limits."""
    context = replace(context, root=context.root or os.getcwd())
    task = task.with_handles(dict(zip(digests, shared, strict=True)))
    return _supervisor(preload).run(task, context)


def _probe(location: str, name: str) -> tuple[dict[str, str], str]:
    """On a node: its versions, and what it reads in the store."""
    from edgewise.scale.store import Store

    try:
        return versions(), Store(location).read(name).decode()
    except Exception as failure:
        return versions(), f"{type(failure).__name__}: {failure}"


def _check(host: str, answer: tuple[Mapping[str, str], str], location: str) -> None:
    found, text = answer
    expected = versions()
    other = {n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n)}
    if other:
        wanted = ", ".join(f"{n} {expected.get(n, 'not installed')}" for n in sorted(other))
        got = ", ".join(f"{n} {found.get(n, 'not installed')}" for n in sorted(other))
        raise RuntimeError(
            f"[sweep] node {host} must have the packages of this machine: {wanted}; got {got}; "
            f"try the same image on all nodes"
        )
    if text != "edgewise":
        raise RuntimeError(
            f"[sweep] node {host} must see the results in {location}; got {text}; try a folder "
            f"that all nodes share, or a URL that fsspec knows (s3://...)"
        )


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
