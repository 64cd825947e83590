"""Generators that requests share: each is one request's at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from edgewise.llm.generator import Generator
from edgewise.llm.requests import RequestError

__all__ = ["Lease", "Limits", "Pool"]


@dataclass(frozen=True)
class Limits:
    """body_bytes: of a request. waiting: requests that may wait for a generator, beside those that
    are answered. seconds: that one may wait."""

    body_bytes: int = 1 << 20
    waiting: int = 32
    seconds: float = 60.0


@dataclass
class Lease:
    """A generator for one request. step: what it is computing in another thread, if anything."""

    generator: Generator
    step: asyncio.Future[str | None] | None = None


class Pool:
    """The generators, each for one request at a time."""

    def __init__(self, generators: list[Generator], limits: Limits) -> None:
        self._free = list(generators)
        self._limits = limits
        self._waiting = 0
        self._count = asyncio.Semaphore(len(generators))
        self._threads = ThreadPoolExecutor(len(generators), "generate")

    @asynccontextmanager
    async def take(self, prompt: list[int]) -> AsyncIterator[Lease]:
        """One that is free, or becomes free in time. Raises RequestError if none does."""
        if self._count.locked() and self._waiting >= self._limits.waiting:
            raise RequestError(f"[serve] {self._waiting} requests wait already; try later", 429)
        self._waiting += 1
        try:
            await asyncio.wait_for(self._count.acquire(), self._limits.seconds)
        except asyncio.TimeoutError:
            raise RequestError(
                f"[serve] no generator was free in {self._limits.seconds:g} s; try later", 503
            ) from None
        finally:
            self._waiting -= 1
        generator = max(self._free, key=lambda one: one.common_prefix(prompt))
        self._free.remove(generator)
        lease = Lease(generator)
        try:
            yield lease
        finally:
            if lease.step is None or lease.step.done():
                self._give_back(generator)
            else:  # its request is gone, but the thread computes on
                lease.step.add_done_callback(lambda step: self._give_back(generator))

    def _give_back(self, generator: Generator) -> None:
        self._free.append(generator)
        self._count.release()

    async def pieces(
        self, request: Request, lease: Lease, writer: Iterable[str]
    ) -> AsyncIterator[str]:
        """What the writer has to say, computed in a thread, until the client is gone."""
        parts = iter(writer)
        loop = asyncio.get_running_loop()
        while True:
            lease.step = loop.run_in_executor(self._threads, next, parts, None)
            part = await asyncio.shield(lease.step)
            if part is None:
                return
            if part:
                yield part
            if await request.is_disconnected():
                raise ClientDisconnect
